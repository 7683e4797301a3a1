/*
 * The calls that a row of the table cannot tell. Each gets its chip looked up already; it sets
 * call->code and, only on success, the caller's values.
 */
#include "answers.h"

#include "fault_texts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PORT_ROCE 1
#define TOPO_SELF 0
#define TOPO_SIO 6
#define TOPO_HCCS 5
#define TOPO_PHB 2
#define TOPO_NODE 3
#define ECC_MEMBERS 7

/* ---- opening */

EXPORT int dcmi_init(void)
{
    struct call call;
    int code = open_image();

    if (code != OK)
        return code;
    if (enter(&call, FN_dcmi_init, NO_ID, NO_ID, INNER_ERROR)) {
        READ_NODE(&call)
            call.code = GET(node->init_code);
        NODE_DONE(&call)
        call.code = call.code > 0 ? INNER_ERROR : call.code;
    }
    return leave(&call);
}

EXPORT int dcmiv2_init(void)
{
    struct call call;
    int code = open_image();

    if (code != OK)
        return code;
    if (enter(&call, FN_dcmiv2_init, NO_ID, NO_ID, INNER_ERROR)) {
        READ_NODE(&call)
            call.code = GET(node->init_v2_code);
        NODE_DONE(&call)
        call.code = call.code > 0 ? INNER_ERROR : call.code;
    }
    return leave(&call);
}

/* ---- lists and ids */

static bool is_visible(const struct call *call, unsigned int index)
{
    return call->view == NULL || call->view->logic_ids[index] >= 0;
}

void answer_card_list(struct call *call, int *card_num, int *card_list, int list_len)
{
    int cards[IMAGE_MAX_CARDS];
    int count = 0;

    READ_NODE(call)
        count = 0;
        for (unsigned int card = 0; card < IMAGE_MAX_CARD_ID && count < (int)IMAGE_MAX_CARDS; card++)
            for (unsigned int device = 0; device < IMAGE_MAX_DEVICES; device++) {
                unsigned int index = GET(node->by_pair[card * IMAGE_MAX_DEVICES + device]);
                if (index < call->chips && is_visible(call, index)) {
                    cards[count++] = (int)card;
                    break;
                }
            }
    NODE_DONE(call)
    if (call->code != OK)
        return;
    if (list_len <= 0 || count > list_len) {
        call->code = INVALID_PARAMETER;
        return;
    }
    memcpy(card_list, cards, (size_t)count * sizeof *cards);
    *card_num = count;
}

static unsigned int count_devices(struct call *call, int *list)
{
    unsigned int count = 0;

    if (call->view != NULL) {
        for (; count < call->view->count; count++)
            list[count] = (int)count;
        return count;
    }
    READ_NODE(call)
        count = 0;
        for (unsigned int logic = 0; logic < IMAGE_MAX_IDS; logic++)
            if (GET(node->by_logic[logic]) < call->chips)
                list[count++] = (int)logic;
    NODE_DONE(call)
    return count;
}

void answer_device_list(struct call *call, int *list, int *count, int list_len)
{
    int found[IMAGE_MAX_IDS];
    unsigned int number = count_devices(call, found);

    if (call->code != OK)
        return;
    if (list_len <= 0 || (int)number > list_len) {
        call->code = INVALID_PARAMETER;
        return;
    }
    memcpy(list, found, number * sizeof *found);
    *count = (int)number;
}

void answer_device_count(struct call *call, int *count)
{
    int found[IMAGE_MAX_IDS];
    unsigned int number = count_devices(call, found);

    if (call->code == OK)
        *count = (int)number;
}

/* How many chips of a card do not answer. */
void answer_fault_devices(struct call *call, int card_id, int *device_num)
{
    int count = 0;

    for (int device = 0; device < (int)IMAGE_MAX_DEVICES; device++) {
        uint32_t seen;
        const struct chip_block *block = chip_of_pair(call, card_id, device);
        if (block == NULL)
            continue;
        const struct image_chip *chip = look_at_chip(block, &seen);
        call->chip = block;
        count += GET(chip->unit) == UNIT_NPU && GET(chip->alive) != OK;
    }
    if (!needs(call, call->chip != NULL))
        return;
    *device_num = count;
}

void answer_logic_id(struct call *call, int *logic_id)
{
    if (call->view != NULL) {
        int logic = call->view->logic_ids[chip_index(call, call->chip)];
        if (needs(call, logic >= 0 && logic < (int)IMAGE_MAX_IDS))
            *logic_id = logic;
        return;
    }
    READ_CHIP(call, call->chip, false, false)
        *logic_id = (int)GET(chip->logic_id);
    READ_DONE(call, call->chip)
}

void answer_logic_from_phy(struct call *call, unsigned int phy_id, unsigned int *logic_id)
{
    int logic = -1;

    if (!needs_chip(call, chip_of_phy(call, phy_id)))
        return;
    answer_logic_id(call, &logic);
    if (call->code == OK)
        *logic_id = (unsigned int)logic;
}

void answer_phy_from_logic(struct call *call, unsigned int logic_id, unsigned int *phy_id)
{
    if (!needs_chip(call, chip_of_logic(call, logic_id)))
        return;
    READ_CHIP(call, call->chip, false, false)
        *phy_id = GET(chip->phy_id);
    READ_DONE(call, call->chip)
}

static void give_pair(struct call *call, const struct chip_block *block, int *card_id,
                      int *device_id)
{
    if (!needs_chip(call, block))
        return;
    READ_CHIP(call, block, false, false)
        *card_id = GET(chip->card_id);
        *device_id = GET(chip->device_id);
    READ_DONE(call, block)
}

void answer_pair_from_logic(struct call *call, int *card_id, int *device_id, unsigned int logic_id)
{
    give_pair(call, chip_of_logic(call, logic_id), card_id, device_id);
}

void answer_pair_from_phy(struct call *call, int *card_id, int *device_id, unsigned int phy_id)
{
    give_pair(call, chip_of_phy(call, phy_id), card_id, device_id);
}

void answer_dev_from_slot(struct call *call, unsigned int slot_id, unsigned int chip_id,
                          int *dev_id)
{
    int found[IMAGE_MAX_IDS];
    unsigned int number = count_devices(call, found);

    for (unsigned int i = 0; i < number; i++) {
        uint32_t seen;
        const struct chip_block *block = chip_of_logic(call, (unsigned int)found[i]);
        if (block == NULL)
            continue;
        const struct image_chip *chip = look_at_chip(block, &seen);
        if (GET(chip->slot_id) == slot_id && GET(chip->device_id) == (int)chip_id) {
            *dev_id = found[i];
            return;
        }
    }
    call->code = INVALID_PARAMETER;
}

void answer_device_type(struct call *call, int *type)
{
    READ_CHIP(call, call->chip, false, true)
        *type = (int)GET(chip->unit);
    READ_DONE(call, call->chip)
}

/* How two chips are joined: one chip, two dies of a card, HCCS on a board, else over the host. */
static void join(struct call *call, const struct chip_block *one, const struct chip_block *other,
                 int *topo_type)
{
    uint32_t seen;

    if (!needs(call, one != NULL && other != NULL))
        return;
    const struct image_chip *a = look_at_chip(one, &seen);
    const struct image_chip *b = look_at_chip(other, &seen);
    if (one == other)
        *topo_type = TOPO_SELF;
    else if (GET(a->card_id) == GET(b->card_id))
        *topo_type = GET(a->hccs_credit[0]) != 0 ? TOPO_SIO : TOPO_PHB;
    else
        *topo_type = GET(a->hccs_credit[0]) != 0 ? TOPO_HCCS : TOPO_NODE;
}

void answer_topology(struct call *call, int card1, int device1, int card2, int device2,
                     int *topo_type)
{
    join(call, chip_of_pair(call, card1, device1), chip_of_pair(call, card2, device2), topo_type);
}

void answer_topology_v2(struct call *call, int dev1, int dev2, int *topo_type)
{
    join(call, dev1 < 0 ? NULL : chip_of_logic(call, (unsigned int)dev1),
         dev2 < 0 ? NULL : chip_of_logic(call, (unsigned int)dev2), topo_type);
}

/* ---- faults and state */

void answer_driver_codes(struct call *call, int *count, unsigned int *codes, unsigned int len)
{
    unsigned int found = 0;
    uint32_t copy[IMAGE_MAX_ERROR_CODES];

    if (!needs(call, len >= IMAGE_MAX_ERROR_CODES))
        return;
    READ_NODE(call)
        found = GET(node->driver_code_count);
        copy_words(copy, node->driver_codes, sizeof copy);
    NODE_DONE(call)
    if (call->code != OK)
        return;
    if (found > IMAGE_MAX_ERROR_CODES)
        found = IMAGE_MAX_ERROR_CODES;
    memset(codes, 0, sizeof copy);
    memcpy(codes, copy, found * sizeof *copy);
    *count = (int)found;
}

void answer_error_codes(struct call *call, int *count, unsigned int *codes, unsigned int len)
{
    uint32_t copy[IMAGE_MAX_ERROR_CODES];
    unsigned int found = 0;

    if (!needs(call, len >= IMAGE_MAX_ERROR_CODES))
        return;
    READ_CHIP(call, call->chip, true, true)
        found = GET(chip->error_count);
        if (found > IMAGE_MAX_ERROR_CODES)
            found = IMAGE_MAX_ERROR_CODES;
        copy_words(copy, chip->error_codes, found * sizeof *copy);
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memset(codes, 0, sizeof copy); /* clients read all 128 and skip zeros */
    memcpy(codes, copy, found * sizeof *copy);
    *count = (int)found;
}

void answer_error_codes_old(struct call *call, int *count, unsigned int *codes, int *width)
{
    answer_error_codes(call, count, codes, IMAGE_MAX_ERROR_CODES);
    if (call->code == OK)
        *width = (int)sizeof *codes;
}

static const struct fault_text *text_of(unsigned int code)
{
    size_t low = 0, high = sizeof fault_texts / sizeof *fault_texts;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (fault_texts[middle].code == code)
            return &fault_texts[middle];
        if (fault_texts[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void answer_error_text(struct call *call, unsigned int code, unsigned char *text, int size)
{
    const struct fault_text *known = text_of(code);

    if (!needs(call, size > 0))
        return;
    if (known == NULL || fault_words[known->text] == '\0')
        snprintf((char *)text, (size_t)size, "%u", code);
    else
        snprintf((char *)text, (size_t)size, "%s", fault_words + known->text);
}

/* An event as a subscriber gets it. */
void fill_event(struct dcmi_event *out, const struct image_event *event, unsigned int logic_id)
{
    enum { SERIAL_MASK = 127 };
    const struct fault_text *known = text_of(event->code);
    static const char *const assertions[] = {"recover", "occur", "one-off"};
    const char *assertion = event->assertion < 3 ? assertions[event->assertion] : "unknown";

    const char *sensor = known != NULL ? fault_words + known->sensor : "unknown";

    memset(out, 0, sizeof *out);
    struct dcmi_dms_fault_event *fault = &out->event_t.dms_event;
    unsigned int node_type = (event->code >> 17) & 0x7FFu;
    fault->event_id = event->code;
    fault->deviceid = (unsigned short)logic_id;
    fault->node_type = (unsigned char)node_type;
    fault->severity = event->severity;
    fault->assertion = event->assertion;
    fault->event_serial_num = (int)(event->number & SERIAL_MASK);
    fault->notify_serial_num = (int)(event->number & SERIAL_MASK);
    fault->alarm_raised_time = event->raised_ms;
    fault->node_type_ex = (unsigned short)node_type; /* types above 255 do not fit one byte */
    snprintf(fault->event_name, sizeof fault->event_name,
             "node type=%s, node id=0-0, sensor type=%s, sensor name=%s, event state=0x%x, "
             "time=%llu, %s",
             known != NULL ? fault_words + known->node : "unknown", sensor, sensor,
             event->code & 0x1FFu,
             (unsigned long long)event->raised_ms, assertion);
}

void answer_current_events(struct call *call, struct dcmi_event *events, int capacity, int *count)
{
    struct image_event copy[IMAGE_MAX_ERROR_CODES];
    unsigned int found = 0;
    unsigned int logic = 0;

    if (!needs(call, capacity > 0))
        return;
    memset(copy, 0, sizeof copy);
    READ_CHIP(call, call->chip, true, false)
        found = GET(chip->error_count);
        logic = GET(chip->logic_id);
        for (unsigned int i = 0; i < found && i < IMAGE_MAX_ERROR_CODES; i++) {
            copy[i].code = GET(chip->error_codes[i]);
            copy[i].severity = GET(chip->error_severity[i]);
            copy[i].raised_ms = GET(chip->error_raised_ms[i]);
            copy[i].assertion = 1;
        }
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    if (found > IMAGE_MAX_ERROR_CODES)
        found = IMAGE_MAX_ERROR_CODES;
    if (found > (unsigned int)capacity)
        found = (unsigned int)capacity;
    for (unsigned int i = 0; i < found; i++)
        fill_event(&events[i], &copy[i], logic);
    *count = (int)found;
}

/* While a chip boots its stage can be asked, though nothing else answers. */
void answer_boot_status(struct call *call, int *status)
{
    uint32_t seen;
    unsigned int looks = 0;
    uint32_t stage;
    const struct image_chip *chip;

    do {
        chip = look_at_chip(call->chip, &seen);
        call->code = chip_code(chip, GET(chip->is_booting) == 0, false);
        stage = GET(chip->boot_status);
    } while (is_stale(&call->chip->sequence, seen, &looks, &call->code));
    if (call->code == OK)
        *status = (int)stage;
}

void answer_processes(struct call *call, struct dcmi_proc_mem_info *info, int *count)
{
    int32_t pids[IMAGE_MAX_PROCESSES];
    uint64_t bytes[IMAGE_MAX_PROCESSES];
    unsigned int found = 0;

    READ_CHIP(call, call->chip, true, false)
        found = GET(chip->process_count);
        for (unsigned int i = 0; i < IMAGE_MAX_PROCESSES; i++) {
            pids[i] = GET(chip->process_pid[i]);
            bytes[i] = GET(chip->process_bytes[i]);
        }
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    if (found > IMAGE_MAX_PROCESSES)
        found = IMAGE_MAX_PROCESSES; /* callers give room for 32 */
    for (unsigned int i = 0; i < found; i++) {
        info[i].proc_id = pids[i];
        info[i].proc_mem_usage = bytes[i];
    }
    *count = (int)found;
}

void answer_system_time(struct call *call, unsigned int *seconds)
{
    READ_CHIP(call, call->chip, true, false)
    READ_DONE(call, call->chip)
    if (call->code == OK)
        *seconds = (unsigned int)time(NULL);
}

/* ---- readings */

void answer_ecc(struct call *call, int type, struct dcmi_ecc_info *info)
{
    uint32_t members[ECC_MEMBERS];

    if (!needs(call, type >= 0 && type < 4))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_words(members, &chip->ecc[type * ECC_MEMBERS], sizeof members);
    READ_DONE(call, call->chip)
    if (call->code == OK)
        memcpy(info, members, sizeof *info); /* 28 bytes: older callers have no room for more */
}

void answer_ecc_old(struct call *call, int type, struct dsmi_ecc_info_stru *info)
{
    struct dcmi_ecc_info full;

    answer_ecc(call, type, &full);
    if (call->code == OK)
        memcpy(info, &full, sizeof *info);
}

void answer_fan_speed(struct call *call, int fan_id, int *speed)
{
    READ_CHIP(call, call->chip, true, false)
        unsigned int fans = GET(chip->fan_count);
        if (fan_id < 0 || fan_id > (int)fans || fans == 0 ||
            fans > sizeof chip->fan_rpm / sizeof *chip->fan_rpm) {
            call->code = fans == 0 ? NOT_SUPPORTED : INVALID_PARAMETER;
            continue;
        }
        unsigned int sum = 0;
        for (unsigned int i = 0; i < fans; i++)
            sum += GET(chip->fan_rpm[i]);
        *speed = (int)(fan_id == 0 ? sum / fans : GET(chip->fan_rpm[fan_id - 1]));
    READ_DONE(call, call->chip)
}

void answer_sensor(struct call *call, int sensor_id, void *value)
{
    enum { SENSORS = 16, NTC = 10 };
    int32_t reading = 0;

    if (!needs(call, sensor_id >= 0 && sensor_id < SENSORS))
        return;
    READ_CHIP(call, call->chip, true, false)
        reading = GET(chip->sensor[sensor_id]);
        if ((GET(chip->sensor_known) & (1u << sensor_id)) == 0)
            call->code = NOT_SUPPORTED;
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    int32_t four[4] = {reading, reading, reading, reading};
    memset(value, 0, sizeof(union dcmi_sensor_info));
    memcpy(value, four, sensor_id == NTC ? sizeof four : sizeof reading);
}

void answer_pcie_bandwidth(struct call *call, struct dcmi_pcie_link_bandwidth_info *info)
{
    uint32_t values[21];

    if (!needs(call, info->profiling_time >= 0 && info->profiling_time <= 2000))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_words(values, chip->pcie_bandwidth, sizeof values);
    READ_DONE(call, call->chip)
    if (call->code == OK)
        memcpy(info->tx_p_bw, values, sizeof values);
}

void answer_hccs_bandwidth(struct call *call, struct dcmi_hccs_bandwidth_info *info)
{
    uint32_t tx[16], rx[16];

    if (!needs(call, info->profiling_time >= 1 && info->profiling_time <= 1000))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_words(tx, chip->hccs_tx_mbs, sizeof tx);
        copy_words(rx, chip->hccs_rx_mbs, sizeof rx);
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    info->total_txbw = info->total_rxbw = 0;
    for (int i = 0; i < 16; i++) {
        info->tx_bandwidth[i] = tx[i] / 1000.0; /* GB/s */
        info->rx_bandwidth[i] = rx[i] / 1000.0;
        info->total_txbw += info->tx_bandwidth[i];
        info->total_rxbw += info->rx_bandwidth[i];
    }
}

/* ---- the generic query */

#define COMMAND(main, sub) ((unsigned)(main) << 16 | (sub))
enum {
    CMD_POWER = COMMAND(8, 10),
    CMD_POD = COMMAND(12, 1),
    CMD_HCCS = COMMAND(16, 3),
    CMD_HCCS_64 = COMMAND(16, 5),
    CMD_VDEV = COMMAND(52, 0),
    CMD_VDEV_TOTAL = COMMAND(52, 1),
    CMD_VDEV_FREE = COMMAND(52, 2),
    CMD_VDEV_ACTIVITY = COMMAND(52, 5),
    CMD_SIO = COMMAND(56, 0),
};

static unsigned int bytes_of(unsigned int command)
{
    switch (command) {
    case CMD_POWER:
        return sizeof(struct dcmi_lp_power_info);
    case CMD_POD:
        return sizeof(struct dcmi_spod_info);
    case CMD_HCCS:
        return sizeof(struct dcmi_hccs_statistic_info);
    case CMD_HCCS_64:
        return sizeof(struct dcmi_hccs_statistic_info_u64);
    case CMD_VDEV:
    case CMD_VDEV_ACTIVITY:
        return sizeof(struct dcmi_vdev_query_stru);
    case CMD_VDEV_TOTAL:
        return sizeof(struct dcmi_soc_total_resource);
    case CMD_VDEV_FREE:
        return sizeof(struct dcmi_soc_free_resource);
    case CMD_SIO:
        return sizeof(struct dcmi_sio_crc_err_statistic_info);
    default:
        return 0;
    }
}

static int read_vdevice(const struct image_chip *chip, unsigned int wanted, unsigned char *to)
{
    unsigned int count = GET(chip->vdev_count);

    for (unsigned int i = 0; i < count && i < IMAGE_MAX_VDEVICES; i++) {
        const uint8_t *query = chip->vdev_query + i * sizeof(struct dcmi_vdev_query_stru);
        uint32_t id;
        copy_bytes(&id, query, sizeof id);
        if (id == wanted) {
            copy_bytes(to, query, sizeof(struct dcmi_vdev_query_stru));
            return OK;
        }
    }
    return INVALID_PARAMETER;
}

static void fill_hccs(const struct image_chip *chip, unsigned char *to, bool is_wide)
{
    const uint64_t *from[] = {chip->hccs_tx, chip->hccs_rx, chip->hccs_crc, chip->hccs_retry};

    for (int kind = 0; kind < 4; kind++)
        for (int link = 0; link < 16; link++) {
            uint64_t wide = GET(from[kind][link]);
            uint32_t narrow = (uint32_t)wide;
            int at = kind * 16 + link;
            if (is_wide)
                memcpy(to + at * 8, &wide, sizeof wide);
            else
                memcpy(to + at * 4, &narrow, sizeof narrow);
        }
}

static int fill_info(const struct image_chip *chip, unsigned int command, unsigned char *to)
{
    switch (command) {
    case CMD_POWER:
        copy_words(to, &chip->rated_power_w, sizeof(uint32_t));
        return OK;
    case CMD_POD:
        copy_words(to, &chip->sdid, 6 * sizeof(uint32_t));
        return GET(chip->pod_scale) != 0 ? OK : NOT_SUPPORTED;
    case CMD_HCCS:
    case CMD_HCCS_64:
        fill_hccs(chip, to, command == CMD_HCCS_64);
        return GET(chip->hccs_credit[0]) != 0 ? OK : NOT_SUPPORTED;
    case CMD_VDEV_TOTAL:
        copy_words(to, chip->vdev_total, sizeof chip->vdev_total);
        return to[offsetof(struct dcmi_soc_total_resource, computing) + 3] ? OK : NOT_SUPPORTED;
    case CMD_VDEV_FREE:
        copy_words(to, chip->vdev_free, sizeof chip->vdev_free);
        return OK;
    default: /* CMD_SIO */
        copy_bytes(to, chip->sio_errors, sizeof chip->sio_errors);
        return OK;
    }
}

void answer_device_info(struct call *call, int main_cmd, unsigned int sub_cmd, void *buf,
                        unsigned int *size)
{
    _Alignas(8) unsigned char answer[sizeof(struct dcmi_hccs_statistic_info_u64)] = {0};
    unsigned int command = sub_cmd < 0x10000u && main_cmd >= 0 && main_cmd < 0x8000
                               ? COMMAND(main_cmd, sub_cmd)
                               : 0;
    unsigned int needed = bytes_of(command);
    uint32_t wanted = 0;

    if (needed == 0) {
        call->code = NOT_SUPPORTED;
        return;
    }
    if (!needs(call, *size >= needed))
        return;
    bool is_vdevice = command == CMD_VDEV || command == CMD_VDEV_ACTIVITY;
    if (is_vdevice)
        memcpy(&wanted, buf, sizeof wanted);
    READ_CHIP(call, call->chip, true, false)
        call->code = is_vdevice ? read_vdevice(chip, wanted, answer)
                                : fill_info(chip, command, answer);
        if (command == CMD_SIO && GET(chip->chips_in_card) < 2)
            call->code = NOT_SUPPORTED;
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memcpy(buf, answer, needed);
    *size = needed;
}

/* ---- network */

static bool is_zero(const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static void prefix_to_mask(unsigned char *mask)
{
    memset(mask, 0, 16);
    memset(mask, 0xFF, 8); /* /64 */
}

void answer_ip(struct call *call, int port_type, int port_id, struct dcmi_ip_addr *ip,
               struct dcmi_ip_addr *mask)
{
    unsigned char address[16] = {0}, net[16] = {0};
    bool is_v6 = ip->ip_type == DCMI_IPADDR_TYPE_V6;

    if (!needs(call, (port_type == PORT_ROCE || port_type == DCMI_VNIC_PORT) && port_id == 0))
        return;
    READ_CHIP(call, call->chip, true, false)
        if (is_v6) {
            copy_bytes(address, chip->ip6, sizeof address);
            prefix_to_mask(net);
            if (GET(chip->ip6_set) == 0)
                call->code = NOT_SUPPORTED;
        } else if (port_type == PORT_ROCE) {
            copy_bytes(address, chip->ip, 4);
            copy_bytes(net, chip->netmask, 4);
        } else {
            copy_bytes(address, chip->vnic_ip, 4);
            copy_bytes(net, chip->netmask, 4);
        }
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memcpy(ip->u_addr.bytes, address, sizeof address);
    memcpy(mask->u_addr.bytes, net, sizeof net);
    ip->ip_type = mask->ip_type = is_v6 ? DCMI_IPADDR_TYPE_V6 : DCMI_IPADDR_TYPE_V4;
}

void answer_gateway(struct call *call, int port_type, int port_id, struct dcmi_ip_addr *gateway)
{
    unsigned char address[16] = {0};

    if (!needs(call, (port_type == PORT_ROCE || port_type == DCMI_VNIC_PORT) && port_id == 0))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_bytes(address, chip->gateway, 4);
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memcpy(gateway->u_addr.bytes, address, sizeof address);
    gateway->ip_type = DCMI_IPADDR_TYPE_V4;
}

void answer_mac(struct call *call, int mac_id, char *mac, unsigned int len)
{
    unsigned char address[8];

    if (!needs(call, mac_id == 0 && len >= 6))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_bytes(address, chip->mac, sizeof address);
        if (is_zero(address, 6))
            call->code = NOT_SUPPORTED;
    READ_DONE(call, call->chip)
    if (call->code == OK)
        memcpy(mac, address, 6);
}

void answer_packet_stats(struct call *call, int port_id, struct dcmi_network_pkt_stats_info *info)
{
    uint64_t counters[48];
    struct timespec now;

    if (!needs(call, port_id == 0))
        return;
    READ_CHIP(call, call->chip, true, false)
        COPY_ARRAY(counters, chip->packet_stats);
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memset(info, 0, sizeof *info);
    memcpy(info, counters, sizeof counters);
    clock_gettime(CLOCK_REALTIME, &now);
    info->tv_sec = now.tv_sec;
    info->tv_usec = now.tv_nsec / 1000;
}

void answer_rdma_bandwidth(struct call *call, int port_id, unsigned int prof_time,
                           struct dcmi_network_rdma_bandwidth_info *info)
{
    if (!needs(call, port_id == 0 && prof_time >= 100 && prof_time <= 10000))
        return;
    READ_CHIP(call, call->chip, true, false)
        info->tx_bandwidth = GET(chip->rdma_tx_mbs);
        info->rx_bandwidth = GET(chip->rdma_rx_mbs);
    READ_DONE(call, call->chip)
}

void answer_eid_list(struct call *call, unsigned int dev_index, struct dcmi_urma_eid_info *list,
                     unsigned int *count)
{
    unsigned char eid[16];

    if (!needs(call, *count >= 1))
        return;
    READ_CHIP(call, call->chip, true, false)
        copy_bytes(eid, chip->urma_eid, sizeof eid);
        if (dev_index >= GET(chip->urma_devices))
            call->code = INVALID_PARAMETER;
    READ_DONE(call, call->chip)
    if (call->code != OK)
        return;
    memset(list, 0, sizeof *list);
    eid[15] = (unsigned char)(eid[15] + dev_index);
    memcpy(&list->eid, eid, sizeof eid);
    *count = 1;
}

void answer_port_stats(struct call *call, struct dcmi_ub_port_info *port,
                       struct dcmi_port_pkt_stats_info *stats)
{
    if (!needs(call, port->udie_id >= 0 && port->port_id >= 0))
        return;
    READ_CHIP(call, call->chip, true, false)
    READ_DONE(call, call->chip)
    if (call->code == OK)
        memset(stats, 0, sizeof *stats);
}
