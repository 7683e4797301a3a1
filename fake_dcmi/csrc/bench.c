/*
 * Timings of a management library from C, the same way for ours and for a peer's:
 *   dcmi-bench LIBRARY ADAPTER CALLS       getter latencies, load and init, memory, threads
 *   dcmi-bench race LIBRARY READERS READS  torn answers while a writer is at it (ours only)
 * An adapter says how a library is opened and how one cheap getter is called. Prints one line of
 * JSON; nanoseconds unless the name says otherwise.
 */
#include "race.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

enum shape { CARD_CHIP_OUT, HANDLE_OUT, INDEX_OUT };

static const struct adapter {
    const char *name;
    const char *init;
    const char *open; /* index -> handle, where a library has handles */
    const char *getter;
    enum shape shape;
} adapters[] = {
    {"dcmi", "dcmi_init", NULL, "dcmi_get_device_health", CARD_CHIP_OUT},
    {"dcmi-power", "dcmi_init", NULL, "dcmi_get_device_power_info", CARD_CHIP_OUT},
    {"dcmi-hbm", "dcmi_init", NULL, "dcmi_get_device_hbm_info", CARD_CHIP_OUT},
    {"dcmi-list", "dcmi_init", NULL, "dcmi_get_device_errorcode_v2", CARD_CHIP_OUT},
    {"nvml", "nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPowerUsage", HANDLE_OUT},
    {"rsmi", "rsmi_init", NULL, "rsmi_dev_busy_percent_get", INDEX_OUT},
};

typedef int open_call(unsigned long long);
typedef int handle_call(unsigned int, void **);
typedef int card_call(int, int, void *, void *, unsigned int);
typedef int handle_getter(void *, void *);
typedef int index_getter(unsigned int, void *);

static unsigned char room[4096], other[4096];

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
    unsigned int core;
    return __rdtscp(&core);
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* How long a tick is, over a tenth of a second. */
static double ns_per_tick(void)
{
    double start = now_ns();
    uint64_t from = ticks();

    while (now_ns() - start < 1e8)
        ;
    return (now_ns() - start) / (double)(ticks() - from);
}

static const struct adapter *adapter;
static void *getter, *handle;

static inline int get(unsigned int index)
{
    switch (adapter->shape) {
    case CARD_CHIP_OUT:
        if (adapter->getter[sizeof "dcmi_get_device_" - 1] == 'e') /* errorcode_v2 */
            return ((card_call *)getter)((int)(index & 7u), 0, room, other, 128);
        return ((card_call *)getter)((int)(index & 7u), 0, room, NULL, 0);
    case HANDLE_OUT:
        return ((handle_getter *)getter)(handle, room);
    default:
        return ((index_getter *)getter)(0, room);
    }
}

static int start(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);

    if (library == NULL) {
        fprintf(stderr, "dcmi-bench: %s\n", dlerror());
        return -1;
    }
    open_call *init = (open_call *)dlsym(library, adapter->init);
    getter = dlsym(library, adapter->getter);
    if (init == NULL || getter == NULL) {
        fprintf(stderr, "dcmi-bench: %s has no %s\n", path, init ? adapter->getter : adapter->init);
        return -1;
    }
    int code = init(0);
    if (code != 0)
        return code;
    if (adapter->open != NULL) {
        handle_call *find = (handle_call *)dlsym(library, adapter->open);
        return find == NULL ? -1 : find(0, &handle);
    }
    return 0;
}

#define MAX_MAPPED 256

/* Memory of the files that are mapped now and were not when `known` was filled, in kB. */
static long resident_kb(char known[MAX_MAPPED][256], int *known_count, int is_first)
{
    char line[512], path[256] = "";
    long sum = 0, kb;
    FILE *file = fopen("/proc/self/smaps", "r");

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strstr(line, "-") != NULL && strchr(line, '/') != NULL && strncmp(line, "Rss:", 4) != 0) {
            snprintf(path, sizeof path, "%s", strchr(line, '/'));
            continue;
        }
        if (sscanf(line, "%*x-%*x %*s %*s %*s %ld", &kb) == 1) {
            path[0] = '\0'; /* memory of no file */
            continue;
        }
        if (sscanf(line, "Rss: %ld", &kb) != 1 || path[0] == '\0')
            continue;
        int is_known = 0;
        for (int i = 0; i < *known_count; i++)
            is_known |= strcmp(known[i], path) == 0;
        if (is_first && !is_known && *known_count < MAX_MAPPED)
            strcpy(known[(*known_count)++], path);
        if (!is_first && !is_known)
            sum += kb;
    }
    if (file != NULL)
        fclose(file);
    return sum;
}

static int threads(void)
{
    int count = -2; /* . and .. */
    DIR *tasks = opendir("/proc/self/task");

    while (tasks != NULL && readdir(tasks) != NULL)
        count++;
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

/* Load and init in a process that has not done it before, in nanoseconds. */
static double fresh_start(const char *path)
{
    double took = 0;
    int ends[2];

    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        double from = now_ns();
        int code = start(path);
        took = code == 0 ? now_ns() - from : -1;
        _exit(write(ends[1], &took, sizeof took) == (ssize_t)sizeof took ? 0 : 1);
    }
    if (read(ends[0], &took, sizeof took) != (ssize_t)sizeof took)
        took = -1;
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    return took;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static double at_share(const uint32_t *sorted, long count, double share, double scale,
                       uint32_t overhead)
{
    uint32_t raw = sorted[(long)((double)(count - 1) * share)];

    return (raw > overhead ? raw - overhead : 0) * scale;
}

static int run_race(const char *path, int readers, long reads)
{
    struct stat facts;
    int fd = open(getenv("NPU_TESTBED_IMAGE"), O_RDWR);

    adapter = &adapters[0];
    if (fd < 0 || fstat(fd, &facts) != 0 || start(path) != 0)
        return 3;
    unsigned char *image =
        mmap(NULL, (size_t)facts.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    hbm_getter *get_hbm;
    *(void **)(&get_hbm) = dlsym(RTLD_DEFAULT, "dcmi_get_device_hbm_info");
    if (image == MAP_FAILED || get_hbm == NULL)
        return 3;
    double from = now_ns();
    long torn = race(image, get_hbm, readers, reads);
    printf("{\"readers\": %d, \"reads\": %ld, \"torn\": %ld, \"seconds\": %.4f}\n", readers, reads,
           torn, (now_ns() - from) / 1e9);
    return torn != 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "race") == 0)
        return run_race(argv[2], atoi(argv[3]), atol(argv[4]));
    long calls = argc == 4 ? atol(argv[3]) : 0;

    for (size_t i = 0; argc == 4 && i < sizeof adapters / sizeof *adapters; i++)
        if (strcmp(adapters[i].name, argv[2]) == 0)
            adapter = &adapters[i];
    if (calls < 1000 || adapter == NULL) {
        fprintf(stderr, "usage: dcmi-bench LIBRARY {dcmi|dcmi-power|dcmi-hbm|dcmi-list|nvml|rsmi} "
                        "CALLS (1000 or more)\n");
        return 2;
    }
    double load = fresh_start(argv[1]);
    static char known[MAX_MAPPED][256];
    int known_count = 0;
    (void)resident_kb(known, &known_count, 1);
    if (start(argv[1]) != 0) {
        fprintf(stderr, "dcmi-bench: %s does not start\n", argv[1]);
        return 3;
    }
    (void)get(0);
    long grown = resident_kb(known, &known_count, 0);
    uint32_t *took = malloc((size_t)calls * sizeof *took);
    double scale = ns_per_tick();
    uint32_t overhead = UINT32_MAX;
    for (int i = 0; i < 10000; i++) {
        uint64_t from = ticks();
        uint64_t passed = ticks() - from;
        if (passed < overhead)
            overhead = (uint32_t)passed;
    }
    for (long i = 0; i < calls / 10; i++)
        (void)get((unsigned int)i);
    int failed = 0;
    for (long i = 0; i < calls; i++) {
        uint64_t from = ticks();
        int code = get((unsigned int)i);
        took[i] = (uint32_t)(ticks() - from);
        failed += code != 0;
    }
    double from = now_ns();
    for (long i = 0; i < calls; i++)
        (void)get((unsigned int)i);
    double each = (now_ns() - from) / (double)calls;
    qsort(took, (size_t)calls, sizeof *took, by_size);
    printf("{\"getter\": \"%s\", \"calls\": %ld, \"failed\": %d, \"mean\": %.1f, \"p50\": %.1f, "
           "\"p99\": %.1f, \"p999\": %.1f, \"load_init_us\": %.1f, \"resident_kb\": %ld, "
           "\"threads\": %d}\n",
           adapter->getter, calls, failed, each, at_share(took, calls, 0.5, scale, overhead),
           at_share(took, calls, 0.99, scale, overhead),
           at_share(took, calls, 0.999, scale, overhead), load / 1000, grown, threads());
    return 0;
}
