/* Situation: a program maps memory in each way that there is: a pool touched in part, a mapping
 * with a hole, one that grows by mremap, one that MAP_FIXED puts over a reserved one, a file, a
 * bare system call, and one that is too small to be recorded. It makes threads, on stacks of libc's
 * and on one of its own. A forked child unmaps what it inherits and maps memory of its own.
 * A correct profiler shows each function with the mapped and the resident bytes that the program
 * states, and the bare system call without a stack, by the name that the program gave it.
 * If it is wrong: a mapping that was replaced, cut or moved counts twice or not at all, or the
 * child changes its parent's. Or nobody has the stacks of threads.
 *
 *   mapped_memory       prints `<function> <mapped> <resident>`
 */
#define _GNU_SOURCE
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41
#define PR_SET_VMA_ANON_NAME 0
#endif

enum { MIB = 1 << 20, RW = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS };

static volatile char sink;

static void touch(char *at, size_t len)
{
    for (size_t i = 0; i < len; i += 4096)
        at[i] = 1;
}

/* A huge page would be resident after one touch. */
static char *checked(void *mapping, size_t len)
{
    if (mapping == MAP_FAILED)
        exit(1);
    madvise(mapping, len, MADV_NOHUGEPAGE);
    return mapping;
}

OWN_FRAME static char *maps_pool(void)
{
    return checked(mmap(NULL, 32 * MIB, RW, PRIVATE, -1, 0), 32 * MIB);
}

OWN_FRAME static char *maps_with_hole(void)
{
    return checked(mmap(NULL, 16 * MIB, RW, PRIVATE, -1, 0), 16 * MIB);
}

OWN_FRAME static char *maps_small_one(void)
{
    return checked(mmap(NULL, 4 * MIB, RW, PRIVATE, -1, 0), 4 * MIB);
}

OWN_FRAME static char *grows(char *old)
{
    return checked(mremap(old, 4 * MIB, 12 * MIB, MREMAP_MAYMOVE), 12 * MIB);
}

OWN_FRAME static char *reserves(void)
{
    return checked(mmap(NULL, 8 * MIB, PROT_NONE, PRIVATE | MAP_NORESERVE, -1, 0), 8 * MIB);
}

OWN_FRAME static char *commits(char *at)
{
    return checked(mmap(at, 2 * MIB, RW, PRIVATE | MAP_FIXED, -1, 0), 2 * MIB);
}

OWN_FRAME static char *maps_file(int file)
{
    return checked(mmap(NULL, 5 * MIB, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0), 5 * MIB);
}

OWN_FRAME static char *maps_tiny(void)
{
    return checked(mmap(NULL, 32 << 10, RW, PRIVATE, -1, 0), 32 << 10);
}

OWN_FRAME static char *maps_in_child(void)
{
    return checked(mmap(NULL, 3 * MIB, RW, PRIVATE, -1, 0), 3 * MIB);
}

enum { THREADS = 3, STACK = 8 * MIB, STACK_USED = 1 * MIB };

static pthread_barrier_t barrier;
static pthread_t threads[THREADS + 1];
static long tids[THREADS + 1];

OWN_FRAME static void *uses_its_stack(void *number)
{
    char used[STACK_USED];
    memset(used, 1, sizeof used);
    sink = used[(size_t)rand() % sizeof used];
    tids[(size_t)number] = syscall(SYS_gettid);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

OWN_FRAME static void makes_threads(pthread_attr_t *attributes)
{
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], attributes, uses_its_stack, (void *)i) != 0)
            exit(1);
}

OWN_FRAME static char *maps_stack(void)
{
    return checked(mmap(NULL, 4 * MIB, RW, PRIVATE, -1, 0), 4 * MIB);
}

OWN_FRAME static void makes_thread_on(char *stack)
{
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstack(&attributes, stack, 4 * MIB) != 0 ||
        pthread_create(&threads[THREADS], &attributes, uses_its_stack, (void *)THREADS) != 0)
        exit(1);
}

/* The kernel may show a thread shortly after its end. */
static void join_threads(void)
{
    for (int i = 0; i < THREADS + 1; i++) {
        char path[64];
        pthread_join(threads[i], NULL);
        snprintf(path, sizeof path, "/proc/self/task/%ld", tids[i]);
        while (access(path, F_OK) == 0)
            usleep(1000);
    }
}

/* Returns the resident bytes of a thread's stack by mincore(2), without its guard page. */
static size_t resident(pthread_t thread)
{
    static unsigned char pages[STACK / 4096 + 1];
    pthread_attr_t attributes;
    void *start;
    size_t length, sum = 0;
    if (pthread_getattr_np(thread, &attributes) != 0 || pthread_attr_getstack(&attributes, &start, &length) != 0)
        exit(2);
    /* With musl, a thread's own data is above. */
    start = (void *)((uintptr_t)start / 4096 * 4096);
    if (length / 4096 > sizeof pages || mincore(start, length / 4096 * 4096, pages) != 0)
        exit(3);
    for (size_t i = 0; i < length / 4096; i++)
        sum += pages[i] & 1 ? 4096 : 0;
    return sum;
}

/* In assembly, as a program without libc does it. */
static char *maps_bare(size_t len)
{
    register long flags __asm__("r10") = PRIVATE;
    register long file __asm__("r8") = -1;
    register long offset __asm__("r9") = 0;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(SYS_mmap), "D"(0), "S"(len), "d"(RW), "r"(flags), "r"(file), "r"(offset)
                     : "rcx", "r11", "memory");
    if (answer < 0 && answer > -4096)
        exit(1);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, answer, len, "made-bare");
    return checked((void *)answer, len);
}

int main(void)
{
    free(escapes(malloc(1 << 20)));
    char *pool = maps_pool();
    touch(pool, 24 * MIB);

    char *with_hole = maps_with_hole();
    touch(with_hole, 16 * MIB);
    if (munmap(with_hole + 6 * MIB, 4 * MIB) != 0)
        return 1;

    /* The neighbour lets it not grow in place. */
    char *grown = maps_small_one();
    touch(grown, 4 * MIB);
    mmap(grown + 4 * MIB, 4096, PROT_NONE, PRIVATE, -1, 0);
    grown = grows(grown);
    touch(grown, 12 * MIB);

    char *reserved = reserves();
    touch(commits(reserved + 3 * MIB), 2 * MIB);

    char path[] = "mapped-XXXXXX";
    int file = mkstemp(path);
    char *block = calloc(1, MIB);
    for (int i = 0; i < 5; i++)
        if (write(file, block, MIB) != MIB)
            return 1;
    free(block);
    char *of_file = maps_file(file);
    for (int i = 0; i < 5 * MIB; i += 4096)
        sink = of_file[i];

    touch(maps_bare(7 * MIB), 7 * MIB);
    char *tiny = maps_tiny();
    touch(tiny, 32 << 10);

    pthread_attr_t large_stack;
    pthread_barrier_init(&barrier, NULL, THREADS + 2);
    if (pthread_attr_init(&large_stack) != 0 || pthread_attr_setstacksize(&large_stack, STACK) != 0)
        return 1;
    makes_threads(&large_stack);
    makes_thread_on(maps_stack());
    pthread_barrier_wait(&barrier);

    pid_t child = fork();
    if (child == 0) {
        munmap(pool, 32 * MIB);
        touch(maps_in_child(), 3 * MIB);
        free(escapes(malloc(1 << 20)));
        HEAPPROF_DUMP("in-child");
        _exit(0);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return 1;
    HEAPPROF_DUMP("all-mapped");

    printf("maps_pool %d %d\n", 32 * MIB, 24 * MIB);
    printf("maps_with_hole %d %d\n", 12 * MIB, 12 * MIB);
    printf("maps_small_one 0 0\n");
    printf("grows %d %d\n", 12 * MIB, 12 * MIB);
    printf("reserves %d 0\n", 6 * MIB);
    printf("commits %d %d\n", 2 * MIB, 2 * MIB);
    printf("maps_file %d %d\n", 5 * MIB, 5 * MIB);
    printf("maps_tiny 0 0\n");
    printf("maps_in_child 0 0\n");
    printf("makes_thread_on 0 0\n");
    size_t of_stacks = 0;
    for (int i = 0; i < THREADS; i++)
        of_stacks += resident(threads[i]);
    printf("makes_threads %d %zu\n", THREADS * STACK, of_stacks);
    printf("maps_stack %d %zu\n", 4 * MIB, resident(threads[THREADS]));
    fflush(stdout);
    pthread_barrier_wait(&barrier);
    join_threads();

    if (munmap(pool, 32 * MIB) != 0 || munmap(grown, 12 * MIB) != 0)
        return 1;
    HEAPPROF_DUMP("some-unmapped");
    unlink(path);
    return 0;
}
