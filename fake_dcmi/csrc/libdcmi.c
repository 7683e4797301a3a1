/*
 * A drop-in libdcmi.so that answers from the hardware image.
 *
 * Rules: a getter never blocks, allocates or does I/O; it copies what it needs out of a chip block
 * under the block's sequence number. There is no thread before the first subscription. Without a
 * valid image dcmi_init refuses, so the library never passes for a driver. Calls that would change
 * the hardware answer "not supported" until there is a way to ask the simulator for it.
 */
#include "dcmi.h"
#include "image_layout.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* A writer that died inside a block leaves its number odd; give up after this many looks. */
#define MAX_LOOKS 100000u
#define ALL_DEVICES (-1)
#define UNIT_NPU 0
#define IP_V4 0
#define PORT_ROCE 1
#define VDEV_MAIN 52
#define VDEV_TOTAL 1u
#define VDEV_TOTAL_SIZE 360u
#define VDEV_COMPUTING_AT 208u
#define VDEV_MEMORY_AT (VDEV_COMPUTING_AT + 24u)
#define POWER_MAIN 8
#define POWER_SUB 10u
#define POWER_SIZE 36u
#define FILTER_EVENT_ID 1u
#define FILTER_SEVERITY 2u
#define FILTER_NODE_TYPE 4u
#define WAIT_NS 200000000L
#define STACK_BYTES (1u << 20)
#define SERIAL_MASK 127

static _Atomic(const unsigned char *) image;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static dev_t image_dev;
static ino_t image_ino;

static struct {
    pthread_mutex_t lock;
    bool is_running;
    int card_id;
    int device_id;
    struct dcmi_event_filter filter;
    dcmi_fault_callback handler;
    const unsigned char *base; /* image at the first subscription, and its next event then */
    uint64_t next;
} subscription = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the image */

static const struct image_header *header_of(const unsigned char *base)
{
    return (const struct image_header *)(const void *)base;
}

static const struct image_chip *chip_at(const unsigned char *base, unsigned int index)
{
    return (const struct image_chip *)(const void *)(base + IMAGE_CHIPS_AT) + index;
}

/* The image's path: the environment, else a fixed place in the root this library lies in. */
static bool image_path(char *path, size_t size)
{
    static const char *const places[] = {"/usr/local/Ascend/driver/", "/usr/local/dcmi/"};
    const char *named = getenv("NPU_TESTBED_IMAGE");
    Dl_info info;

    if (named != NULL && named[0] != '\0')
        return snprintf(path, size, "%s", named) < (int)size;
    if (dladdr((void *)&dcmi_init, &info) == 0 || info.dli_fname == NULL)
        return false;
    char self[PATH_MAX];
    if (realpath(info.dli_fname, self) == NULL)
        return false;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *found = strstr(self, places[i]);
        if (found != NULL)
            return snprintf(path, size, "%.*s/run/npu-testbed/hardware.img", (int)(found - self),
                            self) < (int)size;
    }
    return false;
}

static bool is_valid(const unsigned char *base)
{
    const struct image_header *header = header_of(base);

    return header->magic == IMAGE_MAGIC && header->version == IMAGE_VERSION &&
           header->header_size == sizeof(struct image_header) &&
           header->chip_size == sizeof(struct image_chip) &&
           header->event_size == sizeof(struct image_event) &&
           header->total_size == IMAGE_TOTAL_SIZE;
}

EXPORT int dcmi_init(void)
{
    char path[PATH_MAX];
    struct stat facts;
    int result = DCMI_INNER_ERROR;

    pthread_mutex_lock(&init_lock);
    int fd = image_path(path, sizeof path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        goto out;
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size != IMAGE_TOTAL_SIZE)
        goto close_out;
    if (atomic_load(&image) != NULL && facts.st_dev == image_dev && facts.st_ino == image_ino) {
        result = DCMI_OK;
        goto close_out;
    }
    unsigned char *base = mmap(NULL, IMAGE_TOTAL_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        goto close_out;
    if (!is_valid(base)) {
        munmap(base, IMAGE_TOTAL_SIZE);
        goto close_out;
    }
    /* An older mapping stays: another thread may be reading it. */
    image_dev = facts.st_dev;
    image_ino = facts.st_ino;
    atomic_store(&image, base);
    result = DCMI_OK;
close_out:
    close(fd);
out:
    if (result != DCMI_OK)
        atomic_store(&image, NULL);
    pthread_mutex_unlock(&init_lock);
    return result;
}

static unsigned int look(const uint32_t *sequence)
{
    return __atomic_load_n(sequence, __ATOMIC_ACQUIRE);
}

static bool is_same(const uint32_t *sequence, unsigned int before)
{
    atomic_thread_fence(memory_order_acquire);
    return __atomic_load_n(sequence, __ATOMIC_RELAXED) == before;
}

static unsigned int listed_chips(const unsigned char *base)
{
    unsigned int listed = __atomic_load_n(&header_of(base)->listed, __ATOMIC_ACQUIRE);

    return listed <= IMAGE_MAX_CHIPS ? listed : 0;
}

/* Ids never change after a chip was published, so looking one up needs no sequence number. */
static const struct image_chip *find_chip(int card_id, int device_id)
{
    const unsigned char *base = atomic_load_explicit(&image, memory_order_acquire);

    if (base == NULL)
        return NULL;
    unsigned int listed = listed_chips(base);
    for (unsigned int i = 0; i < listed; i++) {
        const struct image_chip *chip = chip_at(base, i);
        if (chip->card_id == card_id && chip->device_id == device_id)
            return chip;
    }
    return NULL;
}

static const struct image_chip *find_by(size_t offset, unsigned int id)
{
    const unsigned char *base = atomic_load_explicit(&image, memory_order_acquire);

    if (base == NULL)
        return NULL;
    unsigned int listed = listed_chips(base);
    for (unsigned int i = 0; i < listed; i++) {
        const unsigned char *chip = (const unsigned char *)chip_at(base, i);
        uint32_t found;
        memcpy(&found, chip + offset, sizeof found);
        if (found == id)
            return (const struct image_chip *)(const void *)chip;
    }
    return NULL;
}

/* Copy `size` bytes at `from` out of a chip; a dropped card refuses when it must be alive. */
static int read_chip(const struct image_chip *chip, size_t from, void *to, size_t size, bool alive)
{
    for (unsigned int tries = 0; tries < MAX_LOOKS; tries++) {
        unsigned int before = look(&chip->sequence);
        if (before & 1u)
            continue;
        uint32_t is_dropped = chip->is_dropped;
        memcpy(to, (const unsigned char *)chip + from, size);
        if (!is_same(&chip->sequence, before))
            continue;
        if (alive && is_dropped) {
            memset(to, 0, size);
            return DCMI_NOT_READY;
        }
        return DCMI_OK;
    }
    return DCMI_TIME_OUT;
}

static int read_value(int card_id, int device_id, size_t from, void *to, bool alive)
{
    uint32_t value;

    if (to == NULL)
        return DCMI_INVALID_PARAMETER;
    const struct image_chip *chip = find_chip(card_id, device_id);
    if (chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, from, &value, sizeof value, alive);
    if (result == DCMI_OK)
        memcpy(to, &value, sizeof value);
    return result;
}

#define IDENTITY(field, to) read_value(card_id, device_id, offsetof(struct image_chip, field), to, false)
#define READING(field, to) read_value(card_id, device_id, offsetof(struct image_chip, field), to, true)

/* ---- lists and ids */

EXPORT int dcmi_get_card_list(int *card_num, int *card_list, int list_len)
{
    const unsigned char *base = atomic_load(&image);
    int count = 0;

    if (card_num == NULL || card_list == NULL || list_len <= 0)
        return DCMI_INVALID_PARAMETER;
    if (base == NULL)
        return DCMI_INNER_ERROR;
    unsigned int listed = listed_chips(base);
    for (unsigned int i = 0; i < listed && count < list_len; i++) {
        const struct image_chip *chip = chip_at(base, i);
        if (chip->device_id == 0)
            card_list[count++] = chip->card_id;
    }
    *card_num = count;
    return DCMI_OK;
}

EXPORT int dcmi_get_card_num_list(int *card_num, int *card_list, int list_len)
{
    return dcmi_get_card_list(card_num, card_list, list_len);
}

static int devices_in(int card_id)
{
    int count = 0;

    while (find_chip(card_id, count) != NULL)
        count++;
    return count;
}

EXPORT int dcmi_get_device_num_in_card(int card_id, int *device_num)
{
    int count = devices_in(card_id);

    if (device_num == NULL || count == 0)
        return DCMI_INVALID_PARAMETER;
    *device_num = count;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_id_in_card(int card_id, int *device_id_max, int *mcu_id, int *cpu_id)
{
    int count = devices_in(card_id);

    if (device_id_max == NULL || mcu_id == NULL || cpu_id == NULL || count == 0)
        return DCMI_INVALID_PARAMETER;
    *device_id_max = count;
    *mcu_id = count;
    *cpu_id = -1;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_logic_id(int *device_logic_id, int card_id, int device_id)
{
    if (atomic_load(&image) == NULL)
        return DCMI_NOT_READY;
    return IDENTITY(logic_id, device_logic_id);
}

EXPORT int dcmi_get_device_logicid_from_phyid(unsigned int phyid, unsigned int *logicid)
{
    const struct image_chip *chip = find_by(offsetof(struct image_chip, phy_id), phyid);

    if (logicid == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    *logicid = chip->logic_id;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_phyid_from_logicid(unsigned int logicid, unsigned int *phyid)
{
    const struct image_chip *chip = find_by(offsetof(struct image_chip, logic_id), logicid);

    if (phyid == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    *phyid = chip->phy_id;
    return DCMI_OK;
}

static int give_ids(const struct image_chip *chip, int *card_id, int *device_id)
{
    if (card_id == NULL || device_id == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    *card_id = chip->card_id;
    *device_id = chip->device_id;
    return DCMI_OK;
}

EXPORT int dcmi_get_card_id_device_id_from_logicid(int *card_id, int *device_id,
                                                   unsigned int logic_id)
{
    return give_ids(find_by(offsetof(struct image_chip, logic_id), logic_id), card_id, device_id);
}

EXPORT int dcmi_get_card_id_device_id_from_phyid(int *card_id, int *device_id, unsigned int phy_id)
{
    return give_ids(find_by(offsetof(struct image_chip, phy_id), phy_id), card_id, device_id);
}

/* ---- identity */

EXPORT int dcmi_get_device_type(int card_id, int device_id, int *device_type)
{
    if (device_type == NULL || find_chip(card_id, device_id) == NULL)
        return DCMI_INVALID_PARAMETER;
    *device_type = UNIT_NPU;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_chip_info_v2(int card_id, int device_id, struct dcmi_chip_info_v2 *info)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (info == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, false);
    if (result != DCMI_OK)
        return result;
    memset(info, 0, sizeof *info);
    memcpy(info->chip_type, copy.chip_type, sizeof info->chip_type - 1);
    memcpy(info->chip_name, copy.chip_name, sizeof info->chip_name - 1);
    memcpy(info->chip_ver, copy.chip_version, sizeof info->chip_ver - 1);
    memcpy(info->npu_name, copy.npu_name, sizeof info->npu_name - 1);
    info->aicore_cnt = copy.aicore_count;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_chip_info(int card_id, int device_id, struct dcmi_chip_info *info)
{
    struct dcmi_chip_info_v2 full;

    if (info == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = dcmi_get_device_chip_info_v2(card_id, device_id, &full);
    if (result == DCMI_OK)
        memcpy(info, &full, sizeof *info);
    return result;
}

EXPORT int dcmi_get_device_board_info(int card_id, int device_id, struct dcmi_board_info *info)
{
    const struct image_chip *chip = find_chip(card_id, device_id);

    if (info == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    return read_chip(chip, offsetof(struct image_chip, board_id), info, sizeof *info, false);
}

EXPORT int dcmi_get_device_board_id(int card_id, int device_id, unsigned int *board_id)
{
    return IDENTITY(board_id, board_id);
}

EXPORT int dcmi_get_mainboard_id(int card_id, int device_id, unsigned int *mainboard_id)
{
    return IDENTITY(mainboard_id, mainboard_id);
}

static int give_version(size_t offset, char *to, size_t size)
{
    const unsigned char *base = atomic_load(&image);
    char text[32];

    if (base == NULL)
        return DCMI_INNER_ERROR;
    memcpy(text, base + offset, sizeof text);
    text[sizeof text - 1] = '\0';
    if (to == NULL || size <= strlen(text))
        return DCMI_INVALID_PARAMETER;
    memcpy(to, text, strlen(text) + 1);
    return DCMI_OK;
}

EXPORT int dcmi_get_dcmi_version(char *version, int size)
{
    if (size <= 0)
        return DCMI_INVALID_PARAMETER;
    return give_version(offsetof(struct image_header, dcmi_version), version, (size_t)size);
}

EXPORT int dcmi_get_driver_version(char *version, unsigned int size)
{
    return give_version(offsetof(struct image_header, driver_version), version, size);
}

EXPORT int dcmi_get_product_type(int card_id, int device_id, char *text, int size)
{
    if (text == NULL || size < 32 || find_chip(card_id, device_id) == NULL)
        return DCMI_INVALID_PARAMETER;
    return DCMI_NOT_SUPPORTED; /* no 910 answers this */
}

EXPORT int dcmi_get_device_die_v2(int card_id, int device_id, int type, struct dcmi_die_id *die)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    size_t from = type == 0 ? offsetof(struct image_chip, ndie) : offsetof(struct image_chip, vdie);

    if (die == NULL || chip == NULL || type < 0 || type > 1)
        return DCMI_INVALID_PARAMETER;
    return read_chip(chip, from, die->soc_die, sizeof die->soc_die, false);
}

EXPORT int dcmi_get_device_pcie_info_v2(int card_id, int device_id, struct dcmi_pcie_info_all *info)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (info == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, false);
    if (result != DCMI_OK)
        return result;
    memset(info, 0, sizeof *info);
    info->venderid = info->subvenderid = copy.pci_vendor;
    info->deviceid = copy.pci_device;
    info->subdeviceid = 0x0200;
    info->domain = (int)copy.pci_domain;
    info->bdf_busid = copy.pci_bus;
    info->bdf_deviceid = copy.pci_slot;
    info->bdf_funcid = copy.pci_function;
    return DCMI_OK;
}

EXPORT int dcmi_get_affinity_cpu_info_by_device_id(int card_id, int device_id, char *text,
                                                   int *length)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    char copy[32];

    if (text == NULL || length == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result =
        read_chip(chip, offsetof(struct image_chip, affinity), copy, sizeof copy, false);
    if (result != DCMI_OK)
        return result;
    copy[sizeof copy - 1] = '\0';
    *length = (int)strlen(copy);
    memcpy(text, copy, strlen(copy) + 1);
    return DCMI_OK;
}

EXPORT int dcmi_get_card_elabel_v2(int card_id, struct dcmi_elabel_info *info)
{
    const struct image_chip *chip = find_chip(card_id, 0);
    struct image_chip copy;

    if (info == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, false);
    if (result != DCMI_OK)
        return result;
    memset(info, 0, sizeof *info);
    memcpy(info->product_name, copy.product, sizeof copy.product - 1);
    memcpy(info->model, copy.product, sizeof copy.product - 1);
    strcpy(info->manufacturer, "NPU Testbed");
    memcpy(info->serial_number, copy.serial, sizeof copy.serial - 1);
    return DCMI_OK;
}

/* ---- state and readings */

EXPORT int dcmi_get_driver_health(unsigned int *health)
{
    if (health == NULL)
        return DCMI_INVALID_PARAMETER;
    if (atomic_load(&image) == NULL)
        return DCMI_INNER_ERROR;
    *health = 0;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_health(int card_id, int device_id, unsigned int *health)
{
    return READING(health, health);
}

EXPORT int dcmi_get_device_errorcode_v2(int card_id, int device_id, int *count, unsigned int *codes,
                                        unsigned int len)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (count == NULL || codes == NULL || chip == NULL || len < IMAGE_MAX_ERROR_CODES)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, true);
    if (result != DCMI_OK)
        return result;
    unsigned int found = copy.error_count;
    if (found > IMAGE_MAX_ERROR_CODES)
        found = IMAGE_MAX_ERROR_CODES;
    memset(codes, 0, IMAGE_MAX_ERROR_CODES * sizeof *codes);
    memcpy(codes, copy.error_codes, found * sizeof *codes);
    *count = (int)found;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_network_health(int card_id, int device_id, int *result)
{
    return READING(network_health, result);
}

EXPORT int dcmi_get_device_ip(int card_id, int device_id, int port_type, int port_id,
                              struct dcmi_ip_addr *ip, struct dcmi_ip_addr *mask)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    unsigned char both[8];

    if (ip == NULL || mask == NULL || chip == NULL || port_type != PORT_ROCE || port_id != 0)
        return DCMI_INVALID_PARAMETER;
    if (ip->ip_type != IP_V4)
        return DCMI_NOT_SUPPORTED; /* no IPv6 address is configured */
    int result = read_chip(chip, offsetof(struct image_chip, ip), both, sizeof both, true);
    if (result != DCMI_OK)
        return result;
    memset(ip->address, 0, sizeof ip->address);
    memset(mask->address, 0, sizeof mask->address);
    memcpy(ip->address, both, 4);
    memcpy(mask->address, both + 4, 4);
    ip->ip_type = mask->ip_type = IP_V4;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_resource_info(int card_id, int device_id,
                                         struct dcmi_proc_mem_info *info, int *count)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (info == NULL || count == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, true);
    if (result != DCMI_OK)
        return result;
    unsigned int found = copy.process_count;
    if (found > IMAGE_MAX_PROCESSES)
        found = IMAGE_MAX_PROCESSES;
    for (unsigned int i = 0; i < found; i++) {
        info[i].proc_id = copy.process_pid[i];
        info[i].proc_mem_usage = copy.process_bytes[i];
    }
    *count = (int)found;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_boot_status(int card_id, int device_id, int *status)
{
    return READING(boot_status, status);
}

EXPORT int dcmi_get_device_power_info(int card_id, int device_id, int *power)
{
    return READING(power_dw, power);
}

EXPORT int dcmi_get_device_temperature(int card_id, int device_id, int *temperature)
{
    return READING(temp_c, temperature);
}

EXPORT int dcmi_get_device_voltage(int card_id, int device_id, unsigned int *voltage)
{
    return READING(voltage_cv, voltage);
}

EXPORT int dcmi_get_device_frequency(int card_id, int device_id, int type, unsigned int *frequency)
{
    enum { HBM_FREQUENCY = 6, AICORE_CURRENT = 7, AICORE_RATED = 9 };

    if (type == HBM_FREQUENCY)
        return READING(hbm_mhz, frequency);
    if (type == AICORE_CURRENT || type == AICORE_RATED)
        return READING(aicore_mhz, frequency);
    return DCMI_NOT_SUPPORTED;
}

EXPORT int dcmi_get_device_utilization_rate(int card_id, int device_id, int type,
                                            unsigned int *rate)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    uint32_t value;

    if (rate == NULL || chip == NULL || type <= 0 || type >= (int)IMAGE_UTILIZATION_TYPES)
        return DCMI_INVALID_PARAMETER;
    size_t from = offsetof(struct image_chip, utilization_pct) + (size_t)type * sizeof value;
    int result = read_chip(chip, from, &value, sizeof value, true);
    if (result == DCMI_OK)
        *rate = value;
    return result;
}

EXPORT int dcmi_get_device_hbm_info(int card_id, int device_id, struct dcmi_hbm_info *info)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (info == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, true);
    if (result != DCMI_OK)
        return result;
    memset(info, 0, sizeof *info);
    info->memory_size = copy.hbm_mb;
    info->memory_usage = copy.hbm_used_mb;
    info->freq = copy.hbm_mhz;
    info->temp = copy.temp_c;
    info->bandwith_util_rate = copy.hbm_bandwidth_pct;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_memory_info_v3(int card_id, int device_id, struct dcmi_memory_info *info)
{
    uint32_t alive;

    if (info == NULL)
        return DCMI_INVALID_PARAMETER;
    int result = READING(health, &alive);
    if (result == DCMI_OK)
        memset(info, 0, sizeof *info); /* a 910B has no DDR of its own */
    return result;
}

EXPORT int dcmi_get_device_outband_channel_state(int card_id, int device_id, int *state)
{
    if (state == NULL || find_chip(card_id, device_id) == NULL)
        return DCMI_INVALID_PARAMETER;
    *state = 0;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_info(int card_id, int device_id, int main_cmd, unsigned int sub_cmd,
                                void *buf, unsigned int *size)
{
    const struct image_chip *chip = find_chip(card_id, device_id);
    struct image_chip copy;

    if (buf == NULL || size == NULL || chip == NULL)
        return DCMI_INVALID_PARAMETER;
    bool is_vdev = main_cmd == VDEV_MAIN && sub_cmd == VDEV_TOTAL;
    bool is_power = main_cmd == POWER_MAIN && sub_cmd == POWER_SUB;
    if (!is_vdev && !is_power)
        return DCMI_NOT_SUPPORTED;
    unsigned int needed = is_vdev ? VDEV_TOTAL_SIZE : POWER_SIZE;
    if (*size < needed)
        return DCMI_INVALID_PARAMETER;
    int result = read_chip(chip, 0, &copy, sizeof copy, true);
    if (result != DCMI_OK)
        return result;
    memset(buf, 0, needed);
    if (is_vdev) {
        float cores[2] = {(float)copy.aicore_count, (float)copy.aicore_count * 2};
        memcpy((unsigned char *)buf + VDEV_COMPUTING_AT, cores, sizeof cores);
        memcpy((unsigned char *)buf + VDEV_MEMORY_AT, &copy.hbm_mb, sizeof copy.hbm_mb);
    } else {
        memcpy(buf, &copy.rated_power_w, sizeof copy.rated_power_w);
    }
    *size = needed;
    return DCMI_OK;
}

/* ---- calls that would change the hardware */

static int refuse(int card_id, int device_id)
{
    return find_chip(card_id, device_id) == NULL ? DCMI_INVALID_PARAMETER : DCMI_NOT_SUPPORTED;
}

EXPORT int dcmi_set_device_reset(int card_id, int device_id, int channel)
{
    (void)channel;
    return refuse(card_id, device_id);
}

EXPORT int dcmi_pre_reset_soc(int card_id, int device_id)
{
    return refuse(card_id, device_id);
}

EXPORT int dcmi_rescan_soc(int card_id, int device_id)
{
    return refuse(card_id, device_id);
}

EXPORT int dcmi_create_vdevice(int card_id, int device_id, void *wanted, void *made)
{
    if (wanted == NULL || made == NULL)
        return DCMI_INVALID_PARAMETER;
    return refuse(card_id, device_id);
}

EXPORT int dcmi_set_destroy_vdevice(int card_id, int device_id, unsigned int vdev_id)
{
    (void)vdev_id;
    return refuse(card_id, device_id);
}

/* ---- events */

static bool is_wanted(const struct image_event *event, int card_id, int device_id,
                      const struct dcmi_event_filter *filter)
{
    const struct image_chip *chip = find_by(offsetof(struct image_chip, logic_id), event->logic_id);

    if (chip == NULL)
        return false;
    if (card_id != ALL_DEVICES && card_id != chip->card_id)
        return false;
    if (device_id != ALL_DEVICES && device_id != chip->device_id)
        return false;
    if ((filter->filter_flag & FILTER_EVENT_ID) && filter->event_id != event->code)
        return false;
    if ((filter->filter_flag & FILTER_SEVERITY) && filter->severity > event->severity)
        return false;
    return !(filter->filter_flag & FILTER_NODE_TYPE) || filter->node_type == event->node_type;
}

static void deliver(const struct image_event *event)
{
    struct dcmi_event out;

    pthread_mutex_lock(&subscription.lock);
    dcmi_fault_callback handler = subscription.handler;
    bool wanted = handler != NULL && is_wanted(event, subscription.card_id, subscription.device_id,
                                               &subscription.filter);
    pthread_mutex_unlock(&subscription.lock);
    if (!wanted)
        return;
    memset(&out, 0, sizeof out);
    struct dcmi_dms_fault_event *fault = &out.event_t.dms_event;
    fault->event_id = event->code;
    fault->deviceid = (unsigned short)event->logic_id;
    fault->node_type = event->node_type;
    fault->severity = event->severity;
    fault->assertion = event->assertion;
    fault->event_serial_num = (int)(event->number & SERIAL_MASK);
    fault->notify_serial_num = (int)(event->number & SERIAL_MASK);
    fault->alarm_raised_time = event->raised_ms;
    snprintf(fault->event_name, sizeof fault->event_name, "event 0x%08X, device %u, assertion %u",
             event->code, event->logic_id, event->assertion);
    handler(&out);
}

/* Hand over events from number `next` on; one that was overwritten meanwhile is lost. */
static uint64_t drain(const unsigned char *base, uint64_t next)
{
    const struct image_event *ring = (const struct image_event *)(const void *)(base + IMAGE_EVENTS_AT);
    uint64_t count = __atomic_load_n(&header_of(base)->event_count, __ATOMIC_ACQUIRE);

    if (count - next > IMAGE_EVENT_SLOTS)
        next = count < next ? count : count - IMAGE_EVENT_SLOTS;
    for (; next < count; next++) {
        const struct image_event *slot = &ring[next % IMAGE_EVENT_SLOTS];
        struct image_event copy = *slot;
        atomic_thread_fence(memory_order_acquire);
        if (copy.number == next + 1 && __atomic_load_n(&slot->number, __ATOMIC_RELAXED) == next + 1)
            deliver(&copy);
    }
    return next;
}

static void *watch(void *unused)
{
    const unsigned char *base = subscription.base;
    uint64_t next = subscription.next;
    const struct timespec limit = {.tv_sec = 0, .tv_nsec = WAIT_NS};

    (void)unused;
    for (;;) {
        const unsigned char *current = atomic_load(&image);
        if (current == NULL) {
            nanosleep(&limit, NULL);
            continue;
        }
        const struct image_header *header = header_of(current);
        if (current != base) {
            base = current;
            next = __atomic_load_n(&header->event_count, __ATOMIC_ACQUIRE);
        }
        uint32_t word = __atomic_load_n(&header->event_word, __ATOMIC_ACQUIRE);
        next = drain(base, next);
        syscall(SYS_futex, &header->event_word, FUTEX_WAIT, word, &limit, NULL, 0);
    }
    return NULL;
}

static int start_watching(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the thread takes no signal of its host */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int failed = pthread_create(&thread, &attributes, watch, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed ? DCMI_INNER_ERROR : DCMI_OK;
}

EXPORT int dcmi_subscribe_fault_event(int card_id, int device_id, struct dcmi_event_filter filter,
                                      dcmi_fault_callback handler)
{
    int result = DCMI_OK;

    if (handler == NULL)
        return DCMI_INVALID_PARAMETER;
    if (atomic_load(&image) == NULL)
        return DCMI_INNER_ERROR;
    bool is_all = card_id == ALL_DEVICES && device_id == ALL_DEVICES;
    if (!is_all && find_chip(card_id, device_id == ALL_DEVICES ? 0 : device_id) == NULL)
        return DCMI_INVALID_PARAMETER;
    pthread_mutex_lock(&subscription.lock);
    subscription.card_id = card_id;
    subscription.device_id = device_id;
    subscription.filter = filter;
    subscription.handler = handler;
    if (!subscription.is_running) {
        /* Taken here, not in the thread: an event right after this call must be heard. */
        subscription.base = atomic_load(&image);
        subscription.next =
            __atomic_load_n(&header_of(subscription.base)->event_count, __ATOMIC_ACQUIRE);
        result = start_watching();
        subscription.is_running = result == DCMI_OK;
    }
    pthread_mutex_unlock(&subscription.lock);
    return result;
}
