/* Situation: a program runs for so long that a log with a bound (HEAPPROF_MAX_LOG) rotates many
 * times. Four threads allocate and free blocks of eight sizes by eight sites. Each thread keeps a
 * set of live blocks. Its first 50 blocks (or another number) stay to the end, through all
 * rotations. With `fork`, a child goes on in this way with the inherited blocks, and the parent
 * waits.
 *
 * usage: rotates [operations per thread [end | fork [blocks of each thread that stay]]]
 *
 * A correct profiler shows, at interval 1, exactly the `count` lines, whatever part of the past it
 * has thrown away. A rotated log never takes more than its bound.
 * If it is wrong: a count is off, because the checkpoint of a segment forgets a block or counts one
 * twice, or an event falls between two segments.
 *
 * Prints: `child <pid>`, and at the end `count <size> <allocated> <in use>` for each size. With
 * `fork` the counts are the child's, and inherited blocks count as allocated.
 */
#include "frames.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, SITES = 8, SLOTS = 200, MOST_FIRST = 1000000 };

/* One size class each. */
static const size_t SIZES[SITES] = { 24, 72, 200, 520, 1100, 2300, 5000, 70000 };

static atomic_long allocated[SITES], freed[SITES];

struct slot {
    void *block;
    int site;
};

static struct slot slots[THREADS][SLOTS];
static void *first[THREADS][MOST_FIRST];
static long operations = 100000, firsts = 50;

#define SITE(n)                                                                                                  \
    OWN_FRAME static void *site_##n(void)                                                                        \
    {                                                                                                            \
        void *block = escapes(malloc(SIZES[n]));                                                                 \
        NO_TAIL_CALL();                                                                                          \
        return block;                                                                                            \
    }
SITE(0) SITE(1) SITE(2) SITE(3) SITE(4) SITE(5) SITE(6) SITE(7)

static void *(*const SITE_OF[SITES])(void) = { site_0, site_1, site_2, site_3, site_4, site_5, site_6, site_7 };

static void *allocate(int site)
{
    void *block = SITE_OF[site]();
    if (!block)
        abort();
    atomic_fetch_add(&allocated[site], 1);
    return block;
}

static void release(struct slot *slot)
{
    if (!slot->block)
        return;
    free(slot->block);
    slot->block = NULL;
    atomic_fetch_add(&freed[slot->site], 1);
}

static void churn(int thread, unsigned seed)
{
    unsigned state = seed + 12345u * (unsigned)thread;
    for (long i = 0; i < operations; i++) {
        state = state * 1664525u + 1013904223u;
        struct slot *slot = &slots[thread][(state >> 8) % SLOTS];
        release(slot);
        if (state >> 31) {
            slot->site = (int)((state >> 20) % SITES);
            slot->block = allocate(slot->site);
        }
    }
}

static void *run(void *argument)
{
    int thread = (int)(long)argument;
    for (long i = 0; i < firsts; i++)
        first[thread][i] = allocate((int)(i % (SITES / 2)));
    churn(thread, 1);
    return NULL;
}

static void report(void)
{
    for (int site = 0; site < SITES; site++)
        printf("count %zu %ld %ld\n", SIZES[site], atomic_load(&allocated[site]),
               atomic_load(&allocated[site]) - atomic_load(&freed[site]));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (argc > 1)
        operations = atol(argv[1]);
    const char *way = argc > 2 ? argv[2] : "end";
    if (argc > 3)
        firsts = atol(argv[3]);
    if (firsts > MOST_FIRST)
        return 2;
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, run, (void *)i) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (strcmp(way, "fork") == 0) {
        fflush(stdout);
        /* Blocks in use here are all that the child can inherit. */
        for (int site = 0; site < SITES; site++) {
            atomic_store(&allocated[site], atomic_load(&allocated[site]) - atomic_load(&freed[site]));
            atomic_store(&freed[site], 0);
        }
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            for (int i = 0; i < THREADS; i++)
                churn(i, 7);
            report();
            exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
        printf("child %d\n", (int)child);
        fflush(stdout);
        return 0;
    }
    report();
    return 0;
}
