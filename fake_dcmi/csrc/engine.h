/*
 * What every call of libdcmi.so goes through: find the image, the gate, the chip; read a block
 * whole; note the call. The functions themselves are in calls.c (generated) and answers.c.
 *
 * Rules: a getter never blocks, allocates or does I/O. All words of the image are read as relaxed
 * atomics between two looks at their block's sequence number.
 */
#ifndef NPU_TESTBED_ENGINE_H
#define NPU_TESTBED_ENGINE_H
#include "dcmi.h"
#include "functions.h"
#include "image_layout.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID_PARAMETER = -8001,
    NOT_PERMITTED = -8002,
    INNER_ERROR = -8005,
    TIME_OUT = -8006,
    NOT_READY = -8012,
    NOT_IN_CONTAINER = -8013,
    NOT_SUPPORTED = -8255,
};
#define ANY_ID (-1)
#define NO_ID INT_MIN /* a call that names no card */
#define UNIT_NPU 0u
#define UNIT_MCU 1u

/* A writer at full speed can be in the way again and again; give up after this many looks. */
#define MAX_LOOKS 1000000u

/* What one process may see; NULL on the host, where everything is visible. */
struct view {
    bool is_privileged;
    unsigned int count;                      /* visible NPU chips */
    uint16_t chips[IMAGE_MAX_IDS];           /* logic id in the container -> chip */
    int16_t logic_ids[IMAGE_MAX_CHIPS];      /* chip -> logic id, -1 when it is invisible */
};

struct call {
    const unsigned char *base;
    unsigned char *log;
    unsigned int chips;
    const struct view *view;
    const struct chip_block *chip;
    unsigned int function;
    int card_id;
    int device_id;
    int code;
};

/* An image that is open. The number of chips is kept, since the file could change under us. */
struct opened {
    const unsigned char *base;
    unsigned char *log; /* where calls are noted, NULL where there is no log */
    unsigned int chips;
};

extern _Atomic(const struct opened *) dcmi_image;
extern _Atomic(const struct view *) dcmi_view;

int open_image(void);
bool obey_script(struct call *call);
void note_call(const struct call *call);
int ask_simulator(struct call *call, const void *in, size_t in_size, void *out, size_t out_size);
int place_text(const char *from, size_t from_size, char *to, long size);

#define GET(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)

static inline const struct image_header *header_of(const unsigned char *base)
{
    return (const struct image_header *)(const void *)base;
}

static inline const struct node_block *node_of(const unsigned char *base)
{
    return (const struct node_block *)(const void *)(base + IMAGE_NODE_AT);
}

static inline const struct chip_block *chip_block_at(const unsigned char *base, unsigned int index)
{
    return (const struct chip_block *)(const void *)(base + IMAGE_CHIPS_AT) + index;
}

/* The copy that holds now; `seen` is for `is_stale`. */
static inline const struct image_chip *look_at_chip(const struct chip_block *block, uint32_t *seen)
{
    *seen = __atomic_load_n(&block->sequence, __ATOMIC_ACQUIRE);
    return &block->copy[*seen & 1u];
}

static inline const struct image_node *look_at_node(const struct node_block *block, uint32_t *seen)
{
    *seen = __atomic_load_n(&block->sequence, __ATOMIC_ACQUIRE);
    return &block->copy[*seen & 1u];
}

/* True when what was read must be read again; sets the code when that goes on for ever. */
static inline bool is_stale(const uint32_t *sequence, uint32_t seen, unsigned int *looks, int *code)
{
#if defined(__x86_64__) || defined(__i386__)
    atomic_signal_fence(memory_order_acquire); /* loads stay in order on this processor */
#else
    atomic_thread_fence(memory_order_acquire);
#endif
    if (__builtin_expect(__atomic_load_n(sequence, __ATOMIC_RELAXED) == seen, 1))
        return false;
    if (++*looks < MAX_LOOKS)
        return true;
    *code = TIME_OUT;
    return false;
}

static inline void copy_bytes(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((unsigned char *)to)[i] = GET(((const unsigned char *)from)[i]);
}

static inline void copy_words(void *to, const void *from, size_t size)
{
    uint32_t word;

    for (size_t i = 0; i + sizeof word <= size; i += sizeof word) {
        word = GET(*(const uint32_t *)(const void *)((const unsigned char *)from + i));
        memcpy((unsigned char *)to + i, &word, sizeof word);
    }
}

/* A text field into a caller's array of `size` bytes, always ended and padded with zeros. */
static inline void copy_text(void *to, size_t size, const void *from, size_t from_size)
{
    size_t taken = from_size < size ? from_size : size;

    copy_bytes(to, from, taken);
    memset((unsigned char *)to + taken, 0, size - taken);
    ((unsigned char *)to)[size - 1] = '\0';
}

static inline unsigned int chip_index(const struct call *call, const struct chip_block *chip)
{
    return (unsigned int)(chip - chip_block_at(call->base, 0));
}

static inline const struct chip_block *chip_by(const struct call *call, const uint16_t *slot)
{
    unsigned int index = GET(*slot);

    if (index >= call->chips)
        return NULL;
    if (call->view != NULL && call->view->logic_ids[index] < 0)
        return NULL;
    return chip_block_at(call->base, index);
}

static inline const struct chip_block *chip_of_pair(const struct call *call, int card, int device)
{
    uint32_t seen;

    if (card < 0 || card >= (int)IMAGE_MAX_CARD_ID || device < 0 || device >= (int)IMAGE_MAX_DEVICES)
        return NULL;
    const struct image_node *node = look_at_node(node_of(call->base), &seen);
    return chip_by(call, &node->by_pair[(unsigned)card * IMAGE_MAX_DEVICES + (unsigned)device]);
}

static inline const struct chip_block *chip_of_logic(const struct call *call, unsigned int logic)
{
    uint32_t seen;

    if (logic >= IMAGE_MAX_IDS)
        return NULL;
    if (call->view != NULL)
        return logic < call->view->count ? chip_block_at(call->base, call->view->chips[logic])
                                         : NULL;
    return chip_by(call, &look_at_node(node_of(call->base), &seen)->by_logic[logic]);
}

static inline const struct chip_block *chip_of_phy(const struct call *call, unsigned int phy)
{
    uint32_t seen;

    if (phy >= IMAGE_MAX_IDS)
        return NULL;
    return chip_by(call, &look_at_node(node_of(call->base), &seen)->by_phy[phy]);
}

/* Take hold of the image that is open; false when none is. */
static inline bool hold_image(struct call *call)
{
    const struct opened *image = atomic_load_explicit(&dcmi_image, memory_order_acquire);

    call->base = NULL;
    call->view = atomic_load_explicit(&dcmi_view, memory_order_acquire);
    call->code = OK;
    if (image == NULL)
        return false;
    call->base = image->base;
    call->log = image->log;
    call->chips = image->chips;
    return true;
}

/* Begin a call: false when its answer is settled already (call->code). */
static inline bool enter(struct call *call, unsigned int function, int card, int device,
                         int without_image)
{
    bool is_open = hold_image(call);
    call->chip = NULL;
    call->function = function;
    call->card_id = card;
    call->device_id = device;
    if (__builtin_expect(!is_open, 0)) {
        call->code = without_image;
        return false;
    }
    uint32_t gate = GET(header_of(call->base)->gates[function]);
    if (__builtin_expect(gate & GATE_SCRIPTED, 0) && obey_script(call))
        return false;
    return true;
}

/* The product's refusal, which comes after the checks of the arguments. */
static inline bool is_refused(struct call *call)
{
    uint32_t code = GET(header_of(call->base)->gates[call->function]) & GATE_CODE;

    if (__builtin_expect(code == 0, 1))
        return false;
    call->code = -(int)code;
    return true;
}

static inline bool needs(struct call *call, bool has_arguments)
{
    if (__builtin_expect(has_arguments, 1))
        return true;
    call->code = INVALID_PARAMETER;
    return false;
}

static inline bool needs_chip(struct call *call, const struct chip_block *chip)
{
    call->chip = chip;
    return needs(call, chip != NULL);
}

/* What a chip answers before any reading: nothing wrong, or why not. */
static inline int chip_code(const struct image_chip *chip, bool is_reading, bool takes_mcu)
{
    int alive = GET(chip->alive);

    if (__builtin_expect(alive != 0, 0) && is_reading)
        return alive < 0 ? alive : INNER_ERROR;
    if (__builtin_expect(GET(chip->unit) != UNIT_NPU, 0) && !takes_mcu)
        return NOT_SUPPORTED;
    return OK;
}

/* End a call. */
static inline int leave(const struct call *call)
{
    if (__builtin_expect(call->base != NULL, 1) &&
        __builtin_expect(GET(header_of(call->base)->calls_logged), 0))
        note_call(call);
    return call->code;
}

#endif
