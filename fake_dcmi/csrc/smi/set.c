/* npu-smi set -t <type>: reset and vNPU. */
#include "smi.h"

#define CHOOSE 0xffffffffu
#define IN_BAND 1

static int say(const char *what, int code)
{
    if (code == NOT_SUPPORTED) {
        printf("This device does not support %s.\n", what);
        return 0;
    }
    if (code == 0)
        smi_line("Status", "OK");
    else
        smi_line("Message", "%s failed. error code is %d", what, code);
    return code;
}

static int set_reset(const struct query *query)
{
    int channel = query->mode >= 0 ? query->mode : IN_BAND;
    int code = smi_family == FAMILY_950
                   ? CALL(dcmiv2_reset_device, query->card, channel)
                   : CALL(dcmi_set_device_reset, query->card, query->chip, channel);

    return say("reset chip", code);
}

static int set_vnpu(const struct query *query)
{
    struct dcmi_create_vdev_res_stru wanted = {.vdev_id = CHOOSE, .vfg_id = CHOOSE};
    struct dcmi_create_vdev_out made = {0};

    if (query->template_name == NULL ||
        strlen(query->template_name) >= sizeof wanted.template_name)
        return smi_wrong("The parameter is invalid.");
    strcpy(wanted.template_name, query->template_name);
    if (query->vnpu >= 0)
        wanted.vdev_id = (unsigned int)query->vnpu;
    int code = CALL(dcmi_create_vdevice, query->card, query->chip, &wanted, &made);
    if (code == 0) {
        smi_line("Status", "OK");
        smi_line("Message", "Create vnpu success");
        smi_line("Vnpu ID", "%u", made.vdev_id);
        return 0;
    }
    return say("create vnpu", code);
}

int smi_set(const struct query *query)
{
    if (query->type == NULL)
        return smi_wrong("The parameter is invalid.");
    if (strcmp(query->type, "vnpu-mode") == 0)
        return query->mode == 0 || query->mode == 1
                   ? say("set vnpu mode", CALL(dcmi_set_vdevice_mode, query->mode))
                   : smi_wrong("The parameter is invalid.");
    if (!query->has_card)
        return smi_wrong("You must select a card at first.");
    if (!query->has_chip && smi_family != FAMILY_950)
        return smi_wrong("The parameter is invalid.");
    if (strcmp(query->type, "reset") == 0)
        return set_reset(query);
    if (strcmp(query->type, "create-vnpu") == 0)
        return set_vnpu(query);
    if (strcmp(query->type, "destroy-vnpu") == 0 && query->vnpu >= 0)
        return say("destroy vnpu", CALL(dcmi_set_destroy_vdevice, query->card, query->chip,
                                        (unsigned int)query->vnpu));
    return smi_wrong("The parameter is invalid.");
}
