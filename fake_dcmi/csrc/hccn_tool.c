/*
 * hccn_tool: the queries of a RoCE port, `-i N -<what> -g`, and the few settings the library knows.
 * N is the physical id. Texts: hicann/driver:src/custom/network/hccn. Reads the hardware image
 * itself, since the real tool does not go through libdcmi.so either.
 */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int fail(const char *why, int status)
{
    fprintf(stderr, "%s\nSee hccn_tool -h for the commands.\n", why);
    return status;
}

static void print_ip(const char *key, const uint8_t *address)
{
    printf("%s%u.%u.%u.%u\n", key, address[0], address[1], address[2], address[3]);
}

static void time_text(uint64_t seconds, char *text, size_t size)
{
    time_t when = (time_t)seconds;
    struct tm broken;

    strftime(text, size, "%a %b %e %H:%M:%S %Y", gmtime_r(&when, &broken));
}

static void show_link_stat(const struct image_chip *chip)
{
    char text[32];

    time_text((uint64_t)time(NULL), text, sizeof text);
    printf("[devid %u]current time        : %s\n", chip->phy_id, text);
    printf("[devid %u]link up count       : %u\n", chip->phy_id, chip->link_ups);
    printf("[devid %u]link down count     : %u\n", chip->phy_id, chip->link_downs);
    printf("[devid %u]link change records :%s\n", chip->phy_id, chip->link_changes ? "" : " NA");
    for (unsigned int i = 0; i < chip->link_changes && i < 8; i++) {
        time_text(chip->link_change_s[i] / 2, text, sizeof text);
        printf("[devid %u]    %s    LINK %s\n", chip->phy_id, text,
               chip->link_change_s[i] & 1 ? "UP" : "DOWN");
    }
}

static void show_stat(const struct image_chip *chip)
{
    static const char *const names[] = {
        "mac_tx_mac_pause_num", "mac_rx_mac_pause_num", "mac_tx_pfc_pkt_num",
        "mac_tx_pfc_pri0_pkt_num", "mac_tx_pfc_pri1_pkt_num", "mac_tx_pfc_pri2_pkt_num",
        "mac_tx_pfc_pri3_pkt_num", "mac_tx_pfc_pri4_pkt_num", "mac_tx_pfc_pri5_pkt_num",
        "mac_tx_pfc_pri6_pkt_num", "mac_tx_pfc_pri7_pkt_num", "mac_rx_pfc_pkt_num",
        "mac_rx_pfc_pri0_pkt_num", "mac_rx_pfc_pri1_pkt_num", "mac_rx_pfc_pri2_pkt_num",
        "mac_rx_pfc_pri3_pkt_num", "mac_rx_pfc_pri4_pkt_num", "mac_rx_pfc_pri5_pkt_num",
        "mac_rx_pfc_pri6_pkt_num", "mac_rx_pfc_pri7_pkt_num", "mac_tx_total_pkt_num",
        "mac_tx_total_oct_num", "mac_tx_bad_pkt_num", "mac_tx_bad_oct_num", "mac_rx_total_pkt_num",
        "mac_rx_total_oct_num", "mac_rx_bad_pkt_num", "mac_rx_bad_oct_num",
        "mac_rx_fcs_err_pkt_num", "roce_rx_rc_pkt_num", "roce_rx_all_pkt_num",
        "roce_rx_err_pkt_num", "roce_tx_rc_pkt_num", "roce_tx_all_pkt_num", "roce_tx_err_pkt_num",
        "roce_cqe_num", "roce_rx_cnp_pkt_num", "roce_tx_cnp_pkt_num", "roce_unexpected_ack_num",
        "roce_out_of_order_num", "roce_verification_err_num", "roce_qp_status_err_num",
        "roce_new_pkt_rty_num", "roce_ecn_db_num",
    };

    puts("packet statistics:");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s:%llu\n", names[i], (unsigned long long)chip->packet_stats[i]);
}

static void show_optical(const struct image_chip *chip)
{
    puts("optical info:");
    printf("%-21s: %s\n", "present", chip->optical_present ? "present" : "not present");
    if (!chip->optical_present)
        return;
    printf("%-21s: %d C\n", "temperature", chip->optical_temp_c);
    printf("%-21s: NPU Testbed\n", "Vendor Name");
    printf("%-21s: %u.00 mV\n", "Vcc", chip->optical_mv);
    printf("%-21s: 75 C\n", "Temp High Thres");
    printf("%-21s: -5 C\n", "Temp Low Thres");
    for (int lane = 0; lane < 4; lane++)
        printf("Tx Power%d            : %u.%04u mW\n", lane, chip->optical_tx_uw[lane] / 1000,
               chip->optical_tx_uw[lane] % 1000 * 10);
    for (int lane = 0; lane < 4; lane++)
        printf("Rx Power%d            : %u.%04u mW\n", lane, chip->optical_rx_uw[lane] / 1000,
               chip->optical_rx_uw[lane] % 1000 * 10);
    for (int lane = 0; lane < 4; lane++)
        printf("Tx Bias%d             : 7.5000 mA\n", lane);
    printf("%-21s: 0x%x\n", "Rx Los Flag", chip->link_up ? 0u : 0xfu);
    printf("%-21s: 0x0\n", "Tx LoL Flag");
}

static const char *health_text(unsigned int health)
{
    static const char *const words[] = {"Success",       "Socket fail", "Receive timeout",
                                        "Unreachable",   "Time exceeded", "Fault", "Init",
                                        "Thread error",  "Detect ip set", "Unknown"};

    return words[health < 10 ? health : 9];
}

static int show(const struct image_chip *chip, const char *what)
{
    if (strcmp(what, "-link") == 0) {
        printf("link status: %s\n", chip->link_up ? "UP" : "DOWN");
    } else if (strcmp(what, "-speed") == 0) {
        if (chip->link_up)
            printf("Speed: %u Mb/s\n", chip->link_mbps);
        else
            puts("Speed: Unknown!");
    } else if (strcmp(what, "-link_stat") == 0) {
        show_link_stat(chip);
    } else if (strcmp(what, "-stat") == 0) {
        show_stat(chip);
    } else if (strcmp(what, "-optical") == 0) {
        show_optical(chip);
    } else if (strcmp(what, "-bandwidth") == 0) {
        printf("Bandwidth TX: %5u.%02u MB/sec\n", chip->rdma_tx_mbs, 0u);
        printf("Bandwidth RX: %5u.%02u MB/sec\n", chip->rdma_rx_mbs, 0u);
    } else if (strcmp(what, "-net_health") == 0) {
        printf("net health status: %s\n", health_text(chip->network_health));
    } else if (strcmp(what, "-ip") == 0) {
        print_ip("ipaddr:", chip->ip);
        print_ip("netmask:", chip->netmask);
    } else if (strcmp(what, "-vnic") == 0) {
        printf("vnic link status: %s\n", chip->link_up ? "UP" : "DOWN");
        print_ip("vnic ipaddr: ", chip->vnic_ip);
        print_ip("vnic netmask: ", chip->netmask);
    } else if (strcmp(what, "-gateway") == 0) {
        printf("default gateway:%u.%u.%u.%u, Iface:eth%u\n", chip->gateway[0], chip->gateway[1],
               chip->gateway[2], chip->gateway[3], chip->phy_id);
    } else if (strcmp(what, "-netdetect") == 0) {
        print_ip("netdetect addr: ", chip->netdetect);
    } else if (strcmp(what, "-mac") == 0) {
        printf("mac addr: %02x:%02x:%02x:%02x:%02x:%02x\n", chip->mac[0], chip->mac[1], chip->mac[2],
               chip->mac[3], chip->mac[4], chip->mac[5]);
    } else if (strcmp(what, "-tls") == 0) {
        printf("dev_id:%u, tls switch[0](0:disable, 1:enable), tls alarm time threshold[60]days\n",
               chip->phy_id);
    } else if (strcmp(what, "-lldp") == 0) {
        puts("LLDP agent: no neighbour");
    } else if (strcmp(what, "-route") == 0) {
        puts("Routing table:");
        printf("0.0.0.0 %u.%u.%u.%u eth%u\n", chip->gateway[0], chip->gateway[1], chip->gateway[2],
               chip->gateway[3], chip->phy_id);
    } else {
        return fail("Get invalid parameters!", 1);
    }
    return 0;
}

static void help(void)
{
    puts("Usage: hccn_tool -i <phy id> -<what> -g");
    puts("  what: link, speed, link_stat, stat, optical, bandwidth, net_health, ip, vnic, gateway,");
    puts("        netdetect, mac, tls, lldp, route");
}

int main(int argc, char **argv)
{
    struct image_chip copy;
    char *end;

    if (argc == 2 && strcmp(argv[1], "-h") == 0) {
        help();
        return 0;
    }
    if (argc != 5 || strcmp(argv[1], "-i") != 0 || strcmp(argv[4], "-g") != 0)
        return fail("Get invalid parameters!", 1);
    unsigned long phy_id = strtoul(argv[2], &end, 10);
    if (*argv[2] == '\0' || *end != '\0' || phy_id > 255)
        return fail("Get invalid device id.", 1);
    struct call call;
    if (open_image() != OK || !hold_image(&call))
        return fail("Cmd execute failed!", 1);
    const struct chip_block *block = chip_of_phy(&call, (unsigned int)phy_id);
    if (block == NULL)
        return fail("Get invalid device id.", 1);
    uint32_t seen;
    unsigned int looks = 0;
    do
        copy_words(&copy, look_at_chip(block, &seen), sizeof copy);
    while (is_stale(&block->sequence, seen, &looks, &call.code));
    if (copy.link_mbps == 0)
        return fail("Cmd execute failed!", 4); /* no RoCE port on this product */
    if (copy.alive != 0 && strcmp(argv[3], "-link") != 0)
        return fail("Cmd execute failed!", 1);
    return show(&copy, argv[3]);
}
