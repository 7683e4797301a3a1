/*
 * Fault events: one subscription per process with a thread of its own from then on, and the
 * blocking query. Events come from the image's ring, whose writer wakes the futex beside it.
 */
#include "answers.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FILTER_EVENT_ID 1u
#define FILTER_SEVERITY 2u
#define FILTER_NODE_TYPE 4u
#define WAIT_NS 200000000L
#define STACK_BYTES (1u << 20)

void fill_event(struct dcmi_event *out, const struct image_event *event, unsigned int logic_id);

static struct {
    pthread_mutex_t lock;
    pid_t watcher; /* the process whose thread runs; a child of fork has none */
    int card_id;
    int device_id;
    struct dcmi_event_filter filter;
    dcmi_fault_callback handler;
    const unsigned char *base; /* image at the subscription, and its next event then */
    uint64_t next;
    unsigned int number; /* of the subscription, so that the thread sees it changed */
} subscription = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_wanted(const struct image_event *event, int card_id, int device_id,
                      const struct dcmi_event_filter *filter, unsigned int *logic_id)
{
    struct call call;
    uint32_t seen;

    if (!hold_image(&call) || event->logic_id >= IMAGE_MAX_IDS)
        return false;
    const struct image_node *node = look_at_node(node_of(call.base), &seen);
    const struct chip_block *block = chip_by(&call, &node->by_logic[event->logic_id]);
    if (block == NULL)
        return false;
    *logic_id = event->logic_id;
    if (call.view != NULL)
        *logic_id = (unsigned int)call.view->logic_ids[chip_index(&call, block)];
    const struct image_chip *chip = look_at_chip(block, &seen);
    if (card_id != ANY_ID && card_id != GET(chip->card_id))
        return false;
    if (device_id != ANY_ID && device_id != GET(chip->device_id))
        return false;
    if ((filter->filter_flag & FILTER_EVENT_ID) && filter->event_id != event->code)
        return false;
    if ((filter->filter_flag & FILTER_SEVERITY) && filter->severity > event->severity)
        return false;
    return !(filter->filter_flag & FILTER_NODE_TYPE) || filter->node_type == event->node_type;
}

static void deliver(const struct image_event *event)
{
    struct dcmi_event out;
    unsigned int logic_id;

    pthread_mutex_lock(&subscription.lock);
    dcmi_fault_callback handler = subscription.handler;
    bool wanted = handler != NULL && is_wanted(event, subscription.card_id, subscription.device_id,
                                               &subscription.filter, &logic_id);
    pthread_mutex_unlock(&subscription.lock);
    if (!wanted)
        return;
    fill_event(&out, event, logic_id);
    handler(&out);
}

static bool read_event(const unsigned char *base, uint64_t number, struct image_event *copy)
{
    const struct image_event *ring =
        (const struct image_event *)(const void *)(base + IMAGE_EVENTS_AT);
    const struct image_event *slot = &ring[number % IMAGE_EVENT_SLOTS];

    if (__atomic_load_n(&slot->number, __ATOMIC_ACQUIRE) != number + 1)
        return false;
    copy_words(copy, slot, sizeof *copy);
    atomic_thread_fence(memory_order_acquire);
    copy->number = number + 1;
    return __atomic_load_n(&slot->number, __ATOMIC_RELAXED) == number + 1;
}

static uint64_t event_count(const unsigned char *base)
{
    return __atomic_load_n(&header_of(base)->event_count, __ATOMIC_ACQUIRE);
}

/* Where to read on when the writer went round the ring meanwhile: what was overwritten is lost. */
static uint64_t catch_up(uint64_t next, uint64_t count)
{
    if (count - next <= IMAGE_EVENT_SLOTS)
        return next;
    return count < next ? count : count - IMAGE_EVENT_SLOTS;
}

static uint64_t drain(const unsigned char *base, uint64_t next)
{
    uint64_t count = event_count(base);
    struct image_event copy;

    for (next = catch_up(next, count); next < count; next++)
        if (read_event(base, next, &copy))
            deliver(&copy);
    return next;
}

static void wait_for_word(const unsigned char *base, uint32_t word, const struct timespec *limit)
{
    syscall(SYS_futex, &header_of(base)->event_word, FUTEX_WAIT, word, limit, NULL, 0);
}

static uint32_t event_word(const unsigned char *base)
{
    return __atomic_load_n(&header_of(base)->event_word, __ATOMIC_ACQUIRE);
}

static void *watch(void *unused)
{
    const unsigned char *base = NULL;
    uint64_t next = 0;
    unsigned int number = 0;
    const struct timespec limit = {.tv_sec = 0, .tv_nsec = WAIT_NS};

    (void)unused;
    for (;;) {
        struct call call;
        if (!hold_image(&call)) {
            nanosleep(&limit, NULL);
            continue;
        }
        pthread_mutex_lock(&subscription.lock);
        bool is_new = number != subscription.number && subscription.base != base;
        number = subscription.number;
        if (is_new) {
            base = subscription.base;
            next = subscription.next;
        }
        pthread_mutex_unlock(&subscription.lock);
        if (!is_new && call.base != base) { /* the library was opened again without subscribing */
            base = call.base;
            next = event_count(base);
        }
        uint32_t word = event_word(base);
        next = drain(base, next);
        wait_for_word(base, word, &limit);
    }
    return NULL;
}

static int start_watching(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the thread takes no signal of its host */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int failed = pthread_create(&thread, &attributes, watch, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed ? INNER_ERROR : OK;
}

static void subscribe(struct call *call, int card_id, int device_id,
                      struct dcmi_event_filter filter, dcmi_fault_callback handler)
{
    pthread_mutex_lock(&subscription.lock);
    subscription.card_id = card_id;
    subscription.device_id = device_id;
    subscription.filter = filter;
    subscription.handler = handler;
    /* Taken here, not in the thread: an event right after this call must be heard. */
    subscription.base = call->base;
    subscription.next = event_count(call->base);
    subscription.number++;
    if (subscription.watcher != getpid()) {
        call->code = start_watching();
        subscription.watcher = call->code == OK ? getpid() : 0;
    }
    pthread_mutex_unlock(&subscription.lock);
}

static bool names_devices(struct call *call, int card_id, int device_id)
{
    if (card_id == ANY_ID && device_id == ANY_ID)
        return true;
    return needs(call, chip_of_pair(call, card_id, device_id == ANY_ID ? 0 : device_id) != NULL);
}

static bool find_device(struct call *call, int dev_id, int *card_id, int *device_id)
{
    uint32_t seen;

    *card_id = *device_id = ANY_ID;
    if (dev_id == ANY_ID)
        return true;
    const struct chip_block *block = dev_id < 0 ? NULL : chip_of_logic(call, (unsigned int)dev_id);
    if (!needs(call, block != NULL))
        return false;
    const struct image_chip *chip = look_at_chip(block, &seen);
    *card_id = GET(chip->card_id);
    *device_id = GET(chip->device_id);
    return true;
}

void answer_subscribe(struct call *call, int card_id, int device_id,
                      struct dcmi_event_filter filter, dcmi_fault_callback handler)
{
    if (names_devices(call, card_id, device_id))
        subscribe(call, card_id, device_id, filter, handler);
}

void answer_subscribe_v2(struct call *call, int dev_id, struct dcmi_event_filter filter,
                         dcmi_fault_callback handler)
{
    int card_id, device_id;

    if (find_device(call, dev_id, &card_id, &device_id))
        subscribe(call, card_id, device_id, filter, handler);
}

/* Wait up to `timeout` ms (-1: without end) for the next event that fits. */
static void wait_event(struct call *call, int card_id, int device_id, int timeout,
                       const struct dcmi_event_filter *filter, struct dcmi_event *event)
{
    const struct timespec limit = {.tv_sec = 0, .tv_nsec = 10000000L};
    struct timespec now, start;
    uint64_t next = event_count(call->base);

    clock_gettime(CLOCK_MONOTONIC, &start);
    for (;;) {
        uint32_t word = event_word(call->base);
        uint64_t count = event_count(call->base);
        for (next = catch_up(next, count); next < count; next++) {
            struct image_event copy;
            unsigned int logic_id;
            if (read_event(call->base, next, &copy) &&
                is_wanted(&copy, card_id, device_id, filter, &logic_id)) {
                fill_event(event, &copy, logic_id);
                return;
            }
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
        long passed = (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
        if (timeout >= 0 && passed >= timeout) {
            call->code = TIME_OUT;
            return;
        }
        wait_for_word(call->base, word, &limit);
    }
}

void answer_wait_event(struct call *call, int card_id, int device_id, int timeout,
                       struct dcmi_event_filter filter, struct dcmi_event *event)
{
    if (needs(call, timeout >= -1) && names_devices(call, card_id, device_id))
        wait_event(call, card_id, device_id, timeout, &filter, event);
}

void answer_wait_event_v2(struct call *call, int dev_id, int timeout,
                          struct dcmi_event_filter filter, struct dcmi_event *event)
{
    int card_id, device_id;

    if (needs(call, timeout >= -1) && find_device(call, dev_id, &card_id, &device_id))
        wait_event(call, card_id, device_id, timeout, &filter, event);
}
