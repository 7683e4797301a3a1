/*
 * npu-smi, for the products of this testbed: layouts and texts of
 * hicann/driver:src/custom/dev_prod/user/npucli, read through libdcmi.so like any other client.
 */
#ifndef NPU_TESTBED_SMI_H
#define NPU_TESTBED_SMI_H
#include "dcmi.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CARDS 64
#define MAX_PROCESSES 32
#define MAX_CODES 128
#define MISSING (-99998)
#define NOT_SUPPORTED (-8255)
#define OCCUPIED (-8020)
#define WRONG_PARAMETER (-9001)
#define NO_COMMAND (-9005)
#define TEXT 64

enum family { FAMILY_310, FAMILY_910, FAMILY_A3, FAMILY_950 };

extern void *smi_library;
extern enum family smi_family;

/* Call a library function; a missing symbol answers like a failed call. */
#define CALL(name, ...)                                                                            \
    __extension__({                                                                                \
        __typeof__(&name) name##_call;                                                             \
        *(void **)(&name##_call) = dlsym(smi_library, #name);                                      \
        name##_call == NULL ? MISSING : name##_call(__VA_ARGS__);                                  \
    })

/* The call of this family's generation: by card and chip, or by device id on a 950. */
#define CHIP(old, new, card, chip, ...)                                                            \
    (smi_family == FAMILY_950 ? CALL(new, card, __VA_ARGS__) : CALL(old, card, chip, __VA_ARGS__))

/* One chip as the tables show it. */
struct chip_view {
    int card;
    int chip;
    struct dcmi_chip_info_v2 info;
    int info_code;
    unsigned int health;
    int health_code;
    int power_dw;
    int power_code;
    int temperature;
    unsigned int aicore;
    struct dcmi_hbm_info hbm;
    struct dcmi_get_memory_info_stru memory;
    struct dcmi_pcie_info_all pcie;
    int pcie_code;
    int logic_id;
    unsigned int phy_id;
    int phy_code;
};

struct query {
    const char *type;
    const char *template_name;
    int card;
    int chip;
    int vnpu;
    int mode;
    int seconds;
    bool has_card;
    bool has_chip;
    bool is_list;
    bool is_map;
};

int smi_cards(int *cards, int *count);
int smi_chips(int card);
bool smi_has_mcu(int card, int *mcu);
struct chip_view smi_look(int card, int chip);
const char *smi_health_word(unsigned int health);
int smi_table(void);
int smi_list(void);
int smi_map(void);
int smi_query(const struct query *query);
int smi_watch(const struct query *query);
int smi_set(const struct query *query);
int smi_wrong(const char *text);
void smi_line(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
