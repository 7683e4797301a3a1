/*
 * npu-vector-add: the compute workload of the third gate. Opens the card it was given, asks
 * libdcmi.so whether the card is healthy and the driver new enough, and adds two vectors. There is
 * no card to compute on, so the additions are made by the processor, once the card said yes.
 *
 * Messages and exit codes are those of simulator/runtime/workload.py; a test compares them.
 *   NPU_TESTBED_DEV            directory of the device files, /dev by default
 *   NPU_IMAGE_CANN             CANN release of the image
 *   NPU_IMAGE_NEEDS_DRIVER     oldest driver that release works with
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_DEVICES 256
#define LENGTH 4

enum { NO_DEVICE = 10, NOT_GIVEN = 11, NO_LIBRARY = 12, UNHEALTHY = 13, TOO_OLD = 14 };

static const int left[LENGTH] = {1, 2, 3, 4};
static const int right[LENGTH] = {10, 20, 30, 40};

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static int find_devices(const char *directory, int *numbers)
{
    static const char prefix[] = "davinci";
    int count = 0;
    DIR *listing = opendir(directory);

    if (listing == NULL)
        return 0;
    for (struct dirent *entry; (entry = readdir(listing)) != NULL && count < MAX_DEVICES;) {
        const char *digits = entry->d_name + sizeof prefix - 1;
        char *end;
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0 || *digits < '0' ||
            *digits > '9')
            continue;
        long number = strtol(digits, &end, 10);
        if (*end == '\0' && number < INT_MAX)
            numbers[count++] = (int)number;
    }
    closedir(listing);
    qsort(numbers, (size_t)count, sizeof *numbers, by_number);
    return count;
}

static int has(const int *numbers, int count, int wanted)
{
    for (int i = 0; i < count; i++)
        if (numbers[i] == wanted)
            return 1;
    return 0;
}

/* The first three numbers of a dotted version; what follows digits in a part is ignored. */
static void version_numbers(const char *text, long out[3])
{
    for (int part = 0; part < 3; part++) {
        out[part] = strtol(text, NULL, 10);
        const char *dot = strchr(text, '.');
        text = dot == NULL ? "" : dot + 1;
    }
}

static int is_older(const char *version, const char *wanted)
{
    long a[3], b[3];

    version_numbers(version, a);
    version_numbers(wanted, b);
    for (int part = 0; part < 3; part++)
        if (a[part] != b[part])
            return a[part] < b[part];
    return 0;
}

static int can_open(const char *directory, int number)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/davinci%d", directory, number);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 0;
    close(fd);
    return 1;
}

/* 0 when the card answers healthy; says what else it answered. */
static int ask(void *library, int number, char *said, size_t size)
{
    int (*ids)(int *, int *, unsigned int) = (int (*)(int *, int *, unsigned int))dlsym(
        library, "dcmi_get_card_id_device_id_from_phyid");
    int (*get_health)(int, int, unsigned int *) =
        (int (*)(int, int, unsigned int *))dlsym(library, "dcmi_get_device_health");
    int card = 0, device = 0;
    unsigned int health = 0;

    int ret = ids == NULL ? -99998 : ids(&card, &device, (unsigned int)number);
    if (ret == 0)
        ret = get_health == NULL ? -99998 : get_health(card, device, &health);
    if (ret != 0)
        snprintf(said, size, "dcmi_get_device_health returned %d", ret);
    else if (health != 0)
        snprintf(said, size, "health is %u, not 0", health);
    return ret != 0 || health != 0;
}

static void print_list(const int *values)
{
    printf("[%d, %d, %d, %d]", values[0], values[1], values[2], values[3]);
}

int main(int argc, char **argv)
{
    const char *directory = getenv("NPU_TESTBED_DEV");
    const char *cann = getenv("NPU_IMAGE_CANN");
    const char *needs = getenv("NPU_IMAGE_NEEDS_DRIVER");
    int numbers[MAX_DEVICES], number = -1, sum[LENGTH];
    char driver[64] = "", said[96] = "";

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (directory == NULL || directory[0] == '\0')
        directory = "/dev";
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--device") == 0 && number < 0)
            number = atoi(argv[i + 1]);
    int count = find_devices(directory, numbers);
    if (count == 0) {
        printf("npu-vector-add: no device was given to this container: no /dev/davinciN\n");
        return NO_DEVICE;
    }
    if (number < 0)
        number = numbers[0];
    if (!has(numbers, count, number) || !can_open(directory, number)) {
        printf("npu-vector-add: /dev/davinci%d was not given to this container\n", number);
        return NOT_GIVEN;
    }
    printf("devices:");
    for (int i = 0; i < count; i++)
        printf(" /dev/davinci%d", numbers[i]);
    printf("\n");
    void *library = dlopen("libdcmi.so", RTLD_LAZY);
    int (*init)(void) = library == NULL ? NULL : (int (*)(void))dlsym(library, "dcmi_init");
    int (*get_version)(char *, unsigned int) =
        library == NULL ? NULL
                        : (int (*)(char *, unsigned int))dlsym(library, "dcmi_get_driver_version");
    if (init == NULL || get_version == NULL || init() != 0 ||
        get_version(driver, sizeof driver) != 0) {
        printf("npu-vector-add: libdcmi.so cannot be loaded\n");
        return NO_LIBRARY;
    }
    if (needs != NULL && needs[0] != '\0' && is_older(driver, needs)) {
        printf("npu-vector-add: driver %s is too old for CANN %s, which needs %s or newer\n",
               driver, cann == NULL ? "" : cann, needs);
        return TOO_OLD;
    }
    if (ask(library, number, said, sizeof said)) {
        printf("npu-vector-add: card %d is not healthy: %s\n", number, said);
        return UNHEALTHY;
    }
    for (int i = 0; i < LENGTH; i++)
        sum[i] = left[i] + right[i];
    printf("card %d: ", number);
    print_list(left);
    printf(" + ");
    print_list(right);
    printf(" = ");
    print_list(sum);
    printf("\n");
    return 0;
}
