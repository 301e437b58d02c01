/* Situation: a program with a past. Three workers and main allocate, hold, churn, leak, spike, free
 * each other's blocks and grow one by realloc, one phase after another; between phases all is
 * quiet.
 * A correct profiler knows the heap at any of the quiet instants, the allocations and frees between
 * any two of these, and the peak (the second block of site_spike). It knows which blocks were
 * temporary, how long each block lived, the byte-seconds, how fast each site grew, and the waste.
 * If it is wrong: an event is in the wrong window, a free is missed, times are off, or a weight is
 * wrong.
 *
 * Truth: every block has a record, written by the threads that allocate and free it, with the
 * monotonic clock before and after the call. Instants are blocks of site_marker: their sizes are
 * their numbers. They are so large that sampling at 4 KiB on average misses none (once in 10^14).
 *
 *   life <site> <thread> <size> <slack> <born after> <born before> <freed after> <freed before>
 *        <nth> <nth then>     (on the same line)
 *
 * Times in ns: the call was made between the two; freed -1 -1 is in use. "nth": which of its
 * thread's allocations it was; "nth then": how many its thread had made when it was freed.
 *
 * Usage: known_history [scale]; default 1.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WORKERS = 3, MAIN = WORKERS, MOST_LIVES = 400000, MARKER = 131072, QUIET_US = 60, PAUSE_US = 3000 };

enum site { MARKER_SITE, BASE, HOLD, REQUEST, LEAK, SPIKE, GROW, SITES };
static const char *const names[SITES] = {
    "site_marker", "site_base", "site_hold", "site_request", "site_leak", "site_spike", "site_grow",
};

struct life {
    void *block;
    size_t size, slack;
    int64_t born[2], freed[2];
    long nth, nth_then;
    int site, thread;
};

/* Static, so that the account itself allocates nothing. */
static struct life lives[MOST_LIVES];
static int number_of_lives;
static long allocations[WORKERS + 1];
static int scale = 1;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void busy_us(int64_t us)
{
    for (int64_t until = now() + us * 1000; now() < until;)
        ;
}

static struct life *begin(int thread, int site, size_t size)
{
    int index = __atomic_fetch_add(&number_of_lives, 1, __ATOMIC_RELAXED);
    if (index >= MOST_LIVES)
        exit(2);
    struct life *life = &lives[index];
    life->site = site;
    life->thread = thread;
    life->size = size;
    life->freed[0] = life->freed[1] = -1;
    life->nth = ++allocations[thread];
    life->born[0] = now();
    return life;
}

static struct life *born(struct life *life, void *block)
{
    life->born[1] = now();
    if (!block)
        exit(2);
    life->block = block;
    life->slack = malloc_usable_size(block) - life->size;
    return life;
}

#define SITE(name, site)                                                                                              \
    OWN_FRAME static struct life *name(int thread, size_t size)                                                       \
    {                                                                                                                 \
        struct life *life = begin(thread, site, size);                                                                \
        return born(life, malloc(size));                                                                              \
    }

SITE(site_marker, MARKER_SITE)
SITE(site_base, BASE)
SITE(site_hold, HOLD)
SITE(site_request, REQUEST)
SITE(site_leak, LEAK)
SITE(site_spike, SPIKE)

/* The old block ends when the new one begins. */
OWN_FRAME static struct life *site_grow(int thread, struct life *old, size_t size)
{
    struct life *life = begin(thread, GROW, size);
    void *block = realloc(old ? old->block : NULL, size);
    born(life, block);
    if (old) {
        old->freed[0] = life->born[0];
        old->freed[1] = life->born[1];
        old->nth_then = life->nth - 1;
    }
    return life;
}

static void ends(struct life *life)
{
    life->nth_then = allocations[life->thread];
    life->freed[0] = now();
    free(life->block);
    life->freed[1] = now();
}

/* Sizes from 1 to `most`, in an order without a pattern. */
static size_t mixed(unsigned i, unsigned most)
{
    return 1 + (i * 2654435761u >> 8) % most;
}

enum { HELD = 150, REQUESTS = 400, LEAKED = 150, BASED = 400, LATE = 5 };
static struct life *held[WORKERS][HELD * 64];

static void holds(int t)
{
    for (int i = 0; i < HELD * scale; i++)
        held[t][i] = site_hold(t, 500 + mixed((unsigned)(i * WORKERS + t), 3000));
}

/* Each request is answered after at most four others. */
static void serves(int t)
{
    struct life *due[LATE][LATE] = {{NULL}};
    for (int i = 0; i < REQUESTS * scale + LATE; i++) {
        if (i < REQUESTS * scale) {
            int late = i % LATE;
            due[(i + late) % LATE][late] = site_request(t, mixed((unsigned)(i + 7 * t), 4000));
        }
        for (int late = 0; late < LATE; late++) {
            if (due[i % LATE][late]) {
                ends(due[i % LATE][late]);
                due[i % LATE][late] = NULL;
            }
        }
    }
}

static void leaks(int t)
{
    for (int i = 0; i < LEAKED * scale; i++) {
        site_leak(t, 900 + mixed((unsigned)i, 900));
        busy_us(5);
    }
}

/* All but every tenth of the next worker's blocks; that worker is not allocating. */
static void frees_the_next_ones(int t)
{
    int next = (t + 1) % WORKERS;
    for (int i = 0; i < HELD * scale; i++)
        if (i % 10 != 0)
            ends(held[next][i]);
}

static void (*const phases[])(int) = {holds, serves, leaks, frees_the_next_ones, leaks, serves};
enum { PHASES = sizeof phases / sizeof *phases };
static pthread_barrier_t begins, over;

static void *worker(void *number)
{
    int t = (int)(intptr_t)number;
    for (int phase = 0; phase < PHASES; phase++) {
        pthread_barrier_wait(&begins);
        phases[phase](t);
        pthread_barrier_wait(&over);
    }
    return NULL;
}

static void workers_do_the_next(void)
{
    pthread_barrier_wait(&begins);
    pthread_barrier_wait(&over);
}

/* An instant at which nothing else happens. */
static void instant(void)
{
    static int number;
    busy_us(QUIET_US);
    struct life *marker = site_marker(MAIN, MARKER + (size_t)number++);
    busy_us(QUIET_US);
    ends(marker);
    busy_us(PAUSE_US);
}

int main(int argc, char **argv)
{
    static struct life *base[BASED * 64];
    pthread_t handles[WORKERS];
    if (argc > 1)
        scale = atoi(argv[1]);
    if (scale < 1 || scale > 64)
        return 2;
    pthread_barrier_init(&begins, NULL, WORKERS + 1);
    pthread_barrier_init(&over, NULL, WORKERS + 1);
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&handles[i], NULL, worker, (void *)(intptr_t)i) != 0)
            return 2;

    instant(); /* 0: nothing yet */
    for (int i = 0; i < BASED * scale; i++)
        base[i] = site_base(MAIN, 200 + mixed((unsigned)i, 2000));
    instant(); /* 1: the base */
    workers_do_the_next();
    instant(); /* 2: held */
    workers_do_the_next();
    instant(); /* 3: requests came and went */
    workers_do_the_next();
    instant(); /* 4: leaked */
    for (int i = 0; i < 3; i++) {
        /* The second is the highest. */
        struct life *spike = site_spike(MAIN, (size_t)scale * (i == 1 ? 3500000 : 3000000));
        busy_us(1000);
        ends(spike);
        busy_us(200);
    }
    instant(); /* 5: the peak is past */
    workers_do_the_next();
    instant(); /* 6: most held blocks are free */
    workers_do_the_next();
    instant(); /* 7: leaked again */
    struct life *grown = NULL;
    for (size_t size = 1000; size <= 512000 * (size_t)scale; size *= 2) {
        grown = site_grow(MAIN, grown, size);
        busy_us(50);
    }
    instant(); /* 8: grown */
    workers_do_the_next();
    for (int i = 0; i < BASED * scale; i += 2)
        ends(base[i]);
    instant(); /* 9: half of the base is free */

    for (int i = 0; i < WORKERS; i++)
        pthread_join(handles[i], NULL);
    for (int i = 0; i < number_of_lives; i++) {
        struct life *l = &lives[i];
        printf("life %s %d %zu %zu %lld %lld %lld %lld %ld %ld\n", names[l->site], l->thread, l->size, l->slack,
               (long long)l->born[0], (long long)l->born[1], (long long)l->freed[0], (long long)l->freed[1], l->nth,
               l->nth_then);
    }
    return 0;
}
