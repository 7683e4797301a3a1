/* Subscribes, says so, and prints the first N events it hears. */
#include "dcmi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int left;

static void hear(struct dcmi_event *event)
{
    pthread_mutex_lock(&lock);
    if (left > 0) {
        printf("%08X %u\n", event->event_t.dms_event.event_id, event->event_t.dms_event.deviceid);
        left--;
    }
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    struct dcmi_event_filter all = {0};
    void *library = argc == 3 ? dlopen(argv[1], RTLD_LAZY) : NULL;

    if (library == NULL)
        return 2;
    int (*init)(void);
    int (*subscribe)(int, int, struct dcmi_event_filter, void (*)(struct dcmi_event *));
    *(void **)(&init) = dlsym(library, "dcmi_init");
    *(void **)(&subscribe) = dlsym(library, "dcmi_subscribe_fault_event");
    left = atoi(argv[2]);
    if (init() != 0 || subscribe(-1, -1, all, hear) != 0)
        return 3;
    puts("ready");
    fflush(stdout);
    pthread_mutex_lock(&lock);
    while (left > 0)
        pthread_cond_wait(&more, &lock);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
    return 0;
}
