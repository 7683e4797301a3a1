/* Loads the library as a client in C does and checks layouts against the published sizes. */
#include "dcmi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type)
#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #field)

SIZE(dcmi_chip_info, 100);
SIZE(dcmi_chip_info_v2, 132);
AT(dcmi_chip_info_v2, npu_name, 100);
SIZE(dcmi_board_info, 16);
SIZE(dcmi_hbm_info, 32);
AT(dcmi_hbm_info, memory_usage, 16);
SIZE(dcmi_memory_info, 112);
SIZE(dcmi_pcie_info_all, 64);
SIZE(dcmi_proc_mem_info, 16);
SIZE(dcmi_die_id, 20);
SIZE(dcmi_ip_addr, 20);
SIZE(dcmi_elabel_info, 1280);
SIZE(dcmi_event_filter, 48);
AT(dcmi_event_filter, node_type, 13);
SIZE(dcmi_dms_fault_event, 352);
AT(dcmi_dms_fault_event, alarm_raised_time, 24);
SIZE(dcmi_event, 360);
AT(dcmi_event, event_t, 8);

int main(int argc, char **argv)
{
    int cards[64], count = -1;

    if (argc != 2)
        return 2;
    /* A device plugin opens and closes the library several times before it settles. */
    for (int round = 0; round < 3; round++) {
        void *library = dlopen(argv[1], RTLD_LAZY | RTLD_GLOBAL);
        if (library == NULL) {
            puts(dlerror());
            return 3;
        }
        int (*init)(void) = (int (*)(void))dlsym(library, "dcmi_init");
        int (*list)(int *, int *, int) =
            (int (*)(int *, int *, int))dlsym(library, "dcmi_get_card_list");
        int (*chip)(int, int, struct dcmi_chip_info_v2 *) =
            (int (*)(int, int, struct dcmi_chip_info_v2 *))dlsym(library,
                                                                "dcmi_get_device_chip_info_v2");
        struct dcmi_chip_info_v2 info[2];
        memset(info, 0x55, sizeof info);
        if (init() != 0 || list(&count, cards, 64) != 0 || chip(cards[0], 0, info) != 0)
            return 4;
        for (size_t i = 0; i < sizeof info[1]; i++)
            if (((unsigned char *)&info[1])[i] != 0x55)
                return 5; /* wrote past the caller's struct */
        if (dlsym(library, "dcmiv2_init") != NULL)
            return 6; /* a 910B has no second generation */
        printf("%d %s\n", count, info[0].chip_name);
        dlclose(library);
    }
    return 0;
}
