/* A program for jemalloc's profiler: 2000 blocks of 1000 bytes kept, as many freed, also on a
 * second thread. */
#include <pthread.h>
#include <stdlib.h>

void *volatile keep;

__attribute__((noinline)) void keep_blocks(int n)
{
    for (int i = 0; i < n; i++) {
        keep = malloc(1000);
        free(malloc(1000));
    }
}

static void *worker(void *unused)
{
    keep_blocks(1000);
    return unused;
}

int main(void)
{
    pthread_t thread;
    keep_blocks(1000);
    pthread_create(&thread, 0, worker, 0);
    pthread_join(thread, 0);
    return 0;
}
