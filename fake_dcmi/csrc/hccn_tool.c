/*
 * hccn_tool: `-i N -link -g`, the query device plugins depend on. N is the physical id. A link is
 * up while its card answers. Everything else fails with a plain non-zero status.
 */
#include "dcmi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *why)
{
    fprintf(stderr, "%s\nSee hccn_tool -h for the commands.\n", why);
    return 1;
}

int main(int argc, char **argv)
{
    char *end;

    if (argc != 5 || strcmp(argv[1], "-i") != 0 || strcmp(argv[3], "-link") != 0 ||
        strcmp(argv[4], "-g") != 0)
        return fail("Get invalid parameters!");
    unsigned long phy_id = strtoul(argv[2], &end, 10);
    if (*argv[2] == '\0' || *end != '\0' || phy_id > 255)
        return fail("Get invalid device id.");
    void *library = dlopen("libdcmi.so", RTLD_LAZY);
    if (library == NULL)
        return fail("Cmd execute failed!");
    int (*init)(void) = (int (*)(void))dlsym(library, "dcmi_init");
    int (*ids)(int *, int *, unsigned int) = (int (*)(int *, int *, unsigned int))dlsym(
        library, "dcmi_get_card_id_device_id_from_phyid");
    int (*health)(int, int, unsigned int *) =
        (int (*)(int, int, unsigned int *))dlsym(library, "dcmi_get_device_health");
    int card, device;
    unsigned int value;
    if (init == NULL || ids == NULL || health == NULL || init() != 0)
        return fail("Cmd execute failed!");
    if (ids(&card, &device, (unsigned int)phy_id) != 0)
        return fail("Get invalid device id.");
    printf("link status: %s\n", health(card, device, &value) == 0 ? "UP" : "DOWN");
    return 0;
}
