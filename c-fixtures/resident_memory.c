/* Situation: a process has memory of every kind: blocks that stay, slabs of which one block in ten
 * stays, buffers that are touched to a third, stacks of threads, a mapped file, shared memory, a
 * mapped pool, huge pages, and swapped pages where the machine has swap.
 * A correct profiler finds each kind with its size, at the dumps `phase-blocks`, `phase-slabs`,
 * `phase-buffers`, `phase-rest`, `phase-mapped` and `phase-swapped`, within 2 % of what the kernel,
 * jemalloc's own statistics and the program itself say. Its lines add up to the resident memory.
 * If it is wrong: a kind is counted twice or not at all, or the sum hides the difference.
 *
 *   resident_memory            prints `<dump> <what> <bytes>`
 *   resident_memory idle       allocates a little, and sleeps
 *   resident_memory huge FILE  has huge pages, and allocates until there is that file
 */
#define _GNU_SOURCE
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
    POOL = 48 << 20,
    POOL_USED = 32 << 20,
    IN_TMPFS = 10 << 20,
    HUGE = 8 << 20,
    HUGE_PAGE = 2 << 20,
    PAGE = 4096,
    TMPFS_MAGIC = 0x01021994, /* linux/magic.h */
};

static void *leaks[LEAKS], *pieces[PIECES], *buffers[BUFFERS];
static size_t requested, usable;
static volatile char sink;

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

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

/* jemalloc's mallctl(3), a local symbol of the library. */
typedef int (*control_function)(const char *, void *, size_t *, void *, size_t);
static control_function mallctl;

static void find_mallctl(void)
{
    Dl_info library;
    struct stat state;
    int file = dladdr((void *)malloc, &library) ? open(library.dli_fname, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0 || fstat(file, &state) != 0)
        return;
    char *image = mmap(NULL, (size_t)state.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (image == MAP_FAILED)
        return;
    const Elf64_Ehdr *header = (const void *)image;
    const Elf64_Shdr *sections = (const void *)(image + header->e_shoff);
    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB)
            continue;
        const Elf64_Sym *symbols = (const void *)(image + sections[i].sh_offset);
        const char *names = image + sections[sections[i].sh_link].sh_offset;
        for (size_t n = 0; n < sections[i].sh_size / sizeof *symbols; n++)
            if (strcmp(names + symbols[n].st_name, "_rjem_mallctl") == 0)
                mallctl = (control_function)((uintptr_t)library.dli_fbase + symbols[n].st_value);
    }
    munmap(image, (size_t)state.st_size);
}

static size_t control(const char *name, size_t length)
{
    size_t value = 0;
    return mallctl(name, &value, &length, NULL, 0) == 0 ? value : 0;
}

static size_t of_arena(unsigned arena, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "stats.arenas.%u.%s", arena, what);
    return control(name, sizeof(size_t));
}

/* No free page goes back by itself, so the numbers stay between the dump and their reading. */
static void stop_decay(void)
{
    unsigned arenas = (unsigned)control("arenas.narenas", sizeof(unsigned));
    ssize_t never = -1;
    for (unsigned i = 0; i < arenas; i++) {
        char name[64];
        snprintf(name, sizeof name, "arena.%u.dirty_decay_ms", i);
        mallctl(name, NULL, NULL, &never, sizeof never);
    }
    mallctl("arenas.dirty_decay_ms", NULL, NULL, &never, sizeof never);
}

/* Prints jemalloc's statistics of the program's arenas. The library's own arena has a number behind
 * those that threads get. */
static void print_statistics(const char *name)
{
    static const char *const whats[] = {"small.allocated", "large.allocated", "tcache_bytes",
                                        "pactive", "pdirty", "pmuzzy", "base"};
    enum { KINDS = sizeof whats / sizeof *whats };
    size_t sums[KINDS] = {0};
    uint64_t epoch = 1;
    size_t length = sizeof epoch;
    mallctl("epoch", &epoch, &length, &epoch, sizeof epoch);
    unsigned arenas = (unsigned)control("arenas.narenas", sizeof(unsigned));
    unsigned ours = (unsigned)control("opt.narenas", sizeof(unsigned));
    ours += control("opt.oversize_threshold", sizeof(size_t)) != 0;
    for (unsigned i = 0; i < arenas && i < ours; i++)
        for (int kind = 0; kind < KINDS; kind++)
            sums[kind] += of_arena(i, whats[kind]);
    printf("%s in_blocks %zu\n", name, sums[0] + sums[1]);
    printf("%s cached %zu\n", name, sums[2]);
    printf("%s partly_empty %zu\n", name, sums[3] * PAGE - sums[0] - sums[1]);
    printf("%s dirty %zu\n", name, sums[4] * PAGE);
    printf("%s muzzy %zu\n", name, sums[5] * PAGE);
    printf("%s metadata %zu\n", name, sums[6]);
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
    if (mallctl)
        print_statistics(name);
    fflush(stdout);
}

/* Returns the resident bytes of a range by mincore(2). */
static size_t resident(const char *start, size_t length)
{
    static unsigned char pages[POOL / PAGE];
    uintptr_t first = (uintptr_t)start & ~(uintptr_t)(PAGE - 1);
    size_t count = ((uintptr_t)start + length - first + PAGE - 1) / PAGE, sum = 0;
    if (count > sizeof pages || mincore((void *)first, count * PAGE, pages) != 0)
        exit(3);
    for (size_t i = 0; i < count; i++)
        sum += pages[i] & 1 ? PAGE : 0;
    return sum;
}

/* Maps anonymous memory, whose start and end are those of huge pages. */
OWN_FRAME static char *maps_aligned(size_t length)
{
    char *all = mmap(NULL, length + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        exit(1);
    char *start = (char *)(((uintptr_t)all + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    if (start > all)
        munmap(all, (size_t)(start - all));
    munmap(start + length, (size_t)(all + HUGE_PAGE - start));
    return start;
}

static char *has_huge_pages(void)
{
    char *huge = maps_aligned(HUGE);
    madvise(huge, HUGE, MADV_HUGEPAGE);
    memset(huge, 1, HUGE);
    return huge;
}

static int allocates_beside_huge_pages(const char *until)
{
    char *huge = has_huge_pages();
    printf("huge huge_pages %zu\n", kernel("AnonHugePages:", NULL, (uintptr_t)huge));
    fflush(stdout);
    while (access(until, F_OK) != 0) {
        free(escapes(malloc(1000)));
        sleep_ms(10);
    }
    return 0;
}

/* A pool that is used in part, huge pages, and a file in memory. */
static void maps(void)
{
    char *pool = maps_aligned(POOL), *huge = has_huge_pages();
    madvise(pool, POOL, MADV_NOHUGEPAGE);
    memset(pool, 1, POOL_USED);
    char path[] = "/dev/shm/resident-memory-XXXXXX";
    struct statfs system;
    int file = mkstemp(path);
    char *mapped = MAP_FAILED;
    if (file >= 0 && fstatfs(file, &system) == 0 && system.f_type == TMPFS_MAGIC && ftruncate(file, IN_TMPFS) == 0)
        mapped = mmap(NULL, IN_TMPFS, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        memset(mapped, 1, IN_TMPFS);
    mark("phase-mapped");
    uintptr_t pool_at = (uintptr_t)pool, huge_at = (uintptr_t)huge;
    printf("phase-mapped pool %zu\n", kernel("Anonymous:", NULL, pool_at));
    printf("phase-mapped pool_by_mincore %zu\n", resident(pool, POOL));
    printf("phase-mapped huge %zu\n", kernel("Anonymous:", NULL, huge_at));
    printf("phase-mapped in_tmpfs %zu\n", kernel("Rss:", "/dev/shm/resident-memory-", 0));
    unlink(path);
}

/* Where the machine has swap. */
static void swaps(void)
{
    uintptr_t page = ((uintptr_t)buffers[0] + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    madvise((void *)page, BUFFER / 3, MADV_PAGEOUT);
    mark("phase-swapped");
    printf("phase-swapped swapped %zu\n", kernel("Swap:", NULL, 0));
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
    if (argc > 2 && strcmp(argv[1], "huge") == 0)
        return allocates_beside_huge_pages(argv[2]);
    if (argc > 1 && strcmp(argv[1], "idle") == 0) {
        takes(19001);
        sleep_ms(3000);
        return 0;
    }
    setvbuf(stdout, malloc(4096), _IOFBF, 4096);
    find_mallctl();
    if (mallctl)
        stop_decay();
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
    size_t touched = 0;
    for (int i = 0; i < BUFFERS; i++)
        touched += resident(buffers[i], BUFFER);
    printf("phase-buffers buffers_by_mincore %zu\n", touched);

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
    maps();
    swaps();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    unlink(path);
    return 0;
}
