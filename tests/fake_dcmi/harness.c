/*
 * Calls every function of the library with arguments made of bytes, on whole and on damaged images.
 * As a fuzz target (-DFUZZ) the fuzzer brings the bytes; else `main` makes them from a seed:
 *   harness IMAGE SEED ROUNDS        damage the image, call, repair; again and again
 *   harness IMAGE race<READERS> READS  readers at full speed against one writer, no damage
 * IMAGE is a copy of a whole image that may be written to.
 */
#include "dcmi.h"
#include "image_layout.h"
#include "race.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM 90000
#define MAX_DAMAGE 64

struct bytes {
    const unsigned char *data;
    size_t left;
};

static unsigned int take(struct bytes *from)
{
    if (from->left == 0)
        return 0;
    from->left--;
    return *from->data++;
}

static long long pick(struct bytes *from)
{
    static const long long known[] = {0, 0, 0, 1, 2, 3, 5, 7, 8, 12, 16, 52, 56, 63, 64, 100, 128,
                                      255, 256, 1000, -1, -2, 65536, 2147483647, -2147483647 - 1};
    unsigned int at = take(from);

    if (at >= 200)
        return (long long)(take(from) | take(from) << 8 | take(from) << 16 | take(from) << 24);
    return known[at % (sizeof known / sizeof *known)];
}

static void hear(struct dcmi_event *event)
{
    (void)event;
}

static void *pointer(struct bytes *from, unsigned char *room)
{
    return take(from) == 77 ? NULL : room;
}

/* Generated: call function number `which` with arguments out of `from`. */
static int call_function(unsigned int which, struct bytes *from, unsigned char *room);
#include "exercise.inc"

static unsigned char *image;
static size_t image_bytes;
static unsigned char *pristine;

static void open_copy(const char *path)
{
    struct stat facts;
    int fd = open(path, O_RDWR);

    if (fd < 0 || fstat(fd, &facts) != 0)
        exit(90);
    image_bytes = (size_t)facts.st_size;
    image = mmap(NULL, image_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (image == MAP_FAILED)
        exit(91);
    close(fd);
    pristine = malloc(image_bytes);
    memcpy(pristine, image, image_bytes);
    setenv("NPU_TESTBED_IMAGE", path, 1);
}

static void one_round(const unsigned char *data, size_t size)
{
    static unsigned char room[ROOM];
    struct bytes from = {data, size};
    size_t places[MAX_DAMAGE];
    unsigned int damages = take(&from) % (MAX_DAMAGE + 1);

    dcmi_init();
    for (unsigned int i = 0; i < damages; i++) {
        size_t at = (take(&from) | take(&from) << 8 | take(&from) << 16) % image_bytes;
        if (take(&from) & 1) /* near the head, where a byte does most harm */
            at %= 4096;
        places[i] = at;
        /* Never a state that waits on purpose. */
        if (at >= IMAGE_SCRIPT_AT && at < IMAGE_EVENTS_AT)
            places[i] = at = IMAGE_CHIPS_AT;
        image[at] = (unsigned char)take(&from);
    }
    dcmi_init();
    dcmiv2_init();
    while (from.left > 0) {
        unsigned int which = (take(&from) | take(&from) << 8) % 327;
        int code = call_function(which, &from, room);
        if (code > 0)
            abort(); /* no function answers a positive code */
    }
    for (unsigned int i = 0; i < damages; i++)
        image[places[i]] = pristine[places[i]];
}

#ifdef FUZZ
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    open_copy(getenv("HARNESS_IMAGE"));
    return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    one_round(data, size);
    return 0;
}
#else

static unsigned long long state = 88172645463325252ull;

static unsigned char random_byte(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned char)(state >> 24);
}

static int random_rounds(unsigned long long seed, long rounds)
{
    unsigned char data[600];

    state += seed * 0x9E3779B97F4A7C15ull;
    for (long round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof data; i++)
            data[i] = random_byte();
        one_round(data, sizeof data);
    }
    return 0;
}

static int race_on_image(int readers, long reads)
{
    struct dcmi_event_filter all = {0};

    if (dcmi_init() != 0)
        return 92;
    dcmi_subscribe_fault_event(-1, -1, all, hear);
    long torn = race(image, dcmi_get_device_hbm_info, readers, reads);
    printf("%ld torn\n", torn);
    return torn != 0;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 93;
    open_copy(argv[1]);
    if (strncmp(argv[2], "race", 4) == 0)
        return race_on_image(atoi(argv[2] + 4), atol(argv[3]));
    return random_rounds(strtoull(argv[2], NULL, 10), atol(argv[3]));
}
#endif
