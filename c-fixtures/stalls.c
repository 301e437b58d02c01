/* Situation: a program with many blocks in use goes on allocating while the log rotates, and reads
 * the clock before and after each malloc and free.
 *
 * usage: stalls [blocks in use [seconds]]
 *
 * A correct profiler lets no hook wait long for a checkpoint, for any number of blocks in it.
 *
 * Prints `pairs <n>`, `longest <microseconds> …` (the ten longest pairs of malloc and free), and
 * `above <microseconds> <pairs>` for each power of ten.
 */
#include "frames.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Pairs that make at least a megabyte of log. */
enum { LONGEST = 10, KEPT = 100, PASSING = 64, LEAST_PAIRS = 250000 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

OWN_FRAME static void *keeps(void)
{
    void *block = escapes(malloc(KEPT));
    NO_TAIL_CALL();
    return block;
}

OWN_FRAME static int64_t passes(void)
{
    int64_t before = now_ns();
    free(escapes(malloc(PASSING)));
    int64_t after = now_ns();
    NO_TAIL_CALL();
    return after - before;
}

int main(int argc, char **argv)
{
    long blocks = argc > 1 ? atol(argv[1]) : 100000;
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    void **kept = malloc(blocks * sizeof *kept);
    for (long i = 0; i < blocks; i++)
        kept[i] = keeps();

    int64_t longest[LONGEST] = { 0 };
    long above[7] = { 0 }; /* 1, 10, 100 µs, 1, 10, 100 ms, 1 s */
    long pairs = 0;
    int64_t end = now_ns() + (int64_t)(seconds * 1e9);
    do {
        int64_t took = passes();
        pairs++;
        int64_t limit = 1000;
        for (int i = 0; i < 7 && took > limit; i++, limit *= 10)
            above[i]++;
        for (int i = 0; i < LONGEST; i++)
            if (took > longest[i]) {
                int64_t shorter = longest[i];
                longest[i] = took;
                took = shorter;
            }
    } while (now_ns() < end || pairs < LEAST_PAIRS);

    printf("pairs %ld\nlongest", pairs);
    for (int i = 0; i < LONGEST; i++)
        printf(" %lld", (long long)(longest[i] / 1000));
    printf("\n");
    for (int i = 0, us = 1; i < 7; i++, us *= 10)
        printf("above %d %ld\n", us, above[i]);
    /* All blocks stay in use. */
    escapes(kept);
    return 0;
}
