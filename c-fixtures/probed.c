/* Situation: blocks of many sizes begin, move, grow in place and end, in two threads and in a pool.
 * A correct profiler reports each recorded block and each end to the listener of its probes: the
 * reports have the sums of its log.
 * If it is wrong: a realloc is reported as one block too many or too few, a pool's block has an
 * address that nobody knows, or a report comes for a block that the log lacks.
 *
 *   probed [seconds]    waits that long in between, for a listener
 */
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 40 };

static char pool[4096];

OWN_FRAME static void *site_blocks(void *unused)
{
    (void)unused;
    for (size_t i = 1; i <= ROUNDS; i++) {
        void *freed = escapes(malloc(i * 37));
        void *moved = escapes(malloc(i * 24));
        void *kept = escapes(malloc(100));
        moved = escapes(realloc(moved, i * 1000));
        kept = escapes(realloc(kept, 101)); /* in its place */
        free(freed);
        if (i % 2)
            free(moved);
    }
    return NULL;
}

OWN_FRAME static void site_pool(void)
{
    HEAPPROF_ALLOC(pool, 1000);
    HEAPPROF_ALLOC(pool + 1000, 500);
    HEAPPROF_REALLOC(pool, pool + 2000, 1500);
    HEAPPROF_FREE(pool + 1000);
}

int main(int argc, char **argv)
{
    site_blocks(NULL);
    if (argc > 1) {
        printf("waits\n");
        fflush(stdout);
        sleep((unsigned)atoi(argv[1]));
    }
    pthread_t other;
    if (pthread_create(&other, NULL, site_blocks, NULL) != 0 || pthread_join(other, NULL) != 0)
        return 2;
    site_pool();
    return 0;
}
