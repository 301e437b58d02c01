/* Situation: threads allocate and free blocks of mixed sizes at full speed, each with a live set of
 * 1000 blocks. It is for tests under load, and for a first look at overhead.
 * A correct profiler shows one site, churns, and a live set of at most `threads` x 1000 blocks.
 * If it is wrong: frees are lost under load and the live set seems to grow: phantom leaks.
 *
 *   churn [threads [<n>s | <operations per thread>]]
 *
 * The default is 4 threads with 1000000 operations each.
 *
 * Prints `ops <n>` (one operation: one free and one malloc), and `live <blocks> <bytes>` requested
 * at the end.
 */
#include "frames.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_THREADS = 256, LIVE = 1000 };

struct thread {
    pthread_t handle;
    uint64_t random;
    uint64_t operations;
    void *blocks[LIVE];
    size_t sizes[LIVE];
};

static struct thread threads[MAX_THREADS];
static uint64_t operations_wanted = 1000000;
static double seconds_wanted; /* 0: count operations */

/* xorshift64: deterministic for each thread number. */
static uint64_t next_random(struct thread *self)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return self->random;
}

/* Mostly small, now and then large: 16 B..1 KiB for 15 of 16, up to 64 KiB for the rest. */
static size_t next_size(struct thread *self)
{
    uint64_t random = next_random(self);
    return random % 16 == 0 ? 1 + (random >> 8) % 65536 : 16 + (random >> 8) % 1009;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void replaces_one_block(struct thread *self)
{
    size_t slot = next_random(self) % LIVE;
    free(self->blocks[slot]);
    self->sizes[slot] = next_size(self);
    self->blocks[slot] = malloc(self->sizes[slot]);
    *(char *)self->blocks[slot] = 1;
    self->operations++;
}

OWN_FRAME static void *churns(void *thread)
{
    struct thread *self = thread;
    double end = now() + seconds_wanted;
    if (seconds_wanted == 0)
        while (self->operations < operations_wanted)
            replaces_one_block(self);
    else
        while (now() < end)
            for (int i = 0; i < 1000; i++)
                replaces_one_block(self);
    return NULL;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 4;
    if (argc > 2 && argv[2][strlen(argv[2]) - 1] == 's')
        seconds_wanted = atof(argv[2]);
    else if (argc > 2)
        operations_wanted = strtoull(argv[2], NULL, 10);
    if (count < 1 || count > MAX_THREADS) {
        fprintf(stderr, "usage: churn [threads [<n>s | <operations per thread>]]\n");
        return 2;
    }
    for (int i = 0; i < count; i++) {
        threads[i].random = 88172645463325252ull + (uint64_t)i;
        if (pthread_create(&threads[i].handle, NULL, churns, &threads[i]) != 0)
            return 2;
    }
    uint64_t operations = 0, blocks = 0, bytes = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i].handle, NULL);
        operations += threads[i].operations;
        for (int j = 0; j < LIVE; j++) {
            blocks += threads[i].blocks[j] != NULL;
            bytes += threads[i].sizes[j];
        }
    }
    printf("ops %llu\n", (unsigned long long)operations);
    printf("live %llu %llu\n", (unsigned long long)blocks, (unsigned long long)bytes);
    return 0;
}
