/* Situation: a program of little priority ends on a processor that others keep busy, as a batch
 * job does.
 * A correct profiler waits until its writer had some time on a processor. Its log then has
 * everything: all blocks below 900 bytes are freed in it, and the one of 20002 bytes is in use.
 * If it is wrong: the wait is over before the writer has run. The log has no end, or lacks the last
 * frees.
 *
 * The test starts it with little priority, on one processor, beside busy processes.
 */
#include "frames.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 3, BLOCKS = 500 };

void *kept;
static volatile int stop;

OWN_FRAME static void *allocates_and_frees(void *seed)
{
    void *blocks[BLOCKS] = {0};
    unsigned random = (unsigned)(size_t)seed;
    while (!stop) {
        random = random * 1103515245 + 12345;
        unsigned place = (random >> 8) % BLOCKS;
        free(blocks[place]);
        blocks[place] = malloc(random % 900);
    }
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, allocates_and_frees, (void *)i);
    nanosleep(&(struct timespec){1, 0}, NULL);
    kept = malloc(20002);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
