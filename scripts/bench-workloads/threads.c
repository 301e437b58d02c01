/* Many short threads, each of which allocates a little.
 *
 *   threads N [pairs]
 *
 * N threads, two at a time, of `pairs` blocks each, which live until the thread ends.
 */
#include "work.h"

#include <pthread.h>

static long pairs;

static void *work(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed * 0x9E3779B97F4A7C15u;
    void *blocks[256];
    for (long i = 0; i < pairs; i++) blocks[i] = must(malloc(small_size(next_random(&random))));
    for (long i = 0; i < pairs; i++) free(blocks[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 1000);
    pairs = argument(argc, argv, 2, 100);
    if (pairs > 256) pairs = 256;
    for (long i = 0; i < n; i += 2) {
        pthread_t first, second;
        pthread_create(&first, NULL, work, (void *)(i + 1));
        pthread_create(&second, NULL, work, (void *)(i + 2));
        pthread_join(first, NULL);
        pthread_join(second, NULL);
    }
    return 0;
}
