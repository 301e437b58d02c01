/*
 * Pace: how long a program of the collection runs, and how it rests between its steps.
 *
 * argv[1] is the length of the run in seconds. Without it, a program runs until SIGTERM, and its
 * phases are those of a minute.
 */
#ifndef PACE_H
#define PACE_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * A function that a label names: it has a frame of its own in every stack, and it is not merged
 * with an equal function.
 */
#define SITE __attribute__((noinline, noclone, no_icf))

static double pace_begun, pace_length;
static volatile sig_atomic_t pace_ended;

static inline void pace_end(int signal) {
    pace_ended = signal;
}

static inline double pace_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void begin(int argc, char **argv) {
    signal(SIGTERM, pace_end);
    pace_begun = pace_clock();
    pace_length = argc > 1 ? atof(argv[1]) : 0;
}

/* Seconds since the beginning. */
static inline double seconds(void) {
    return pace_clock() - pace_begun;
}

/* The share of the run that is over. */
static inline double part(void) {
    return seconds() / (pace_length > 0 ? pace_length : 60);
}

static inline int going(void) {
    return !pace_ended && (pace_length <= 0 || seconds() < pace_length);
}

static inline void rest(int milliseconds) {
    struct timespec length = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&length, NULL);
}

/* A number below `limit`, from a sequence that is the same in every run. */
static inline unsigned chance(unsigned limit) {
    static __thread unsigned long long state = 0x9e3779b97f4a7c15ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state >> 33) % limit;
}

/* Writes to a block, so that neither the block nor the call that made it can be optimised away. */
static inline void *fill(void *block, size_t size) {
    memset(block, 7, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    return block;
}

#endif
