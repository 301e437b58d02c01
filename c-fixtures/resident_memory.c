/* Situation: a process has memory of every kind: blocks that stay, slabs of which one block in ten
 * stays, buffers that are touched to a third, stacks of threads, a mapped file, shared memory.
 * A correct profiler finds each kind with its size, at the dumps `phase-blocks`, `phase-slabs`,
 * `phase-buffers` and `phase-rest`, within 2 % of what the kernel and the program itself say. Its
 * lines add up to the resident memory.
 * If it is wrong: a kind is counted twice or not at all, or the sum hides the difference.
 *
 *   resident_memory          prints `<dump> <what> <bytes>`
 *   resident_memory idle     allocates a little, and sleeps
 */
#define _GNU_SOURCE
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

enum {
    LEAKS = 160000,
    LEAK = 200,
    PIECES = 200000,
    PIECE = 320,
    BUFFERS = 8,
    BUFFER = 6 << 20,
    THREADS = 8,
    STACK_USED = 1 << 20,
    MAPPED = 16 << 20,
    SHARED = 12 << 20,
    TMPFS_MAGIC = 0x01021994, /* linux/magic.h */
};

static void *leaks[LEAKS], *pieces[PIECES], *buffers[BUFFERS];
static size_t requested, usable;
static volatile char sink;

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* Returns the sum of the field of all mappings whose heading has the text or the address. */
static size_t kernel(const char *field, const char *text, uintptr_t address)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t sum = 0, length = strlen(field);
    int counts = 0;
    while (file && fgets(line, sizeof line, file)) {
        uintptr_t start, end;
        size_t kib;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            counts = (text == NULL || strstr(line, text) != NULL) &&
                     (address == 0 || (start <= address && address < end));
        else if (counts && strncmp(line, field, length) == 0 && sscanf(line + length, " %zu", &kib) == 1)
            sum += kib * 1024;
    }
    if (file)
        fclose(file);
    return sum;
}

OWN_FRAME static void *takes(size_t size)
{
    void *block = escapes(malloc(size));
    requested += size;
    usable += malloc_usable_size(block);
    return block;
}

static void gives(void *block, size_t size)
{
    requested -= size;
    usable -= malloc_usable_size(block);
    free(block);
}

/* musl has no such macro, and no such function. */
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
#define HAS_MALLINFO2
#endif
#endif

/* Prints what is true now. The writer has read the same for the dump. */
static void mark(const char *name)
{
    HEAPPROF_DUMP(name);
    printf("%s resident %zu\n", name, kernel("Rss:", NULL, 0));
    printf("%s anonymous %zu\n", name, kernel("Anonymous:", NULL, 0));
    printf("%s in_use %zu\n", name, requested);
    printf("%s slack %zu\n", name, usable - requested);
#ifdef HAS_MALLINFO2
    struct mallinfo2 info = mallinfo2();
    printf("%s allocated %zu\n", name, info.uordblks);
#endif
    fflush(stdout);
}

static pthread_barrier_t barrier;
static uintptr_t stack_of[THREADS];

OWN_FRAME static void *uses_its_stack(void *at)
{
    char used[STACK_USED];
    memset(used, 1, sizeof used);
    sink = used[(size_t)rand() % sizeof used];
    *(uintptr_t *)at = (uintptr_t)used;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "idle") == 0) {
        takes(19001);
        sleep_ms(3000);
        return 0;
    }
    setvbuf(stdout, malloc(4096), _IOFBF, 4096);
    for (int i = 0; i < LEAKS; i++)
        memset(leaks[i] = takes(LEAK), 1, LEAK);
    mark("phase-blocks");

    for (int i = 0; i < PIECES; i++)
        memset(pieces[i] = takes(PIECE), 1, PIECE);
    for (int i = 0; i < PIECES; i++)
        if (i % 10 != 0)
            gives(pieces[i], PIECE);
    mark("phase-slabs");

    for (int i = 0; i < BUFFERS; i++)
        memset(buffers[i] = takes(BUFFER), 1, BUFFER / 3);
    mark("phase-buffers");

    pthread_t threads[THREADS];
    pthread_attr_t large_stack; /* musl's default is 128 KiB */
    if (pthread_attr_init(&large_stack) != 0 || pthread_attr_setstacksize(&large_stack, 8 << 20) != 0)
        return 1;
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], &large_stack, uses_its_stack, &stack_of[i]) != 0)
            return 1;
    pthread_barrier_wait(&barrier);

    char path[] = "mapped-XXXXXX";
    int file = mkstemp(path);
    if (file < 0 || ftruncate(file, MAPPED) != 0)
        return 1;
    char *block = malloc(1 << 20);
    memset(block, 1, 1 << 20);
    for (int i = 0; i < MAPPED >> 20; i++)
        if (write(file, block, 1 << 20) != 1 << 20)
            return 1;
    free(block);
    char *mapped = mmap(NULL, MAPPED, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
    int memory = memfd_create("shared-by-the-fixture", 0);
    if (mapped == MAP_FAILED || memory < 0 || ftruncate(memory, SHARED) != 0)
        return 1;
    char *shared = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    if (shared == MAP_FAILED)
        return 1;
    memset(shared, 1, SHARED);
    for (int i = 0; i < MAPPED; i += 4096)
        sink = mapped[i];
    mark("phase-rest");
    size_t stacks = kernel("Anonymous:", "[stack]", 0);
    for (int i = 0; i < THREADS; i++)
        stacks += kernel("Anonymous:", NULL, stack_of[i]);
    printf("phase-rest stacks %zu\n", stacks);
    size_t of_file = kernel("Rss:", "mapped-", 0), of_shared = kernel("Rss:", "shared-by-the-fixture", 0);
    struct statfs system; /* the kernel counts the pages of a tmpfs as shared memory */
    int is_memory = fstatfs(file, &system) == 0 && system.f_type == TMPFS_MAGIC;
    printf("phase-rest mapped_file %zu\n", is_memory ? 0 : of_file);
    printf("phase-rest shared %zu\n", is_memory ? of_shared + of_file : of_shared);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unlink(path);
    return 0;
}
