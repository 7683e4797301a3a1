/*
 * The driver interface as its clients see it: struct layouts and return codes, written from their
 * published measurements (Ascend/mind-cluster:component/ascend-common/devmanager/dcmi). LP64 only.
 */
#ifndef NPU_TESTBED_DCMI_H
#define NPU_TESTBED_DCMI_H

#include <stddef.h>

enum {
    DCMI_OK = 0,
    DCMI_INVALID_PARAMETER = -8001,
    DCMI_INNER_ERROR = -8005,
    DCMI_TIME_OUT = -8006,
    DCMI_NOT_READY = -8012,
    DCMI_NOT_SUPPORTED = -8255,
};

struct dcmi_chip_info {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
};

struct dcmi_chip_info_v2 {
    unsigned char chip_type[32];
    unsigned char chip_name[32];
    unsigned char chip_ver[32];
    unsigned int aicore_cnt;
    unsigned char npu_name[32];
};

struct dcmi_board_info {
    unsigned int board_id;
    unsigned int pcb_id;
    unsigned int bom_id;
    unsigned int slot_id;
};

struct dcmi_hbm_info {
    unsigned long long memory_size;
    unsigned int freq;
    unsigned long long memory_usage;
    int temp;
    unsigned int bandwith_util_rate;
};

struct dcmi_memory_info {
    unsigned long long memory_size;
    unsigned long long memory_available;
    unsigned int freq;
    unsigned long hugepagesize;
    unsigned long hugepages_total;
    unsigned long hugepages_free;
    unsigned int utiliza;
    unsigned char reserve[60];
};

struct dcmi_pcie_info_all {
    unsigned int venderid;
    unsigned int subvenderid;
    unsigned int deviceid;
    unsigned int subdeviceid;
    int domain;
    unsigned int bdf_busid;
    unsigned int bdf_deviceid;
    unsigned int bdf_funcid;
    unsigned char reserve[32];
};

struct dcmi_proc_mem_info {
    int proc_id;
    unsigned long proc_mem_usage;
};

struct dcmi_die_id {
    unsigned int soc_die[5];
};

struct dcmi_ip_addr {
    unsigned char address[16];
    int ip_type;
};

struct dcmi_elabel_info {
    char product_name[256];
    char model[256];
    char manufacturer[256];
    char manufacturer_date[256];
    char serial_number[256];
};

struct dcmi_event_filter {
    unsigned long long filter_flag;
    unsigned int event_id;
    unsigned char severity;
    unsigned char node_type;
    unsigned char resv[32];
};

struct dcmi_dms_fault_event {
    unsigned int event_id;
    unsigned short deviceid;
    unsigned char node_type;
    unsigned char node_id;
    unsigned char sub_node_type;
    unsigned char sub_node_id;
    unsigned char severity;
    unsigned char assertion;
    int event_serial_num;
    int notify_serial_num;
    unsigned long long alarm_raised_time;
    char event_name[256];
    char additional_info[32];
    unsigned char resv[32];
};

struct dcmi_event {
    int type;
    union {
        struct dcmi_dms_fault_event dms_event;
    } event_t;
};

typedef void (*dcmi_fault_callback)(struct dcmi_event *event);

int dcmi_init(void);
int dcmi_get_card_list(int *card_num, int *card_list, int list_len);
int dcmi_get_card_num_list(int *card_num, int *card_list, int list_len);
int dcmi_get_device_num_in_card(int card_id, int *device_num);
int dcmi_get_device_id_in_card(int card_id, int *device_id_max, int *mcu_id, int *cpu_id);
int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id);
int dcmi_get_device_logicid_from_phyid(unsigned int phyid, unsigned int *logicid);
int dcmi_get_device_phyid_from_logicid(unsigned int logicid, unsigned int *phyid);
int dcmi_get_card_id_device_id_from_logicid(int *card_id, int *device_id, unsigned int logic_id);
int dcmi_get_card_id_device_id_from_phyid(int *card_id, int *device_id, unsigned int phy_id);
int dcmi_get_device_type(int card_id, int device_id, int *device_type);
int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *info);
int dcmi_get_device_chip_info_v2(int card_id, int device_id, struct dcmi_chip_info_v2 *info);
int dcmi_get_device_board_info(int card_id, int device_id, struct dcmi_board_info *info);
int dcmi_get_device_board_id(int card_id, int device_id, unsigned int *board_id);
int dcmi_get_mainboard_id(int card_id, int device_id, unsigned int *mainboard_id);
int dcmi_get_dcmi_version(char *version, int size);
int dcmi_get_driver_version(char *version, unsigned int size);
int dcmi_get_driver_health(unsigned int *health);
int dcmi_get_device_health(int card_id, int device_id, unsigned int *health);
int dcmi_get_device_errorcode_v2(int card_id, int device_id, int *count, unsigned int *codes,
                                 unsigned int len);
int dcmi_subscribe_fault_event(int card_id, int device_id, struct dcmi_event_filter filter,
                               dcmi_fault_callback handler);
int dcmi_get_device_network_health(int card_id, int device_id, int *result);
int dcmi_get_device_ip(int card_id, int device_id, int port_type, int port_id,
                       struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask);
int dcmi_get_device_resource_info(int card_id, int device_id, struct dcmi_proc_mem_info *info,
                                  int *count);
int dcmi_get_device_boot_status(int card_id, int device_id, int *status);
int dcmi_get_device_outband_channel_state(int card_id, int device_id, int *state);
int dcmi_get_device_info(int card_id, int device_id, int main_cmd, unsigned int sub_cmd, void *buf,
                         unsigned int *size);
int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *info);
int dcmi_get_device_memory_info_v3(int card_id, int device_id, struct dcmi_memory_info *info);
int dcmi_get_device_die_v2(int card_id, int device_id, int type, struct dcmi_die_id *die);
int dcmi_get_product_type(int card_id, int device_id, char *text, int size);
int dcmi_get_device_power_info(int card_id, int device_id, int *power);
int dcmi_get_device_temperature(int card_id, int device_id, int *temperature);
int dcmi_get_device_voltage(int card_id, int device_id, unsigned int *voltage);
int dcmi_get_device_frequency(int card_id, int device_id, int type, unsigned int *frequency);
int dcmi_get_device_utilization_rate(int card_id, int device_id, int type, unsigned int *rate);
int dcmi_get_device_pcie_info_v2(int card_id, int device_id, struct dcmi_pcie_info_all *info);
int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char *text, int *length);
int dcmi_get_card_elabel_v2(int card_id, struct dcmi_elabel_info *info);
int dcmi_create_vdevice(int card_id, int device_id, void *wanted, void *made);
int dcmi_set_destroy_vdevice(int card_id, int device_id, unsigned int vdev_id);
int dcmi_set_device_reset(int card_id, int device_id, int channel);
int dcmi_pre_reset_soc(int card_id, int device_id);
int dcmi_rescan_soc(int card_id, int device_id);

#endif
