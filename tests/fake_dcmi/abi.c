/*
 * A client in C: the interface as its headers have it (dcmi.h asserts every size and offset), the
 * library as it is really loaded, and the drift between the headers of its clients. Prints what
 * fails; the process status is the number of failures.
 */
#include "dcmi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 0x55

static int failures;
static void *library;

static void check(int holds, const char *what)
{
    if (!holds) {
        printf("failed: %s\n", what);
        failures++;
    }
}

#define CALL(name, ...)                                                                            \
    __extension__({                                                                                \
        __typeof__(&name) call_;                                                                   \
        *(void **)(&call_) = dlsym(library, #name);                                                \
        call_ == NULL ? -99998 : call_(__VA_ARGS__);                                               \
    })

/* How many bytes from `from` on are no longer what they were. */
static size_t touched(const unsigned char *bytes, size_t from, size_t size)
{
    size_t count = 0;

    for (size_t i = from; i < size; i++)
        count += bytes[i] != GUARD;
    return count;
}

static void open_and_close(const char *path, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        int cards[64], count = -1;
        library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
        if (library == NULL) {
            puts(dlerror());
            exit(99);
        }
        check(CALL(dcmi_init) == 0, "dcmi_init");
        check(CALL(dcmi_get_card_list, &count, cards, 64) == 0 && count == 8, "eight cards");
        if (round < rounds - 1)
            dlclose(library);
    }
}

int main(int argc, char **argv)
{
    unsigned char room[65536];

    if (argc != 2)
        return 98;
    open_and_close(argv[1], 3); /* a device plugin does this several times before it settles */

    /* D1: 28 bytes, though one client's struct has 36. */
    memset(room, GUARD, sizeof room);
    check(CALL(dcmi_get_device_ecc_info, 0, 0, 2, (struct dcmi_ecc_info *)room) == 0, "D1 code");
    check(touched(room, 28, sizeof room) == 0, "D1: wrote past 28 bytes");
    check(sizeof(struct dcmi_ecc_info_mind_cluster) == 36, "D1 size");

    /* D2: both headers see a 352-byte event. */
    check(sizeof(struct dcmi_dms_fault_event) == 352 &&
              sizeof(struct dcmi_dms_fault_event_mind_cluster) == 352,
          "D2");

    /* D3: the second generation refuses on a 910B, so nobody passes its shorter struct. */
    memset(room, GUARD, sizeof room);
    check(CALL(dcmiv2_init) == -8255, "D3 init");
    check(CALL(dcmiv2_get_device_chip_info, 0, (struct dcmi_chip_info_v2 *)room) == -8255, "D3");
    check(touched(room, 0, sizeof room) == 0, "D3: wrote though it refused");

    /* D4: list before count. */
    int list[64], count = 0;
    check(CALL(dcmiv2_get_device_list, list, &count, 64) == -8255, "D4");

    /* D5, D6, D12, D16: two names, one layout. */
    check(offsetof(struct dcmi_spod_info, server_index) ==
              offsetof(struct dcmi_spod_info_mind_cluster, server_id),
          "D5");
    check(sizeof(struct dcmi_port_pkt_stats_info) ==
              sizeof(struct dcmi_port_pkt_stats_info_mind_cluster),
          "D6");
    check(sizeof(struct dcmi_hccs_statues) == 12, "D12");
    check(sizeof(struct dcmi_memory_info) == sizeof(struct dcmi_memory_info_stru), "D16");

    /* D7: both spellings of the UnifiedBus ping are there, and refuse on this product. */
    unsigned int state;
    check(CALL(dcmi_get_ub_ping_mesh_state, 0, 0, 0, &state) == -8255, "D7 client spelling");
    check(CALL(dcmiv2_get_ubping_mesh_state, 0, &state) == -8255, "D7 driver spelling");

    /* D8: newer drivers have the call with a period. */
    struct dcmi_multi_utilization_info use;
    check(CALL(dcmi_get_device_multi_utilization_rate_period, 0, 0, &use, 1) == 0, "D8");

    /* D9: booted is 16. */
    int boot = 0;
    check(CALL(dcmi_get_device_boot_status, 0, 0, &boot) == 0 && boot == DCMI_SYSTEM_START_FINISH,
          "D9");

    /* D10: the older API knows two dies. */
    struct dcmi_die_id die;
    check(CALL(dcmi_get_device_die_v2, 0, 0, VDIE, &die) == 0, "D10 vdie");
    check(CALL(dcmi_get_device_die_v2, 0, 0, DDIE, &die) == -8001, "D10 ddie");

    /* D11: an unknown command is refused whatever a header's MAX says. */
    unsigned int size = sizeof room;
    check(CALL(dcmi_get_device_info, 0, 0, 32770, 0, room, &size) == -8255, "D11");

    /* D13: the length is an int here, unsigned there. */
    char version[33];
    check(CALL(dcmi_get_dcmi_version, version, 33) == 0, "D13");
    check(CALL(dcmi_get_dcmi_version, version, 15) == -8001, "D13 short buffer");

    /* D14, D15: 32 processes at most, memory in bytes. */
    int processes = -1;
    memset(room, GUARD, sizeof room);
    check(CALL(dcmi_get_device_resource_info, 0, 0, (struct dcmi_proc_mem_info *)room,
               &processes) == 0 &&
              processes == 32,
          "D14 count");
    check(touched(room, 32 * sizeof(struct dcmi_proc_mem_info), sizeof room) == 0, "D14 room");
    check(((struct dcmi_proc_mem_info *)room)[0].proc_mem_usage == 7ul << 20, "D15 bytes");

    /* D17: a list shorter than 128 is refused; the rest of the list is zero. */
    unsigned int codes[129];
    memset(codes, GUARD, sizeof codes);
    check(CALL(dcmi_get_device_errorcode_v2, 1, 0, &count, codes, 127) == -8001, "D17 short");
    check(CALL(dcmi_get_device_errorcode_v2, 1, 0, &count, codes, 128) == 0 && count == 1 &&
              codes[0] == 0x80E24E00u && codes[1] == 0 && codes[127] == 0 &&
              codes[128] == 0x55555555u,
          "D17 list");

    /* Every getter of the client's struct sizes stays inside them. */
    memset(room, GUARD, sizeof room);
    check(CALL(dcmi_get_device_chip_info, 0, 0, (struct dcmi_chip_info *)room) == 0 &&
              touched(room, 100, sizeof room) == 0,
          "chip_info stays in 100 bytes");
    memset(room, GUARD, sizeof room);
    check(CALL(dcmi_get_device_chip_info_v2, 0, 0, (struct dcmi_chip_info_v2 *)room) == 0 &&
              touched(room, 132, sizeof room) == 0,
          "chip_info_v2 stays in 132 bytes");
    return failures;
}
