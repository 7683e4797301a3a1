/*
 * The writer's side of the image, in C for the sake of its memory order: put a block in place,
 * append an event, wake those who wait.
 */
#include "image_layout.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Relaxed stores, so that a reader in the same process races with nothing. */
static void store_bytes(unsigned char *to, const unsigned char *from, size_t size)
{
    size_t i = 0;

    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, from + i, sizeof word);
        __atomic_store_n((uint64_t *)(void *)(to + i), word, __ATOMIC_RELAXED);
    }
    for (; i < size; i++)
        __atomic_store_n(to + i, from[i], __ATOMIC_RELAXED);
}

/* A block is {sequence, reserved, copy, copy}: fill the copy that does not hold, then let it hold. */
EXPORT void publish_block(void *block, const void *content, size_t size)
{
    uint32_t *sequence = block;
    uint32_t now = __atomic_load_n(sequence, __ATOMIC_RELAXED);
    unsigned char *spare = (unsigned char *)block + 8 + ((now + 1u) & 1u) * size;

    /* The spare copy may still be read by one who looked before the last change: that reader sees
     * the sequence has moved on, which is ordered before the bytes below. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    store_bytes(spare, content, size);
    __atomic_store_n(sequence, now + 1u, __ATOMIC_RELEASE);
}

EXPORT void publish_word(uint32_t *place, uint32_t value)
{
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
}

EXPORT void publish_event(unsigned char *base, const struct image_event *event)
{
    struct image_header *header = (struct image_header *)(void *)base;
    struct image_event *ring = (struct image_event *)(void *)(base + IMAGE_EVENTS_AT);
    uint64_t number = __atomic_load_n(&header->event_count, __ATOMIC_RELAXED);
    struct image_event *slot = &ring[number % IMAGE_EVENT_SLOTS];

    __atomic_store_n(&slot->number, 0, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    store_bytes((unsigned char *)slot + 8, (const unsigned char *)event + 8, sizeof *slot - 8);
    __atomic_store_n(&slot->number, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&header->event_count, number + 1, __ATOMIC_RELEASE);
}

/* Change a word and wake everybody who waits for it to change. */
EXPORT void bump_word(uint32_t *word)
{
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
