/* The calls that a row of the table cannot tell, and what the generated entry points use. */
#ifndef NPU_TESTBED_ANSWERS_H
#define NPU_TESTBED_ANSWERS_H
#include "engine.h"

#define MAX_ASKED 8 /* ping tasks in one call */

/* All elements that fit from an image array into a caller's array; the rest stays zero. */
#define COPY_ARRAY(to, from)                                                                       \
    do {                                                                                           \
        for (size_t n_ = 0; n_ < sizeof(to) / sizeof *(to) && n_ < sizeof(from) / sizeof *(from);  \
             n_++)                                                                                 \
            (to)[n_] = GET((from)[n_]);                                                            \
    } while (0)

/* Read a chip between two looks; `continue` inside looks again. */
#define READ_CHIP(call, block, alive, mcu)                                                         \
    uint32_t seen_;                                                                                \
    unsigned int looks_ = 0;                                                                       \
    const struct image_chip *chip;                                                                 \
    do {                                                                                           \
        chip = look_at_chip(block, &seen_);                                                        \
        (call)->code = chip_code(chip, alive, mcu);                                                \
        if ((call)->code != OK)                                                                    \
            continue;

#define READ_DONE(call, block)                                                                     \
    }                                                                                              \
    while (is_stale(&(block)->sequence, seen_, &looks_, &(call)->code))                            \
        ;

#define READ_NODE(call)                                                                            \
    uint32_t seen_;                                                                                \
    unsigned int looks_ = 0;                                                                       \
    const struct node_block *block_ = node_of((call)->base);                                       \
    const struct image_node *node;                                                                 \
    do {                                                                                           \
        node = look_at_node(block_, &seen_);

#define NODE_DONE(call)                                                                            \
    }                                                                                              \
    while (is_stale(&block_->sequence, seen_, &looks_, &(call)->code))                             \
        ;

static inline size_t put_bytes(unsigned char *to, size_t at, const void *from, size_t size)
{
    memcpy(to + at, from, size);
    return at + size;
}

static inline size_t put_number(unsigned char *to, size_t at, long long value)
{
    return put_bytes(to, at, &value, sizeof value);
}

static inline size_t take_bytes(const unsigned char *from, size_t at, void *to, size_t size)
{
    memcpy(to, from + at, size);
    return at + size;
}

void answer_card_list(struct call *, int *, int *, int);
void answer_device_list(struct call *, int *, int *, int);
void answer_device_count(struct call *, int *);
void answer_fault_devices(struct call *, int, int *);
void answer_logic_id(struct call *, int *);
void answer_logic_from_phy(struct call *, unsigned int, unsigned int *);
void answer_phy_from_logic(struct call *, unsigned int, unsigned int *);
void answer_pair_from_logic(struct call *, int *, int *, unsigned int);
void answer_pair_from_phy(struct call *, int *, int *, unsigned int);
void answer_dev_from_slot(struct call *, unsigned int, unsigned int, int *);
void answer_device_type(struct call *, int *);
void answer_topology(struct call *, int, int, int, int, int *);
void answer_topology_v2(struct call *, int, int, int *);
void answer_driver_codes(struct call *, int *, unsigned int *, unsigned int);
void answer_error_codes(struct call *, int *, unsigned int *, unsigned int);
void answer_error_codes_old(struct call *, int *, unsigned int *, int *);
void answer_error_text(struct call *, unsigned int, unsigned char *, int);
void answer_current_events(struct call *, struct dcmi_event *, int, int *);
void answer_boot_status(struct call *, int *);
void answer_processes(struct call *, struct dcmi_proc_mem_info *, int *);
void answer_system_time(struct call *, unsigned int *);
void answer_ecc(struct call *, int, struct dcmi_ecc_info *);
void answer_ecc_old(struct call *, int, struct dsmi_ecc_info_stru *);
void answer_fan_speed(struct call *, int, int *);
void answer_sensor(struct call *, int, void *);
void answer_pcie_bandwidth(struct call *, struct dcmi_pcie_link_bandwidth_info *);
void answer_hccs_bandwidth(struct call *, struct dcmi_hccs_bandwidth_info *);
void answer_device_info(struct call *, int, unsigned int, void *, unsigned int *);
void answer_ip(struct call *, int, int, struct dcmi_ip_addr *, struct dcmi_ip_addr *);
void answer_gateway(struct call *, int, int, struct dcmi_ip_addr *);
void answer_mac(struct call *, int, char *, unsigned int);
void answer_packet_stats(struct call *, int, struct dcmi_network_pkt_stats_info *);
void answer_rdma_bandwidth(struct call *, int, unsigned int,
                           struct dcmi_network_rdma_bandwidth_info *);
void answer_eid_list(struct call *, unsigned int, struct dcmi_urma_eid_info *, unsigned int *);
void answer_port_stats(struct call *, struct dcmi_ub_port_info *,
                       struct dcmi_port_pkt_stats_info *);
void answer_subscribe(struct call *, int, int, struct dcmi_event_filter, dcmi_fault_callback);
void answer_subscribe_v2(struct call *, int, struct dcmi_event_filter, dcmi_fault_callback);
void answer_wait_event(struct call *, int, int, int, struct dcmi_event_filter,
                       struct dcmi_event *);
void answer_wait_event_v2(struct call *, int, int, struct dcmi_event_filter, struct dcmi_event *);

#endif
