#include "race.h"

#include <pthread.h>
#include <string.h>

void publish_block(void *block, const void *content, size_t size);
void publish_event(unsigned char *base, const struct image_event *event);

static _Atomic int stop;
static unsigned char *shared;
static hbm_getter *get_hbm;
static long reads_each;

/* Every field of the answer has the same value, so that a mixture shows. */
static void write_round(unsigned int round)
{
    static struct image_chip chip;
    struct chip_block *block = (struct chip_block *)(void *)(shared + IMAGE_CHIPS_AT);

    if (round == 0)
        memcpy(&chip, &block->copy[block->sequence & 1], sizeof chip);
    chip.hbm_mb = chip.hbm_used_mb = round;
    chip.hbm_mhz = chip.hbm_bandwidth_pct = round;
    chip.hbm_temp_c = (int)round;
    publish_block(block, &chip, sizeof chip);
}

static void *write_fast(void *unused)
{
    struct image_event event = {.code = 0x80E24E00u, .severity = 2, .assertion = 1};

    (void)unused;
    for (unsigned int round = 1; !stop; round++) {
        write_round(round);
        if (round % 64 == 0)
            publish_event(shared, &event);
    }
    return NULL;
}

static void *read_fast(void *torn)
{
    struct dcmi_hbm_info info;

    for (long round = 0; round < reads_each; round++) {
        if (get_hbm(0, 0, &info) != 0) {
            ++*(long *)torn;
            continue;
        }
        unsigned int first = (unsigned int)info.memory_size;
        if (info.memory_usage != info.memory_size || info.freq != first ||
            info.bandwith_util_rate != first || (unsigned int)info.temp != first)
            ++*(long *)torn;
    }
    return NULL;
}

long race(unsigned char *image, hbm_getter *getter, int readers, long reads)
{
    static long torn[MAX_READERS * 8]; /* a cache line each */
    pthread_t writer, threads[MAX_READERS];
    long sum = 0;

    if (readers < 1 || readers > MAX_READERS)
        return -1;
    shared = image;
    get_hbm = getter;
    reads_each = reads / readers;
    memset(torn, 0, sizeof torn);
    stop = 0;
    write_round(0);
    pthread_create(&writer, NULL, write_fast, NULL);
    for (int i = 0; i < readers; i++)
        pthread_create(&threads[i], NULL, read_fast, &torn[i * 8]);
    for (int i = 0; i < readers; i++) {
        pthread_join(threads[i], NULL);
        sum += torn[i * 8];
    }
    stop = 1;
    pthread_join(writer, NULL);
    return sum;
}
