/*
 * npu-smi: `info`, `info -l`, `-v`. Reads through libdcmi.so like any other client and prints the
 * vendor's 99-character layout (hicann/driver:src/custom/dev_prod/user/npucli).
 */
#include "dcmi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CARDS 64
#define MAX_PROCESSES 32
#define SHOWN_PROCESSES 8
#define MISSING (-99998)
#define NO_ARGUMENT (-9001)
#define NO_OPTION (-9005)
#define OCCUPIED (-8020)
#define VERSION_SIZE 64
#define AICORE_TYPE 2

#define LINE "-------------------------------------------------------------------------------------------------"
#define RULE "+---------------------------+---------------+-----------------------------------------------------+"
#define DOUBLE "+===========================+===============+=====================================================+"

static void *library;

/* Call a library function; a missing symbol answers like a failed call. */
#define CALL(name, type, ...)                                          \
    ({                                                                 \
        type name##_call = (type)dlsym(library, #name);                \
        name##_call == NULL ? MISSING : name##_call(__VA_ARGS__);      \
    })

typedef int (*call_none)(void);
typedef int (*call_list)(int *, int *, int);
typedef int (*call_card)(int, int *);
typedef int (*call_version)(char *, unsigned int);
typedef int (*call_int)(int, int, int *);
typedef int (*call_unsigned)(int, int, unsigned int *);
typedef int (*call_utilization)(int, int, int, unsigned int *);
typedef int (*call_chip)(int, int, struct dcmi_chip_info_v2 *);
typedef int (*call_hbm)(int, int, struct dcmi_hbm_info *);
typedef int (*call_pcie)(int, int, struct dcmi_pcie_info_all *);
typedef int (*call_processes)(int, int, struct dcmi_proc_mem_info *, int *);

static void help(void)
{
    puts("Usage: npu-smi {-v|-h|info [-l]}");
    puts("       -v           Show the version");
    puts("       -h           Show this help");
    puts("       info         Show all cards");
    puts("       info -l      List the cards");
}

static const char *health_word(unsigned int health)
{
    static const char *const words[] = {"OK", "Warning", "Alarm", "Critical", "UNKNOWN"};

    return health < 5 ? words[health] : NULL;
}

static void process_name(int pid, char *name, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    snprintf(name, size, "unknown");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return;
    if (fgets(name, (int)size, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static void show_chip(int card, int device)
{
    struct dcmi_chip_info_v2 chip = {0};
    struct dcmi_hbm_info hbm = {0};
    struct dcmi_pcie_info_all pcie = {0};
    unsigned int health = 4, aicore = 0;
    int power = 0, temperature = 0;

    if (CALL(dcmi_get_device_chip_info_v2, call_chip, card, device, &chip) != 0)
        memset(&chip, 0, sizeof chip);
    if (CALL(dcmi_get_device_health, call_unsigned, card, device, &health) != 0)
        health = 4;
    (void)CALL(dcmi_get_device_power_info, call_int, card, device, &power);
    (void)CALL(dcmi_get_device_temperature, call_int, card, device, &temperature);
    (void)CALL(dcmi_get_device_hbm_info, call_hbm, card, device, &hbm);
    (void)CALL(dcmi_get_device_pcie_info_v2, call_pcie, card, device, &pcie);
    (void)CALL(dcmi_get_device_utilization_rate, call_utilization, card, device, AICORE_TYPE,
               &aicore);
    const char *word = health_word(health);
    if (word != NULL)
        printf("| %-5d %-20s| %-13s | %-11.1f %-17d %-6lu/ %-13lu |\n", card, chip.chip_name, word,
               power / 10.0, temperature, 0ul, 0ul);
    printf("| %-26d| %04X:%02X:%02X.%-2X | %-11u %-5d/ %-10llu %-6d/ %-13llu |\n", device,
           (unsigned int)pcie.domain, pcie.bdf_busid, pcie.bdf_deviceid, pcie.bdf_funcid, aicore, 0,
           0ull, (int)hbm.memory_usage, hbm.memory_size);
}

static void show_processes(int card, int devices)
{
    struct dcmi_proc_mem_info processes[MAX_PROCESSES];
    int shown = 0;

    for (int device = 0; device < devices; device++) {
        int count = 0;
        if (CALL(dcmi_get_device_resource_info, call_processes, card, device, processes, &count) !=
            0)
            count = 0;
        for (int i = 0; i < count && i < SHOWN_PROCESSES; i++, shown++) {
            char name[25];
            process_name(processes[i].proc_id, name, sizeof name);
            printf("| %-7d %-18d| %-13d | %-24s | %-24lu |\n", card, device, processes[i].proc_id,
                   name, processes[i].proc_mem_usage / 1048576);
        }
    }
    if (shown == 0)
        printf("| No running processes found in NPU %-7d%55s|\n", card, "");
    puts(DOUBLE);
}

static int card_list(int *cards)
{
    int count = 0;

    if (CALL(dcmi_get_card_list, call_list, &count, cards, MAX_CARDS) != 0) {
        puts("Failed to get card number.");
        return -1;
    }
    return count;
}

static int devices_of(int card)
{
    int devices = 0;

    return CALL(dcmi_get_device_num_in_card, call_card, card, &devices) == 0 ? devices : 0;
}

static int info(void)
{
    int cards[MAX_CARDS], count = card_list(cards);
    char version[VERSION_SIZE] = "";

    if (count < 0)
        return 1;
    (void)CALL(dcmi_get_driver_version, call_version, version, VERSION_SIZE);
    printf("+" LINE "+\n");
    printf("| npu-smi %-24s Version: %-53s |\n", version, version);
    puts(RULE);
    puts("| NPU   Name                | Health        | Power(W)    Temp(C)           "
         "Hugepages-Usage(page) |");
    puts("| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  "
         "HBM-Usage(MB)         |");
    puts(DOUBLE);
    for (int i = 0; i < count; i++) {
        int devices = devices_of(cards[i]);
        for (int device = 0; device < devices; device++) {
            if (device > 0)
                printf("+" LINE "+\n");
            show_chip(cards[i], device);
        }
        puts(DOUBLE);
    }
    puts(RULE);
    puts("| NPU     Chip              | Process id    | Process name             | Process "
         "memory(MB)       |");
    puts(DOUBLE);
    for (int i = 0; i < count; i++)
        show_processes(cards[i], devices_of(cards[i]));
    return 0;
}

static int list(void)
{
    int cards[MAX_CARDS], count = card_list(cards);

    if (count < 0)
        return 1;
    if (count == 0) {
        puts("There is no NPU card on this server.");
        return 0;
    }
    printf("\t%-30s : %d\n\n", "Total Count", count);
    for (int i = 0; i < count; i++) {
        printf("\t%-30s : %d\n", "NPU ID", cards[i]);
        printf("\t%-30s : %d\n\n", "Chip Count", devices_of(cards[i]));
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help();
        return NO_ARGUMENT & 0xff;
    }
    if (strcmp(argv[1], "-h") == 0) {
        help();
        return 0;
    }
    int is_info = strcmp(argv[1], "info") == 0;
    int is_list = is_info && argc == 3 && strcmp(argv[2], "-l") == 0;
    if (is_info && argc == 3 && strcmp(argv[2], "-h") == 0) {
        help();
        return 0;
    }
    if (strcmp(argv[1], "-v") != 0 && !(is_info && (argc == 2 || is_list))) {
        puts("Command or option is not found.");
        help();
        return NO_OPTION & 0xff;
    }
    library = dlopen("libdcmi.so", RTLD_LAZY | RTLD_GLOBAL);
    if (library == NULL) {
        fprintf(stderr, "npu-smi: error while loading shared libraries: %s\n", dlerror());
        return 127;
    }
    int ret = CALL(dcmi_init, call_none);
    if (ret != 0) {
        if (ret == OCCUPIED)
            printf("dcmi model initialized failed, because the device is used. ret is %d\n", ret);
        else
            printf("dcmi module initialize failed. ret is %d\n", ret);
        return ret & 0xff;
    }
    if (!is_info) {
        char version[VERSION_SIZE] = "";
        (void)CALL(dcmi_get_driver_version, call_version, version, VERSION_SIZE);
        printf("npu-smi version: %s\n", version);
        return 0;
    }
    return is_list ? list() : info();
}
