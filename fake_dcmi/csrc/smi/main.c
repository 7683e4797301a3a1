/* npu-smi: arguments, and what the commands have in common. */
#include "smi.h"

#include <stdarg.h>
#include <unistd.h>

#define INSTALL_INFO "/etc/ascend_install.info"

void *smi_library;
enum family smi_family = FAMILY_910;

static void help(void)
{
    puts("Usage: npu-smi {-v|-h|info|set} [options]");
    puts("       -v                                        Show the version");
    puts("       -h                                        Show this help");
    puts("       info                                      Show all cards");
    puts("       info -l                                   List the cards");
    puts("       info -m                                   Map card and chip ids to logic ids");
    puts("       info -t <type> -i <id> [-c <chip>]        Show one kind of information");
    puts("            types: board, health, temp, power, usages, memory, ecc, common,");
    puts("                   product, proc-mem, info-vnpu, vnpu-mode, template-info");
    puts("       info watch [-i <id>] [-c <chip>] [-d <s>] Show readings again and again");
    puts("       set -t reset -i <id> -c <chip> [-m <channel>]");
    puts("       set -t create-vnpu -i <id> -c <chip> -f <template> [-v <vnpu>] [-g <group>]");
    puts("       set -t destroy-vnpu -i <id> -c <chip> -v <vnpu>");
    puts("       set -t vnpu-mode -d <mode>");
}

void smi_line(const char *key, const char *format, ...)
{
    va_list arguments;

    printf("\t%-30s : ", key);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
}

int smi_wrong(const char *text)
{
    puts(text);
    return WRONG_PARAMETER;
}

const char *smi_health_word(unsigned int health)
{
    static const char *const words[] = {"OK", "Warning", "Alarm", "Critical", "UNKNOWN"};

    return health < sizeof words / sizeof *words ? words[health] : NULL;
}

int smi_cards(int *cards, int *count)
{
    if (smi_family == FAMILY_950)
        return CALL(dcmiv2_get_device_list, cards, count, MAX_CARDS);
    return CALL(dcmi_get_card_list, count, cards, MAX_CARDS);
}

int smi_chips(int card)
{
    int chips = 0;

    if (smi_family == FAMILY_950)
        return 1;
    return CALL(dcmi_get_device_num_in_card, card, &chips) == 0 ? chips : 0;
}

bool smi_has_mcu(int card, int *mcu)
{
    int chips, cpu;

    return smi_family != FAMILY_950 &&
           CALL(dcmi_get_device_id_in_card, card, &chips, mcu, &cpu) == 0 && *mcu >= 0;
}

struct chip_view smi_look(int card, int chip)
{
    struct chip_view view = {.card = card, .chip = chip, .phy_code = -1};

    view.info_code = CHIP(dcmi_get_device_chip_info_v2, dcmiv2_get_device_chip_info, card, chip,
                          &view.info);
    view.health_code = CHIP(dcmi_get_device_health, dcmiv2_get_device_health, card, chip,
                            &view.health);
    view.power_code = CHIP(dcmi_get_device_power_info, dcmiv2_get_device_power_info, card, chip,
                           &view.power_dw);
    (void)CHIP(dcmi_get_device_temperature, dcmiv2_get_device_temperature, card, chip,
               &view.temperature);
    (void)CHIP(dcmi_get_device_utilization_rate, dcmiv2_get_device_utilization_rate, card, chip,
               smi_family == FAMILY_950 ? 13 : 2, &view.aicore);
    (void)CHIP(dcmi_get_device_hbm_info, dcmiv2_get_device_hbm_info, card, chip, &view.hbm);
    view.pcie_code = CHIP(dcmi_get_device_pcie_info_v2, dcmiv2_get_device_pcie_info, card, chip,
                          &view.pcie);
    if (smi_family == FAMILY_950) {
        view.logic_id = card;
        view.phy_code = CALL(dcmiv2_get_chip_phy_id_by_dev_id, (unsigned int)card, &view.phy_id);
        return view;
    }
    (void)CALL(dcmi_get_device_memory_info_v3, card, chip, &view.memory);
    if (CALL(dcmi_get_device_logic_id, &view.logic_id, card, chip) == 0)
        view.phy_code = CALL(dcmi_get_device_phyid_from_logicid, (unsigned int)view.logic_id,
                             &view.phy_id);
    return view;
}

static bool starts(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

static enum family find_family(void)
{
    static const unsigned int a3_boards[] = {0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0x81, 0x83, 0xd1, 0xd3};
    int cards[MAX_CARDS], count = 0;
    unsigned int board = 0;

    if (CALL(dcmi_get_card_list, &count, cards, MAX_CARDS) != 0 || count == 0)
        return FAMILY_910;
    struct chip_view first = smi_look(cards[0], 0);
    (void)CALL(dcmi_get_device_board_id, cards[0], 0, &board);
    for (size_t i = 0; i < sizeof a3_boards / sizeof *a3_boards; i++)
        if (board == a3_boards[i])
            return FAMILY_A3;
    return starts((const char *)first.info.chip_name, "310") ? FAMILY_310 : FAMILY_910;
}

/* A number behind an option; false when it is none. */
static bool number(const char *text, int *value)
{
    char *end;
    long long found = strtoll(text, &end, 10);

    if (*text == '\0' || *end != '\0' || found < 0 || found > 0x7fffffff)
        return false;
    *value = (int)found;
    return true;
}

static int parse(int argc, char **argv, int at, struct query *query)
{
    for (; at < argc; at++) {
        const char *option = argv[at];
        if (strcmp(option, "-l") == 0) {
            query->is_list = true;
            continue;
        }
        if (strcmp(option, "-m") == 0 && (at + 1 == argc || argv[at + 1][0] == '-')) {
            query->is_map = true;
            continue;
        }
        if (option[0] != '-' || option[1] == '\0' || option[2] != '\0' ||
            strchr("ticvfdmgs", option[1]) == NULL) {
            puts("Command or option is not found.");
            help();
            return NO_COMMAND;
        }
        if (at + 1 == argc)
            return smi_wrong("The parameter is invalid.");
        const char *value = argv[++at];
        int group;
        bool is_good = true;
        switch (option[1]) {
        case 't':
            query->type = value;
            break;
        case 'f':
            query->template_name = value;
            break;
        case 'i':
            is_good = query->has_card = number(value, &query->card);
            break;
        case 'c':
            is_good = query->has_chip = number(value, &query->chip);
            break;
        case 'v':
            is_good = number(value, &query->vnpu);
            break;
        case 'd':
        case 'm':
            is_good = number(value, &query->mode);
            query->seconds = query->mode;
            break;
        default: /* g, s: accepted, of no effect here */
            is_good = option[1] == 's' || number(value, &group);
        }
        if (!is_good)
            return smi_wrong("The parameter is invalid.");
    }
    return 0;
}

static int open_driver(void)
{
    smi_library = dlopen("libdcmi.so", RTLD_LAZY);
    int code = smi_library == NULL ? MISSING : CALL(dcmi_init);
    if (code == NOT_SUPPORTED) {
        code = CALL(dcmiv2_init);
        if (code == 0)
            smi_family = FAMILY_950;
    }
    if (code == OCCUPIED)
        printf("dcmi model initialized failed, because the device is used. ret is %d\n", code);
    else if (code != 0)
        printf("dcmi module initialize failed. ret is %d\n", code);
    return code;
}

static int run(int argc, char **argv, bool *is_command)
{
    struct query query = {.vnpu = -1, .mode = -1};

    *is_command = false;
    if (argc < 2) {
        help();
        return WRONG_PARAMETER;
    }
    bool is_info = strcmp(argv[1], "info") == 0, is_set = strcmp(argv[1], "set") == 0;
    if (strcmp(argv[1], "-h") == 0 || (is_info && argc == 3 && strcmp(argv[2], "-h") == 0)) {
        help();
        return 0;
    }
    if (!is_info && !is_set && strcmp(argv[1], "-v") != 0) {
        puts("Command or option is not found.");
        help();
        return NO_COMMAND;
    }
    bool is_watch = is_info && argc > 2 && strcmp(argv[2], "watch") == 0;
    int code = parse(argc, argv, is_info || is_set ? (is_watch ? 3 : 2) : argc, &query);
    if (code == 0)
        code = open_driver();
    if (code != 0)
        return code;
    if (strcmp(argv[1], "-v") == 0) {
        char version[TEXT] = "unknown";
        (void)CALL(dcmi_get_driver_version, version, TEXT);
        if (smi_family == FAMILY_950)
            (void)CALL(dcmiv2_get_driver_version, version, TEXT);
        printf("npu-smi version: %s\n", version);
        return 0;
    }
    if (smi_family != FAMILY_950)
        smi_family = find_family();
    *is_command = true;
    if (is_set)
        return smi_set(&query);
    if (is_watch)
        return smi_watch(&query);
    if (query.is_list)
        return smi_list();
    if (query.is_map)
        return smi_map();
    if (query.type != NULL)
        return smi_query(&query);
    if (query.has_card || query.has_chip)
        return smi_wrong("The parameter is invalid.");
    return smi_table();
}

int main(int argc, char **argv)
{
    bool is_command;
    int code = run(argc, argv, &is_command);

    /* A driver's refusal that no command handled itself. */
    if (is_command && code >= -8255 && code <= -8001)
        printf("Failed to execute npu-smi %s. ret is %d.\n", argv[1], code);
    return code & 0xff;
}
