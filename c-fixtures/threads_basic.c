/* Situation: eight threads allocate at once; each then frees half of its neighbour's blocks, and
 * exits.
 * A correct profiler shows for every thread 100 blocks allocated and 50 in use, under the thread
 * function, and knows the thread by its name.
 * If it is wrong: a free by another thread is missed (100 in use) or a thread's last samples are
 * lost when it ends.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 8, BLOCKS = 100, FIRST_SIZE = 9000 };

void *blocks[THREADS][BLOCKS];
static pthread_barrier_t all_have_allocated;

OWN_FRAME static void allocates_in_thread(int thread)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[thread][i] = malloc((size_t)(FIRST_SIZE + thread));
}

static void free_half_of(int thread)
{
    for (int i = 0; i < BLOCKS / 2; i++) {
        free(blocks[thread][i]);
        blocks[thread][i] = NULL;
    }
}

OWN_FRAME static void *thread_main(void *number)
{
    int thread = (int)(size_t)number;
    char name[16];
    snprintf(name, sizeof name, "worker-%d", thread);
    pthread_setname_np(pthread_self(), name);
    allocates_in_thread(thread);
    pthread_barrier_wait(&all_have_allocated);
    free_half_of((thread + 1) % THREADS);
    return NULL;
}

int main(void)
{
    pthread_t handles[THREADS];
    pthread_barrier_init(&all_have_allocated, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&handles[i], NULL, thread_main, (void *)(size_t)i) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(handles[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        printf("stack %d allocates_in_thread thread_main ...\n", FIRST_SIZE + i);
        printf("count %d %d %d\n", FIRST_SIZE + i, BLOCKS, BLOCKS / 2);
        printf("thread %d worker-%d\n", FIRST_SIZE + i, i);
    }
    return 0;
}
