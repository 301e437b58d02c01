/* Situation: a program that has run for a while limits itself to a little more than its current
 * address space (as), data (data), or locked memory, with all present and future memory locked
 * (memlock). Then it starts threads: each allocates and frees. Every third thread begins
 * with blocks of the main thread, which it only frees.
 * A correct profiler gives up if it must; a malloc may fail with ENOMEM.
 * If it is wrong: a thread for which the allocator cannot have its structures crashes in its first
 * malloc, as under jemalloc 5.3 alone.
 *
 *   limits_itself <KiB to spare> [<bytes to allocate before> [as|data|memlock]]
 *
 * The threads' stacks exist before the limit.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 24, STACK = 128 << 10, GIVEN = 400, ROUNDS = 2000 };

static char stacks[THREADS][STACK] __attribute__((aligned(4096)));
static void *given[THREADS][GIVEN];
static pthread_barrier_t all;

/* Returns bytes of the process, by a line of /proc/self/status. */
static size_t bytes_of(const char *what)
{
    char line[256];
    size_t kib = 0, length = strlen(what);
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, what, length) == 0)
            kib = strtoul(line + length, NULL, 10);
    if (kib == 0)
        exit(2);
    fclose(file);
    return kib << 10;
}

/* Root may lock any amount. */
static void gives_up_locking(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) != 0)
        exit(2);
    data[0].effective &= ~(1u << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, data) != 0)
        exit(2);
}

static void limits_itself(const char *kind, size_t to_spare)
{
    int which = strcmp(kind, "data") == 0 ? RLIMIT_DATA : strcmp(kind, "memlock") == 0 ? RLIMIT_MEMLOCK : RLIMIT_AS;
    size_t used = bytes_of(which == RLIMIT_DATA ? "VmData:" : "VmSize:");
    struct rlimit limit = {0, RLIM_INFINITY};
    getrlimit(which, &limit);
    limit.rlim_cur = used + to_spare;
    if (limit.rlim_max < limit.rlim_cur)
        limit.rlim_max = limit.rlim_cur;
    if (setrlimit(which, &limit) != 0) {
        printf("skip %s: its hard limit is too small here\n", kind);
        exit(0);
    }
    if (which == RLIMIT_MEMLOCK) {
        gives_up_locking();
        if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
            perror("mlockall");
            exit(2);
        }
    }
}

/* Returns how many allocations failed; more than ROUNDS: a failure was not reported as it must
 * be. */
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

    limits_itself(argc > 3 ? argv[3] : "as", (size_t)atol(argv[1]) << 10);
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
