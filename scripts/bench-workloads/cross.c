/* One thread allocates, another frees: blocks pass in batches through a ring.
 *
 *   cross N      N blocks
 */
#include "work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sched.h>

enum { BATCH = 64, RING = 64 };
static void *ring[RING][BATCH];
static _Atomic long made, taken;
static long batches;

static void *consume(void *unused)
{
    (void)unused;
    for (long i = 0; i < batches; i++) {
        while (atomic_load_explicit(&made, memory_order_acquire) <= i) sched_yield();
        for (int j = 0; j < BATCH; j++) free(ring[i % RING][j]);
        atomic_store_explicit(&taken, i + 1, memory_order_release);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    batches = argument(argc, argv, 1, 1000000) / BATCH;
    uint64_t random = 88172645463325252u;
    pthread_t consumer;
    pthread_create(&consumer, NULL, consume, NULL);
    for (long i = 0; i < batches; i++) {
        while (i - atomic_load_explicit(&taken, memory_order_acquire) >= RING) sched_yield();
        for (int j = 0; j < BATCH; j++) {
            char *block = must(malloc(small_size(next_random(&random))));
            *block = 1;
            ring[i % RING][j] = block;
        }
        atomic_store_explicit(&made, i + 1, memory_order_release);
    }
    pthread_join(consumer, NULL);
    return 0;
}
