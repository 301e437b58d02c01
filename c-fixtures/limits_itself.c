/* Situation: a program that has run for a while limits its own address space to a little more than it has, and then starts
 * threads: each allocates and frees, and every third begins with blocks of the main thread's, which it only frees.
 * A correct profiler gives up if it must; a malloc may fail with ENOMEM.
 * If it is wrong: a thread for which the allocator cannot have its structures crashes in its first malloc, as under
 * jemalloc 5.3 alone.
 *
 *   limits_itself <KiB to spare> [<bytes to allocate before>]
 *
 * The threads' stacks are there before the limit.
 */
#include "frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { THREADS = 24, STACK = 128 << 10, GIVEN = 400, ROUNDS = 2000 };

static char stacks[THREADS][STACK] __attribute__((aligned(4096)));
static void *given[THREADS][GIVEN];
static pthread_barrier_t all;

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1)
        exit(2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* How many times there was no memory; more than ROUNDS: it was not said as it must be. */
OWN_FRAME static void *lives(void *blocks)
{
    long failed = 0;
    pthread_barrier_wait(&all);
    for (void **block = blocks; block != NULL && block < (void **)blocks + GIVEN; block++)
        free(*block);
    for (size_t i = 0; i < ROUNDS; i++) {
        errno = 0;
        void *block = malloc(16 + i);
        if (block != NULL)
            memset(block, 1, 16 + i);
        else
            failed += errno == ENOMEM ? 1 : 2 * ROUNDS;
        free(escapes(block));
    }
    return (void *)failed;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    pthread_t threads[THREADS];
    if (argc > 2)
        free(escapes(malloc((size_t)atol(argv[2]))));
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < GIVEN; j++)
            given[i][j] = malloc(64);

    struct rlimit limit = {0, RLIM_INFINITY};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = address_space() + ((size_t)atol(argv[1]) << 10);
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;

    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        pthread_attr_t with_stack;
        pthread_attr_init(&with_stack);
        pthread_attr_setstack(&with_stack, stacks[i], STACK);
        int error = pthread_create(&threads[i], &with_stack, lives, i % 3 == 0 ? given[i] : NULL);
        if (error != 0) {
            printf("FAIL thread: %s\n", strerror(error));
            return 1;
        }
    }
    long failed = 0;
    for (int i = 0; i < THREADS; i++) {
        void *times;
        pthread_join(threads[i], &times);
        if ((long)times > ROUNDS)
            printf("FAIL errno: another than ENOMEM\n");
        failed += (long)times;
    }
    printf("note failed %ld\n", failed);
    printf("ok limited\n");
    return 0;
}
