/* malloc and free of one block, again and again: the time of the allocator and of its hooks alone.
 *
 *   pair N [size] [depth] [stacks] [threads]
 *
 * N pairs in each thread. size 0: small sizes, mixed. Each pair is made at the end of a call chain
 * of `depth` functions. The chain is entered anew for each pair, along one of `stacks` different
 * paths (1 or 1000, in random order).
 */
#include "work.h"

#include <pthread.h>

static long pairs, size, depth, stacks;

OWN_FRAME static void make_pair(size_t bytes)
{
    char *block = must(malloc(bytes));
    *block = 1;
    free(escapes(block));
    NO_TAIL_CALL();
}

/* One level of the chain. The path's lowest bit chooses the call, and so the return address. The
 * bits of a path are spread over the levels, so that stacks differ near the root and near the
 * leaf. */
OWN_FRAME static void descend(long left, uint64_t path, size_t bytes)
{
    if (left <= 1) {
        make_pair(bytes);
    } else if (path & 1) {
        descend(left - 1, path >> 1, bytes);
        NO_TAIL_CALL();
    } else {
        descend(left - 1, path >> 1, bytes);
        __asm__ volatile("nop" ::: "memory");
    }
}

/* Returns the ten bits of `index`, one at every (depth/10)th level. */
static uint64_t path_of(uint64_t index)
{
    uint64_t path = 0;
    long step = depth / 10 > 0 ? depth / 10 : 1;
    for (int bit = 0; bit < 10; bit++) path |= ((index >> bit) & 1) << (bit * step);
    return path;
}

static void *work(void *seed)
{
    uint64_t random = (uint64_t)(uintptr_t)seed * 0x9E3779B97F4A7C15u;
    uint64_t paths[1000];
    for (uint64_t i = 0; i < 1000; i++) paths[i] = path_of(i + 24);
    for (long i = 0; i < pairs; i++) {
        uint64_t drawn = next_random(&random);
        uint64_t path = stacks > 1 ? paths[(drawn >> 8) % 1000] : 0;
        size_t bytes = size != 0 ? (size_t)size : small_size(drawn);
        if (depth <= 1) make_pair(bytes);
        else descend(depth, path, bytes);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pairs = argument(argc, argv, 1, 1000000);
    size = argument(argc, argv, 2, 64);
    depth = argument(argc, argv, 3, 1);
    stacks = argument(argc, argv, 4, 1);
    long threads = argument(argc, argv, 5, 1);
    pthread_t other[16];
    for (long i = 1; i < threads && i < 16; i++) pthread_create(&other[i], NULL, work, (void *)(i + 1));
    work((void *)1);
    for (long i = 1; i < threads && i < 16; i++) pthread_join(other[i], NULL);
    return 0;
}
