/* Situation: a program leaks slowly and churns fast, so that a log with a bound (HEAPPROF_MAX_LOG)
 * drops the time of the leak's beginning many times over. A cache of constant size is there from
 * the first round on. One round has a spike. Each round leaks first and churns then. Behind the
 * leak and behind the round, nothing happens for a while.
 *
 * usage: leaks_for_long [rounds]
 *
 * A correct profiler can tell, of any moment that it has kept, what was in use: between two rounds
 * exactly the bytes of the last `round` line, in a round at most one block of the churn more, and
 * until its leak is complete at least the bytes of the line before.
 * If it is wrong: a moment has the bytes of another time, or the spike is in none.
 *
 * Prints, for each round: `round <ns begun> <ns leaked> <ns churned> <bytes in use> <bytes
 * leaked>`, by the monotonic clock. The spike comes and goes between `begun` and `leaked`.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    LEAKED = 3000,       /* bytes of a leaked block */
    CACHED = 500,        /* bytes of a block of the cache */
    CACHE_BLOCKS = 100,  /* blocks of the cache */
    CHURNED = 48,        /* bytes of a block that is freed at once */
    CHURNS = 3000,       /* blocks of the churn in a round */
    SPIKE = 5 << 20,     /* bytes of the spike */
    SPIKE_ROUND = 20,    /* the round of the spike */
    SHORT_NS = 2000000,  /* the time behind a leak */
    PAUSE_NS = 10000000, /* the time behind a round */
};

static void *last;

OWN_FRAME static void leak(void)
{
    last = escapes(malloc(LEAKED));
    NO_TAIL_CALL();
}

OWN_FRAME static void cache(void)
{
    for (int i = 0; i < CACHE_BLOCKS; i++)
        last = escapes(malloc(CACHED));
}

OWN_FRAME static void spike(void)
{
    free(escapes(malloc(SPIKE)));
    NO_TAIL_CALL();
}

OWN_FRAME static void churn(void)
{
    for (int i = 0; i < CHURNS; i++)
        free(escapes(malloc(CHURNED)));
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void rest(long ns)
{
    struct timespec pause = { 0, ns };
    nanosleep(&pause, NULL);
}

int main(int argc, char **argv)
{
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    for (long round = 1; round <= rounds; round++) {
        long long begun = now();
        if (round == 1)
            cache();
        leak();
        if (round == SPIKE_ROUND)
            spike();
        long long leaked = now();
        rest(SHORT_NS);
        churn();
        printf("round %lld %lld %lld %ld %ld\n", begun, leaked, now(), round * LEAKED + CACHE_BLOCKS * CACHED,
               round * LEAKED);
        fflush(stdout);
        rest(PAUSE_NS);
    }
    return 0;
}
