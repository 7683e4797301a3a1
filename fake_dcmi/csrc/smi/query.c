/* npu-smi info -t <type>, info watch: one kind of information of a card or a chip. */
#include "smi.h"
#include "templates.h"

#include <unistd.h>

#define DIE_VDIE 1
#define DIE_NDIE 0
#define ECC_HBM 2

typedef void show_chip(int card, int chip);

static void number_or_na(const char *key, int code, long long value)
{
    if (code == 0)
        smi_line(key, "%lld", value);
    else
        smi_line(key, "NA");
}

static int use_of(int card, int chip, int type, unsigned int *value)
{
    *value = 0;
    return CHIP(dcmi_get_device_utilization_rate, dcmiv2_get_device_utilization_rate, card, chip,
                type, value);
}

static void use_line(const char *key, int card, int chip, int type)
{
    unsigned int value;
    int code = use_of(card, chip, type, &value);

    number_or_na(key, code, value);
}

/* ---- types that look alike for a card and a chip */

static void show_temp(int card, int chip)
{
    int value = 0;
    int code = CHIP(dcmi_get_device_temperature, dcmiv2_get_device_temperature, card, chip, &value);

    number_or_na(smi_family == FAMILY_310 ? "Temperature (C)" : "NPU Temperature (C)", code, value);
}

static void show_power(int card, int chip)
{
    int value = 0;
    int code = CHIP(dcmi_get_device_power_info, dcmiv2_get_device_power_info, card, chip, &value);

    if (code == 0)
        smi_line("NPU Real-time Power(W)", "%.1f", value / 10.0);
    else
        smi_line("NPU Real-time Power(W)", "NA");
}

static struct dcmi_hbm_info hbm_of(int card, int chip, int *code)
{
    struct dcmi_hbm_info hbm = {0};

    *code = CHIP(dcmi_get_device_hbm_info, dcmiv2_get_device_hbm_info, card, chip, &hbm);
    return hbm;
}

static struct dcmi_get_memory_info_stru ddr_of(int card, int chip)
{
    struct dcmi_get_memory_info_stru memory = {0};

    if (smi_family != FAMILY_950)
        (void)CALL(dcmi_get_device_memory_info_v3, card, chip, &memory);
    return memory;
}

static long long hugepage_share(const struct dcmi_get_memory_info_stru *memory)
{
    if (memory->hugepages_total == 0)
        return 0;
    return (long long)((memory->hugepages_total - memory->hugepages_free) * 100 /
                       memory->hugepages_total);
}

static void show_usages(int card, int chip)
{
    int code;
    struct dcmi_get_memory_info_stru memory = ddr_of(card, chip);
    struct dcmi_hbm_info hbm = hbm_of(card, chip, &code);

    smi_line("DDR Capacity(MB)", "%llu", memory.memory_size);
    smi_line("DDR Usage Rate(%)", "%u", memory.utiliza);
    smi_line("DDR Hugepages Total(page)", "%lu", memory.hugepages_total);
    smi_line("DDR Hugepages Usage Rate(%)", "%lld", hugepage_share(&memory));
    if (smi_family != FAMILY_310) {
        number_or_na("HBM Capacity(MB)", code, (long long)hbm.memory_size);
        use_line("HBM Usage Rate(%)", card, chip, 6);
    }
    use_line("Aicore Usage Rate(%)", card, chip, 2);
    if (smi_family != FAMILY_310)
        use_line("Aivector Usage Rate(%)", card, chip, 12);
    use_line("Aicpu Usage Rate(%)", card, chip, 3);
    use_line("Ctrlcpu Usage Rate(%)", card, chip, 4);
    smi_line("DDR Bandwidth Usage Rate(%)", "0");
    if (smi_family != FAMILY_310) {
        use_line("HBM Bandwidth Usage Rate(%)", card, chip, 10);
        use_line("NPU Utilization(%)", card, chip, 13);
        use_line("Aicube Usage Rate(%)", card, chip, 14);
    }
}

static void show_memory(int card, int chip)
{
    int code;
    struct dcmi_get_memory_info_stru memory = ddr_of(card, chip);
    struct dcmi_hbm_info hbm = hbm_of(card, chip, &code);
    struct dcmi_hbm_product_info maker = {0};

    smi_line("DDR Capacity(MB)", "%llu", memory.memory_size);
    smi_line("DDR Clock Speed(MHz)", "%u", memory.freq);
    if (smi_family == FAMILY_310)
        return;
    number_or_na("HBM Capacity(MB)", code, (long long)hbm.memory_size);
    number_or_na("HBM Clock Speed(MHz)", code, hbm.freq);
    number_or_na("HBM Temperature(C)", code, hbm.temp);
    if (CHIP(dcmi_get_device_hbm_product_info, dcmiv2_get_device_hbm_product_info, card, chip,
             &maker) == 0)
        smi_line("HBM Manufacturer ID", "0x%X", maker.manufacturer_id);
    else
        smi_line("HBM Manufacturer ID", "NA");
}

static void show_ecc(int card, int chip)
{
    static const char *const names[] = {"Single Bit Error Count", "Double Bit Error Count",
                                        "Single Bit Aggregate Total Err Cnt",
                                        "Double Bit Aggregate Total Err Cnt",
                                        "Single Bit Isolated Pages Count",
                                        "Double Bit Isolated Pages Count"};
    struct dcmi_ecc_info info = {0};
    const char *memory = smi_family == FAMILY_310 ? "DDR" : "HBM";
    int type = smi_family == FAMILY_310 ? 0 : ECC_HBM;
    int code = CHIP(dcmi_get_device_ecc_info, dcmiv2_get_device_ecc_info, card, chip, type, &info);
    const unsigned int counts[] = {info.single_bit_error_cnt,          info.double_bit_error_cnt,
                                   info.total_single_bit_error_cnt,    info.total_double_bit_error_cnt,
                                   info.single_bit_isolated_pages_cnt, info.double_bit_isolated_pages_cnt};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char key[TEXT];
        snprintf(key, sizeof key, "%s %s", memory, names[i]);
        if (code == 0)
            printf("\t%-40s : %u\n", key, counts[i]);
        else
            printf("\t%-40s : NA\n", key);
    }
}

static void show_common(int card, int chip)
{
    struct dcmi_aicore_info cores = {0};
    struct dcmi_chip_info_v2 info = {0};
    struct dcmi_get_memory_info_stru memory = ddr_of(card, chip);
    int code;

    smi_line("Memory Usage Rate(%)", "%u", memory.utiliza);
    if (smi_family != FAMILY_310)
        use_line("HBM Usage Rate(%)", card, chip, 6);
    use_line("Aicore Usage Rate(%)", card, chip, 2);
    code = CHIP(dcmi_get_device_aicore_info, dcmiv2_get_device_aicore_info, card, chip, &cores);
    number_or_na("Aicore Freq(MHZ)", code, cores.freq);
    number_or_na("Aicore curFreq(MHZ)", code, cores.cur_freq);
    code = CHIP(dcmi_get_device_chip_info_v2, dcmiv2_get_device_chip_info, card, chip, &info);
    number_or_na("Aicore Count", code, info.aicore_cnt);
    int temperature = 0;
    code = CHIP(dcmi_get_device_temperature, dcmiv2_get_device_temperature, card, chip,
                &temperature);
    number_or_na("Temperature(C)", code, temperature);
    show_power(card, chip);
}

static void show_processes(int card, int chip)
{
    struct dcmi_proc_mem_info found[2 * MAX_PROCESSES];
    int count = 0;

    if (CHIP(dcmi_get_device_resource_info, dcmiv2_get_device_proc_mem_info, card, chip, found,
             &count) != 0) {
        smi_line("Process", "NA");
        return;
    }
    for (int i = 0; i < count; i++) {
        smi_line("Process id", "%d", found[i].proc_id);
        smi_line("Process memory(MB)", "%lu", found[i].proc_mem_usage / 1048576);
    }
}

/* ---- health */

static int codes_of(int card, int chip, unsigned int *codes)
{
    int count = 0;

    if (CHIP(dcmi_get_device_errorcode_v2, dcmiv2_get_device_error_code_list, card, chip, &count,
             codes, MAX_CODES) != 0)
        return 0;
    return count;
}

/* A state that is not OK with an empty list of codes is shown as OK. */
static const char *health_of(int card, int chip, int code_count)
{
    unsigned int health = 4;
    int code = CHIP(dcmi_get_device_health, dcmiv2_get_device_health, card, chip, &health);

    if (code != 0)
        return "UNKNOWN";
    if (code_count == 0 && health < 4)
        return "OK";
    const char *word = smi_health_word(health);
    return word == NULL ? "UNKNOWN" : word;
}

static void show_health_of_card(int card, int chip)
{
    unsigned int codes[MAX_CODES];

    smi_line("Health", "%s", health_of(card, chip, codes_of(card, chip, codes)));
}

static void show_health_of_chip(int card, int chip)
{
    unsigned int codes[MAX_CODES];
    char text[MAX_CODES * 9 + 1] = "NA";
    int count = codes_of(card, chip, codes);

    smi_line("NPU ID", "%d", card);
    smi_line("Chip ID", "%d", chip);
    smi_line("Health Status", "%s", health_of(card, chip, count));
    size_t at = 0;
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%04X", i ? " " : "", codes[i]);
    smi_line("Error Code", "%s", text);
    if (count == 0)
        smi_line("Error Information", "NA");
    for (int i = 0; i < count; i++) {
        unsigned char words[256] = "";
        if (CHIP(dcmi_get_device_errorcode_string, dcmiv2_get_device_error_info, card, chip,
                 codes[i], words, (int)sizeof words) != 0)
            snprintf((char *)words, sizeof words, "%u", codes[i]);
        smi_line(i == 0 ? "Error Information" : "", "%s", words);
    }
}

/* ---- board */

static void pcie_lines(const struct dcmi_pcie_info_all *pcie, int code)
{
    if (code == 0)
        smi_line("PCIe Bus Info", "%04X:%02X:%02X.%X", (unsigned)pcie->domain, pcie->bdf_busid,
                 pcie->bdf_deviceid, pcie->bdf_funcid);
    else
        smi_line("PCIe Bus Info", "NA");
}

static void hex_or_na(const char *key, int code, unsigned int value, int digits)
{
    if (code == 0 && value != 0)
        smi_line(key, "0x%0*x", digits, value);
    else
        smi_line(key, "NA");
}

static void id_line(const char *key, int code, unsigned int value)
{
    if (code == 0)
        smi_line(key, "0x%04X", value);
    else
        smi_line(key, "NA");
}

static void compatibility_line(int card)
{
    static const char *const words[] = {"NOT SUPPORT", "OK", "NOK", "UNKNOWN"};
    int value = 0;
    int code = CHIP(dcmi_get_device_compatibility, dcmiv2_get_device_compatibility, card, 0, &value);

    smi_line("Compatibility", "%s", words[code == 0 && value > 0 && value < 4 ? value : 0]);
}

static void show_board_of_card(int card)
{
    struct dcmi_elabel_info label = {0};
    struct dcmi_board_info board = {0};
    struct dcmi_pcie_info_all pcie = {0};
    char driver[TEXT] = "NA", firmware[TEXT] = "NA";
    unsigned int mainboard = 0;
    int length = 0;

    if (smi_family == FAMILY_950)
        (void)CALL(dcmiv2_get_device_elabel_info, card, &label);
    else
        (void)CALL(dcmi_get_card_elabel_v2, card, &label);
    if (smi_family == FAMILY_950)
        (void)CALL(dcmiv2_get_driver_version, driver, TEXT);
    else
        (void)CALL(dcmi_get_driver_version, driver, TEXT);
    if (smi_family != FAMILY_950)
        (void)CALL(dcmi_get_version, card, 0, firmware, TEXT, &length);
    int board_code = CHIP(dcmi_get_device_board_info, dcmiv2_get_device_board_info, card, 0, &board);
    int pcie_code = CHIP(dcmi_get_device_pcie_info_v2, dcmiv2_get_device_pcie_info, card, 0, &pcie);

    smi_line("NPU ID", "%d", card);
    smi_line("Product Name", "%s", label.product_name);
    smi_line("Model", "%s", label.model);
    smi_line("Manufacturer", "%s", label.manufacturer);
    smi_line("Serial Number", "%s", label.serial_number);
    smi_line("Software Version", "%s", driver);
    smi_line("Firmware Version", "%s", firmware);
    compatibility_line(card);
    hex_or_na("Board ID", board_code, board.board_id, 2);
    if (smi_family == FAMILY_A3 || smi_family == FAMILY_950) {
        int code = CHIP(dcmi_get_mainboard_id, dcmiv2_get_mainboard_id, card, 0, &mainboard);
        hex_or_na("Main Board ID", code, mainboard, 2);
    }
    if (board_code == 0 && board.pcb_id > 0 && board.pcb_id <= 26)
        smi_line("PCB ID", "%c", (char)('A' + board.pcb_id - 1));
    else
        smi_line("PCB ID", "NA");
    if (board.bom_id != 0)
        smi_line("BOM ID", "%u", board.bom_id);
    else
        smi_line("BOM ID", "NA");
    pcie_lines(&pcie, pcie_code);
    smi_line("Slot ID", "%u", board.slot_id);
    smi_line("Class ID", "NA");
    id_line("PCI Vendor ID", pcie_code, pcie.venderid);
    id_line("PCI Device ID", pcie_code, pcie.deviceid);
    id_line("Subsystem Vendor ID", pcie_code, pcie.subvenderid);
    id_line("Subsystem Device ID", pcie_code, pcie.subdeviceid);
    smi_line("Chip Count", "%d", smi_chips(card));
}

static void die_line(const char *key, int card, int chip, int type)
{
    struct dcmi_die_id die;
    int code = CHIP(dcmi_get_device_die_v2, dcmiv2_get_device_die_id, card, chip, type, &die);

    if (code == 0)
        smi_line(key, "%08X %08X %08X %08X %08X", die.soc_die[0], die.soc_die[1], die.soc_die[2],
                 die.soc_die[3], die.soc_die[4]);
    else
        smi_line(key, "NA");
}

static void show_board_of_chip(int card, int chip)
{
    struct chip_view view = smi_look(card, chip);
    struct dcmi_board_info board = {0};
    char firmware[TEXT] = "NA";
    int length = 0, position = 0;

    (void)CHIP(dcmi_get_device_board_info, dcmiv2_get_device_board_info, card, chip, &board);
    if (smi_family != FAMILY_950) {
        (void)CALL(dcmi_get_version, card, chip, firmware, TEXT, &length);
        (void)CALL(dcmi_get_device_chip_slot, card, chip, &position);
    }
    smi_line("NPU ID", "%d", card);
    if (smi_family == FAMILY_A3)
        smi_line("NPU Name", "%s", view.info.npu_name);
    smi_line("Chip ID", "%d", chip);
    smi_line("Chip Type", "%s", view.info.chip_type);
    smi_line("Chip Name", "%s", view.info.chip_name);
    smi_line("Chip Version", "%s", view.info.chip_ver);
    hex_or_na("Board ID", 0, board.board_id, 2);
    smi_line("PCB ID", "NA");
    if (board.bom_id != 0)
        smi_line("BOM ID", "%u", board.bom_id);
    else
        smi_line("BOM ID", "NA");
    die_line("VDie ID", card, chip, DIE_VDIE);
    die_line("NDie ID", card, chip, DIE_NDIE);
    smi_line("Chip Position ID", "%d", position);
    pcie_lines(&view.pcie, view.pcie_code);
    smi_line("Firmware Version", "%s", firmware);
}

/* ---- vNPU */

static void show_vnpu(int card, int chip)
{
    struct dcmi_soc_total_resource total = {0};
    struct dcmi_soc_free_resource free_part = {0};
    unsigned int size = sizeof total;
    char cores[40], memory[48], cpus[32];

    if (CHIP(dcmi_get_device_info, dcmiv2_get_device_info, card, chip, 52, 1, &total, &size) != 0) {
        puts("This device does not support querying vnpu.");
        return;
    }
    size = sizeof free_part;
    (void)CHIP(dcmi_get_device_info, dcmiv2_get_device_info, card, chip, 52, 2, &free_part, &size);
    snprintf(cores, sizeof cores, "%g/%g", (double)free_part.computing.aic,
             (double)total.computing.aic);
    snprintf(memory, sizeof memory, "%llu/%llu", free_part.computing.memory_size / 1024,
             total.computing.memory_size / 1024);
    snprintf(cpus, sizeof cpus, "%u/%u", free_part.computing.device_aicpu,
             total.computing.device_aicpu);
    const char *line =
        "+-------------------------------------------------------------------------------+";
    puts(line);
    puts("| NPU resource static info as follow:                                           |");
    puts("| Format:Free/Total                   NA: Currently, query is not supported.    |");
    puts("| AICORE    Memory    AICPU    VPC    VENC    VDEC    JPEGD    JPEGE    PNGD    |");
    puts("|            GB                                                                 |");
    puts("|===============================================================================|");
    printf("| %-9s %-9s %-8s %-6s %-7s %-7s %-8s %-8s %-8s|\n", cores, memory, cpus, "NA", "NA",
           "NA", "NA", "NA", "NA");
    puts(line);
    printf("| Total number of vnpu: %-2u                                                      |\n",
           total.vdev_num);
    puts(line);
    if (total.vdev_num == 0)
        return;
    puts("|  Vnpu ID  |  Vgroup ID     |  Container ID  |  Status  |  Template Name       |");
    for (unsigned int i = 0; i < total.vdev_num && i < 32; i++) {
        struct dcmi_vdev_query_stru one = {.vdev_id = total.vdev_id[i]};
        char container[24];
        size = sizeof one;
        if (CHIP(dcmi_get_device_info, dcmiv2_get_device_info, card, chip, 52, 0, &one, &size) != 0)
            continue;
        if (one.query_info.is_container_used)
            snprintf(container, sizeof container, "%012llx",
                     one.query_info.container_id & 0xffffffffffffULL);
        else
            snprintf(container, sizeof container, "ffffffffffff");
        puts(line);
        printf("|  %-4u     |  %-12u  |  %-12s  |  %-2u      |  %-15s     |\n", one.vdev_id,
               one.query_info.vfg_id, container, one.query_info.status, one.query_info.name);
    }
    puts(line);
}

static int show_vnpu_mode(void)
{
    int mode = 0;
    int code = CALL(dcmi_get_vdevice_mode, &mode);

    if (code != 0)
        return code;
    smi_line("vnpu-mode", "%s", mode == 0 ? "docker" : "vm");
    return 0;
}

static int show_templates(int card)
{
    struct chip_view view = smi_look(card, 0);
    const char *line =
        "+------------------------------------------------------------------------------------------+";

    puts(line);
    puts("|NPU instance template info is:                                                            |");
    puts("|Name                AICORE    Memory    AICPU     VPC            VENC           JPEGD     |");
    puts("|                               GB                 PNGD           VDEC           JPEGE     |");
    puts("|==========================================================================================|");
    for (size_t i = 0; i < sizeof vnpu_templates / sizeof *vnpu_templates; i++) {
        const struct vnpu_template *one = &vnpu_templates[i];
        if (strcmp(one->chip, (const char *)view.info.chip_name) != 0)
            continue;
        printf("|%-19s %-9u %-9u %-9g %-14d %-14d %-10d|\n", one->name, one->cores, one->memory_gb,
               (double)one->cpus, one->media, one->media / 2, one->media);
        printf("|%-49s %-14g %-14d %-10d|\n", " ", (double)one->media, one->media, one->media);
        puts(line);
    }
    return 0;
}

/* ---- the command */

static const struct type {
    const char *name;
    show_chip *chip; /* per chip, for a card and for one chip */
    bool has_head;   /* a card's answer starts with its id and its number of chips */
    bool has_mcu;    /* and ends with the controller's */
} types[] = {
    {"health", show_health_of_card, true, false}, {"temp", show_temp, true, true},
    {"power", show_power, true, false},           {"usages", show_usages, true, false},
    {"memory", show_memory, true, false},         {"ecc", show_ecc, true, false},
    {"common", show_common, true, false},         {"proc-mem", show_processes, true, false},
};

static void show_mcu(const struct query *query, const struct type *type)
{
    int mcu, value = 0;

    if (!type->has_mcu || !smi_has_mcu(query->card, &mcu))
        return;
    int code = CALL(dcmi_get_device_temperature, query->card, mcu, &value);
    if (code != 0) {
        printf("\tFailed to query mcu chip: %d info.\n", mcu);
        return;
    }
    if (value == 0x7fff)
        printf("\t%-8s%-22s : Failed\n", "", "MCU Temperature (C)");
    else if (value == 0x7ffd)
        printf("\t%-8s%-22s : NA\n", "", "MCU Temperature (C)");
    else
        printf("\t%-8s%-22s : %d\n", "", "MCU Temperature (C)", value);
    smi_line("Chip Name", "MCU");
}

static bool exists(int card, int chip)
{
    int type = 0;

    return CHIP(dcmi_get_device_type, dcmiv2_get_device_type, card, chip, &type) == 0 && type == 0;
}

static int show_whole_card(const struct query *query, const struct type *type)
{
    int chips = smi_chips(query->card);

    smi_line("NPU ID", "%d", query->card);
    if (chips == 0) {
        puts("Failed to query chip count.");
        return 0;
    }
    smi_line("Chip Count", "%d", chips);
    putchar('\n');
    for (int chip = 0; chip < chips; chip++) {
        bool is_common = strcmp(type->name, "common") == 0;
        if (!exists(query->card, chip)) {
            printf("\tFailed to query npu chip: %d info.\n", chip);
            continue;
        }
        if (is_common)
            smi_line("Chip ID", "%d", chip);
        type->chip(query->card, chip);
        if (!is_common)
            smi_line("Chip ID", "%d", chip);
        putchar('\n');
    }
    show_mcu(query, type);
    return 0;
}

static bool is_known_card(int card)
{
    int cards[MAX_CARDS], count = 0;

    if (smi_cards(cards, &count) != 0)
        return false;
    for (int i = 0; i < count; i++)
        if (cards[i] == card)
            return true;
    return false;
}

int smi_query(const struct query *query)
{
    bool is_board = strcmp(query->type, "board") == 0;
    bool is_health = strcmp(query->type, "health") == 0;

    if (strcmp(query->type, "vnpu-mode") == 0)
        return show_vnpu_mode();
    if (!query->has_card)
        return smi_wrong("You must select a card at first.");
    if (!is_known_card(query->card) || (query->has_chip && !exists(query->card, query->chip)))
        return smi_wrong("The parameter is invalid.");
    if (strcmp(query->type, "template-info") == 0)
        return show_templates(query->card);
    if (strcmp(query->type, "product") == 0) {
        char text[65] = "";
        int code = CALL(dcmi_get_product_type, query->card, 0, text, (int)sizeof text);
        if (code != 0)
            puts("This device does not support querying product.");
        else
            smi_line("Product Type", "%s", text);
        return 0;
    }
    if (strcmp(query->type, "info-vnpu") == 0) {
        show_vnpu(query->card, query->has_chip ? query->chip : 0);
        return 0;
    }
    if (is_board && !query->has_chip) {
        show_board_of_card(query->card);
        return 0;
    }
    if (is_board) {
        show_board_of_chip(query->card, query->chip);
        return 0;
    }
    if (is_health && query->has_chip) {
        show_health_of_chip(query->card, query->chip);
        return 0;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, query->type) != 0)
            continue;
        if (!query->has_chip)
            return show_whole_card(query, &types[i]);
        smi_line("NPU ID", "%d", query->card);
        smi_line("Chip ID", "%d", query->chip);
        types[i].chip(query->card, query->chip);
        return 0;
    }
    return smi_wrong("The parameter is invalid.");
}

int smi_watch(const struct query *query)
{
    static const char *const heads[] = {"NpuID(Idx)", "ChipId(Idx)", "Pwr(W)", "Temp(C)", "AI Core(%)",
                                        "AI Cpu(%)",  "Ctrl Cpu(%)", "Memory(%)"};
    int cards[MAX_CARDS], count = 0;
    int code = smi_cards(cards, &count);

    if (code != 0)
        return code;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        printf("%-12s", heads[i]);
    putchar('\n');
    for (;;) {
        for (int i = 0; i < count; i++) {
            if (query->has_card && cards[i] != query->card)
                continue;
            for (int chip = 0; chip < smi_chips(cards[i]); chip++) {
                unsigned int cpu, control, memory;
                if (query->has_chip && chip != query->chip)
                    continue;
                struct chip_view view = smi_look(cards[i], chip);
                (void)use_of(cards[i], chip, 3, &cpu);
                (void)use_of(cards[i], chip, 4, &control);
                (void)use_of(cards[i], chip, 6, &memory);
                printf("%-12d%-12d%-12.1f%-12d%-12u%-12u%-12u%-12u\n", cards[i], chip,
                       view.power_dw / 10.0, view.temperature, view.aicore, cpu, control, memory);
            }
        }
        if (fflush(stdout) != 0)
            return 0;
        sleep(query->seconds > 0 ? (unsigned int)query->seconds : 1);
    }
}
