/*
 * liblingqu-dcmi.so: faults of a super-pod's switch, as the device plugin of a 910A3 asks for them.
 * Layouts as that client declares them
 * (Ascend/mind-cluster:component/ascend-device-plugin/pkg/device/deviceswitch/library.h).
 * Reads the node block of the hardware image; a subscriber is told what came and what went.
 */
#include "engine.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define WAIT_NS 100000000L
#define ASSERTED 1
#define RECOVERED 0
#define FILTER_TYPE 1u
#define FILTER_ID 2u
#define FILTER_SEVERITY 4u

struct switch_event {
    unsigned int event_type;
    unsigned int sub_type;
    unsigned short peer_device;
    unsigned short peer_port;
    unsigned short switch_chip;
    unsigned short switch_port;
    unsigned char severity;
    unsigned char assertion;
    char reserved[6];
    unsigned int event_serial;
    unsigned int notify_serial;
    unsigned long raised_ms;
    unsigned char parameters[40];
    char text[32];
};
_Static_assert(sizeof(struct switch_event) == 112, "switch_event");
_Static_assert(offsetof(struct switch_event, severity) == 16, "severity");
_Static_assert(offsetof(struct switch_event, raised_ms) == 32, "raised_ms");

struct switch_filter {
    unsigned int flags;
    unsigned int event_type;
    unsigned int event_id;
    unsigned char severity;
    unsigned int chip;
};
_Static_assert(sizeof(struct switch_filter) == 20, "switch_filter");

typedef void (*switch_callback)(struct switch_event *);

struct picture {
    unsigned int count;
    struct switch_event events[IMAGE_MAX_SWITCH_FAULTS];
};

static struct {
    pthread_mutex_t lock;
    bool is_running;
    struct switch_filter filter;
    switch_callback handler;
    struct picture known;
    unsigned int serial;
} watcher = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool look(struct picture *picture)
{
    struct call call;
    uint32_t seen;
    unsigned int looks = 0;

    if (!hold_image(&call))
        return false;
    const struct node_block *block = node_of(call.base);
    do {
        const struct image_node *node = look_at_node(block, &seen);
        memset(picture, 0, sizeof *picture);
        picture->count = GET(node->switch_count);
        if (picture->count > IMAGE_MAX_SWITCH_FAULTS)
            picture->count = IMAGE_MAX_SWITCH_FAULTS;
        for (unsigned int i = 0; i < picture->count; i++) {
            struct switch_event *event = &picture->events[i];
            event->event_type = GET(node->switch_alarm[i]);
            event->sub_type = GET(node->switch_fault[i]);
            event->peer_device = GET(node->switch_peer[i]);
            event->severity = GET(node->switch_severity[i]);
            event->raised_ms = GET(node->switch_raised_ms[i]);
            event->assertion = ASSERTED;
        }
    } while (is_stale(&block->sequence, seen, &looks, &call.code));
    return call.code == OK;
}

static bool is_same(const struct switch_event *a, const struct switch_event *b)
{
    return a->event_type == b->event_type && a->sub_type == b->sub_type &&
           a->peer_device == b->peer_device;
}

static bool is_in(const struct switch_event *event, const struct picture *picture)
{
    for (unsigned int i = 0; i < picture->count; i++)
        if (is_same(event, &picture->events[i]))
            return true;
    return false;
}

static bool is_wanted(const struct switch_event *event)
{
    const struct switch_filter *filter = &watcher.filter;

    if ((filter->flags & FILTER_TYPE) && filter->event_type != event->event_type)
        return false;
    if ((filter->flags & FILTER_ID) && filter->event_id != event->sub_type)
        return false;
    return !(filter->flags & FILTER_SEVERITY) || filter->severity <= event->severity;
}

static void tell(struct switch_event event, unsigned char assertion)
{
    pthread_mutex_lock(&watcher.lock);
    switch_callback handler = is_wanted(&event) ? watcher.handler : NULL;
    event.event_serial = event.notify_serial = watcher.serial++ & 127u;
    pthread_mutex_unlock(&watcher.lock);
    event.assertion = assertion;
    if (handler != NULL)
        handler(&event);
}

static void *watch(void *unused)
{
    const struct timespec limit = {.tv_sec = 0, .tv_nsec = WAIT_NS};
    struct picture now;

    (void)unused;
    for (;;) {
        if (look(&now)) {
            for (unsigned int i = 0; i < watcher.known.count; i++)
                if (!is_in(&watcher.known.events[i], &now))
                    tell(watcher.known.events[i], RECOVERED);
            for (unsigned int i = 0; i < now.count; i++)
                if (!is_in(&now.events[i], &watcher.known))
                    tell(now.events[i], ASSERTED);
            watcher.known = now;
        }
        nanosleep(&limit, NULL);
    }
    return NULL;
}

EXPORT int lq_dcmi_init(void)
{
    return open_image();
}

EXPORT int lq_dcmi_get_fault_info(unsigned int capacity, unsigned int *count,
                                  struct switch_event *events)
{
    struct picture now;

    if (count == NULL || events == NULL || capacity == 0)
        return INVALID_PARAMETER;
    if (!look(&now))
        return INNER_ERROR;
    *count = now.count < capacity ? now.count : capacity;
    memcpy(events, now.events, *count * sizeof *events);
    return OK;
}

EXPORT int lq_dcmi_subscribe_fault_event(struct switch_filter filter, switch_callback handler)
{
    int code = OK;

    if (handler == NULL)
        return INVALID_PARAMETER;
    pthread_mutex_lock(&watcher.lock);
    watcher.filter = filter;
    watcher.handler = handler;
    if (!watcher.is_running) {
        pthread_t thread;
        pthread_attr_t attributes;
        sigset_t all, old;
        code = look(&watcher.known) ? OK : INNER_ERROR;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (code == OK && pthread_create(&thread, &attributes, watch, NULL) != 0)
            code = INNER_ERROR;
        pthread_attr_destroy(&attributes);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        watcher.is_running = code == OK;
    }
    pthread_mutex_unlock(&watcher.lock);
    return code;
}
