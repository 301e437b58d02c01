/* Situation: 100,000 frames, in the main thread and in a thread with a stack of 64 MiB; blocks are
 * allocated and freed at the deepest point.
 * A correct profiler shows the innermost frames up to its limit, marked as cut. Nothing faults, and
 * each allocation takes no longer than the limit allows.
 * If it is wrong: a walk over all frames for each sample, a recursive walk, or a stack copied into
 * a buffer.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { DEPTH = 100000, BLOCKS = 1000 };

OWN_FRAME static void allocates_at_the_bottom(size_t size)
{
    for (int i = 0; i < BLOCKS; i++)
        free(escapes(malloc(size)));
}

OWN_FRAME static void descends(int depth, size_t size)
{
    if (depth > 1)
        descends(depth - 1, size);
    else
        allocates_at_the_bottom(size);
    NO_TAIL_CALL();
}

OWN_FRAME static void *thread_main(void *nothing)
{
    descends(DEPTH, 33002);
    return nothing;
}

int main(void)
{
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 64 << 20);
    pthread_t thread;
    if (pthread_create(&thread, &large, thread_main, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    descends(DEPTH, 33001); /* 3.2 MB: within the usual limit of 8 MB */
    printf("stack 33001 allocates_at_the_bottom descends*%d main\n", DEPTH);
    printf("count 33001 %d 0\n", BLOCKS);
    printf("stack 33002 allocates_at_the_bottom descends*%d thread_main ...\n", DEPTH);
    printf("count 33002 %d 0\n", BLOCKS);
    return 0;
}
