/* Shared parts of the C workloads: arguments, random numbers, sizes, frames. */
#ifndef WORK_H
#define WORK_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function with one body and a frame of its own. */
#define OWN_FRAME __attribute__((noipa))
/* After a call in last position: it cannot become a jump. */
#define NO_TAIL_CALL() __asm__ volatile("" ::: "memory")

/* Makes the compiler believe that the block is read: the allocation stays. */
static inline __attribute__((always_inline)) void *escapes(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

/* Returns the same sequence in every run, so that all contestants do the same work. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

/* Typical small requests of C and C++ programs; their mean is 74.5 bytes. */
static const uint16_t SIZES[16] = {16, 24, 24, 32, 32, 40, 48, 48, 56, 64, 72, 88, 104, 128, 160, 256};

static inline size_t small_size(uint64_t random) { return SIZES[random & 15]; }

static inline long argument(int argc, char **argv, int at, long otherwise)
{
    return argc > at ? atol(argv[at]) : otherwise;
}

static inline void *must(void *block)
{
    if (block == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return block;
}

#endif
