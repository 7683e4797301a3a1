/* npu-smi info, info -l, info -m: the tables of all cards. */
#include "smi.h"

#include <stdarg.h>

#define SHOWN_PROCESSES 8

/* Widths of the three or four columns, per family. */
static const int columns_910[] = {27, 15, 53, 0};
static const int columns_310[] = {31, 17, 54, 0};
static const int columns_950[] = {8, 18, 15, 53, 0};
static const int columns_950_processes[] = {27, 15, 53, 0};

static const int *columns(void)
{
    if (smi_family == FAMILY_950)
        return columns_950;
    return smi_family == FAMILY_310 ? columns_310 : columns_910;
}

static const int *process_columns(void)
{
    return smi_family == FAMILY_950 ? columns_950_processes : columns();
}

static void rule(const int *widths, char fill)
{
    for (; *widths != 0; widths++) {
        putchar('+');
        for (int i = 0; i < *widths; i++)
            putchar(fill);
    }
    puts("+");
}

static int whole_width(const int *widths)
{
    int width = -1;

    for (; *widths != 0; widths++)
        width += *widths + 1;
    return width;
}

static void plain_rule(void)
{
    int whole[] = {whole_width(columns()), 0};

    rule(whole, '-');
}

/* A row that ends with the bar in the table's last column, whatever stands before. */
static void row(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void row(const char *format, ...)
{
    char text[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("%-*s|\n", whole_width(columns()) + 1, text);
}

static void process_name(int pid, char *name, size_t size)
{
    char path[TEXT];

    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    snprintf(name, size, "unknown");
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return;
    if (fgets(name, (int)size, file) != NULL)
        name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static void bus_text(const struct chip_view *view, char *text, size_t size)
{
    if (view->pcie_code != 0)
        snprintf(text, size, "NA");
    else
        snprintf(text, size, "%04X:%02X:%02X.%X", (unsigned)view->pcie.domain, view->pcie.bdf_busid,
                 view->pcie.bdf_deviceid, view->pcie.bdf_funcid);
}

static void first_row(const struct chip_view *view)
{
    char power[16] = "-";
    const char *health = view->health_code != 0 ? "UNKNOWN" : smi_health_word(view->health);
    const char *name = view->info_code != 0 ? "" : (const char *)view->info.chip_name;

    if (health == NULL)
        return;
    /* The second die of a two-die card has no meter of its own. */
    if (smi_family != FAMILY_A3 || view->chip == 0)
        snprintf(power, sizeof power, "%.1f", view->power_dw / 10.0);
    unsigned long used = view->memory.hugepages_total - view->memory.hugepages_free;
    if (smi_family == FAMILY_950)
        row("| %-7d| %-17s| %-13s | %-11s %-17d %-6lu/ %-13lu", view->card, name, health, power,
            view->temperature, 0ul, 0ul);
    else if (smi_family == FAMILY_310)
        row("| %-7d %-22s| %-15s | %-12s %-17d %-6lu/ %-13lu", view->card, name, health, power,
            view->temperature, used, view->memory.hugepages_total);
    else
        row("| %-5d %-20s| %-13s | %-11s %-17d %-6lu/ %-13lu", view->card, name, health, power,
            view->temperature, used, view->memory.hugepages_total);
}

static void second_row(const struct chip_view *view)
{
    char bus[24];
    unsigned long long ddr = view->memory.memory_size;
    unsigned long long ddr_used = ddr - view->memory.memory_available;

    bus_text(view, bus, sizeof bus);
    if (smi_family == FAMILY_310) {
        row("| %-7d %-22d| %-15s | %-12u %-5llu/ %-32llu", view->chip, view->logic_id, bus,
            view->aicore, ddr_used, ddr);
        return;
    }
    char head[40];
    if (smi_family == FAMILY_950)
        snprintf(head, sizeof head, "|%-8s|%-18s|", "", "");
    else if (smi_family == FAMILY_A3)
        snprintf(head, sizeof head, "| %-5d %-20u|", view->chip, view->phy_id);
    else
        snprintf(head, sizeof head, "| %-26d|", view->chip);
    row("%s %-13s | %-11u %-5llu/ %-10llu %-6llu/ %-13llu", head, bus, view->aicore, ddr_used, ddr,
        view->hbm.memory_usage, view->hbm.memory_size);
}

/* False when a physical id cannot be found: the rest of that card's rows is left out. */
static bool show_card(int card)
{
    int chips = smi_chips(card);

    for (int chip = 0; chip < chips; chip++) {
        struct chip_view view = smi_look(card, chip);
        if (view.phy_code != 0)
            return false;
        if (chip > 0)
            plain_rule();
        first_row(&view);
        second_row(&view);
    }
    return chips > 0;
}

static void show_processes(int card)
{
    struct dcmi_proc_mem_info found[2 * MAX_PROCESSES];
    int chips = smi_chips(card), shown = 0;

    for (int chip = 0; chip < chips; chip++) {
        int count = 0;
        if (CHIP(dcmi_get_device_resource_info, dcmiv2_get_device_proc_mem_info, card, chip, found,
                 &count) != 0)
            continue;
        for (int i = 0; i < count && i < SHOWN_PROCESSES; i++, shown++) {
            char name[25];
            process_name(found[i].proc_id, name, sizeof name);
            unsigned long megabytes = found[i].proc_mem_usage / 1048576;
            if (smi_family == FAMILY_950)
                row("| %-26d| %-13d | %-24s | %-24lu", card, found[i].proc_id, name, megabytes);
            else if (smi_family == FAMILY_310)
                row("| %-7d %-22d| %-15d | %-24s | %-25lu", card, chip, found[i].proc_id, name,
                    megabytes);
            else
                row("| %-7d %-18d| %-13d | %-24s | %-24lu", card, chip, found[i].proc_id, name,
                    megabytes);
        }
    }
    if (shown == 0)
        row("| No running processes found in NPU %-7d", card);
    rule(process_columns(), '=');
}

static void heads(const char *version)
{
    bool is_wide = smi_family == FAMILY_310 || smi_family == FAMILY_950;

    plain_rule();
    if (is_wide)
        row("| npu-smi %-40s Version: %s", version, version);
    else
        row("| npu-smi %-24s Version: %s", version, version);
    rule(columns(), '-');
    switch (smi_family) {
    case FAMILY_950:
        row("| NPU ID | Name             | Health        | Power(W)    Temp(C)           "
            "Hugepages-Usage(page)");
        row("|        |                  | Bus-Id        | NPU Util(%%) Memory-Usage(MB)  "
            "HBM-Usage(MB)");
        break;
    case FAMILY_310:
        row("| NPU     Name                  | Health          | Power(W)     Temp(C)           "
            "Hugepages-Usage(page)");
        row("| Chip    Device                | Bus-Id          | AICore(%%)    Memory-Usage(MB)");
        break;
    default:
        row("| NPU   Name                | Health        | Power(W)    Temp(C)           "
            "Hugepages-Usage(page)");
        row("| Chip  %-20s| Bus-Id        | AICore(%%)   Memory-Usage(MB)  HBM-Usage(MB)",
            smi_family == FAMILY_A3 ? "Phy-ID" : "");
    }
    rule(columns(), '=');
}

int smi_table(void)
{
    int cards[MAX_CARDS], count = 0;
    char version[TEXT] = "";

    int code = smi_cards(cards, &count);
    if (code != 0) {
        puts("Failed to get card number.");
        return code;
    }
    if (smi_family == FAMILY_950)
        (void)CALL(dcmiv2_get_driver_version, version, TEXT);
    else
        (void)CALL(dcmi_get_driver_version, version, TEXT);
    heads(version);
    for (int i = 0; i < count; i++)
        if (show_card(cards[i]))
            rule(columns(), '=');
    rule(process_columns(), '-');
    if (smi_family == FAMILY_950)
        row("| NPU ID                    | Process id    | Process name             | Process "
            "memory(MB)");
    else if (smi_family == FAMILY_310)
        row("| NPU     Chip                  | Process id      | Process name             | Process "
            "memory(MB)");
    else
        row("| NPU     Chip              | Process id    | Process name             | Process "
            "memory(MB)");
    rule(process_columns(), '=');
    for (int i = 0; i < count; i++)
        show_processes(cards[i]);
    return 0;
}

int smi_list(void)
{
    int cards[MAX_CARDS], count = 0;

    int code = smi_cards(cards, &count);
    if (code != 0) {
        puts("Failed to get card number.");
        return code;
    }
    if (count == 0) {
        puts("There is no NPU card on this server.");
        return 0;
    }
    smi_line(smi_family == FAMILY_310 ? "Card Count" : "Total Count", "%d", count);
    putchar('\n');
    for (int i = 0; i < count; i++) {
        struct dcmi_elabel_info label;
        smi_line("NPU ID", "%d", cards[i]);
        if (smi_family == FAMILY_310 && CALL(dcmi_get_card_elabel_v2, cards[i], &label) == 0) {
            smi_line("Product Name", "%s", label.product_name);
            smi_line("Serial Number", "%s", label.serial_number);
        }
        smi_line("Chip Count", "%d", smi_chips(cards[i]));
        putchar('\n');
    }
    return 0;
}

static void map_row(const struct chip_view *view)
{
    if (smi_family == FAMILY_950) {
        struct dcmi_board_info board = {0};
        (void)CALL(dcmiv2_get_device_board_info, view->card, &board);
        printf("\t%-30d %-30u %-30d %-30u %s\n", view->card, board.slot_id, view->chip,
               view->phy_id, view->info.chip_name);
    } else if (smi_family == FAMILY_A3) {
        printf("\t%-30d %-30d %-30d %-30u %s\n", view->card, view->chip, view->logic_id,
               view->phy_id, view->info.chip_name);
    } else {
        printf("\t%-30d %-30d %-30d %s %s\n", view->card, view->chip, view->logic_id,
               view->info.chip_type, view->info.chip_name);
    }
}

int smi_map(void)
{
    int cards[MAX_CARDS], count = 0, mcu;

    int code = smi_cards(cards, &count);
    if (code != 0) {
        puts("Failed to get card number.");
        return code;
    }
    if (smi_family == FAMILY_950)
        printf("\t%-30s %-30s %-30s %-30s %-30s\n", "NPU ID", "Slot ID", "Chip ID", "Chip Phy-ID",
               "Chip Name");
    else if (smi_family == FAMILY_A3)
        printf("\t%-30s %-30s %-30s %-30s %-30s\n", "NPU ID", "Chip ID", "Chip Logic ID",
               "Chip Phy-ID", "Chip Name");
    else
        printf("\t%-30s %-30s %-30s %-30s\n", "NPU ID", "Chip ID", "Chip Logic ID", "Chip Name");
    for (int i = 0; i < count; i++) {
        int chips = smi_chips(cards[i]);
        for (int chip = 0; chip < chips; chip++) {
            struct chip_view view = smi_look(cards[i], chip);
            map_row(&view);
        }
        if (smi_has_mcu(cards[i], &mcu)) {
            if (smi_family == FAMILY_A3)
                printf("\t%-30d %-30d %-30s %-30s %s\n", cards[i], mcu, "-", "-", "Mcu");
            else
                printf("\t%-30d %-30d %-30s %s\n", cards[i], mcu, "-", "Mcu");
        }
    }
    return 0;
}
