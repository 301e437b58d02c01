/* Situation: blocks in use that are resident in part. Large buffers are touched to a third, a part
 * of one is given back and a part of another is swapped out, where the machine has swap. Nine of
 * ten small blocks are freed, and one in ten keeps its slab.
 * A correct profiler shows each function with the resident, swapped, untouched and pinned bytes
 * that the program states.
 * If it is wrong: memory that was never touched counts as resident, or a function that keeps a few
 * small blocks looks innocent.
 *
 *   block_pages [small blocks]        prints `<function> <resident> <swapped> <untouched> <pinned>`
 *   block_pages <small blocks> forks  a forked child prints it, of what it inherits
 *
 * The sizes of the small blocks are powers of two: their slabs are single pages. Threads allocate
 * and free them and end, so that no thread has free blocks in a cache.
 */
#define _GNU_SOURCE
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, BUFFERS = 6, BUFFER = 3 * MIB + 12345, KINDS = 3 };

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static int pages;
static int count = 20000;
static char **small[KINDS];
static const size_t sizes[KINDS] = {256, 1024, 2048};

struct sums {
    size_t resident, swapped, untouched, pinned;
};

/* The bits of a page: 2, it is resident; 1, it is swapped out. */
static int bits_of(uintptr_t page)
{
    uint64_t word = 0;
    if (pread(pages, &word, 8, (off_t)(page / PAGE * 8)) != 8)
        exit(2);
    return (int)(word >> 62);
}

static void add(struct sums *sums, const char *block, size_t size)
{
    uintptr_t at = (uintptr_t)block, end = at + size;
    while (at < end) {
        uintptr_t next = (at / PAGE + 1) * PAGE;
        size_t bytes = (next < end ? next : end) - at;
        int bits = bits_of(at);
        *(bits & 2 ? &sums->resident : bits & 1 ? &sums->swapped : &sums->untouched) += bytes;
        at = next;
    }
}

static void print(const char *function, const struct sums *sums)
{
    printf("%s %zu %zu %zu %zu\n", function, sums->resident, sums->swapped, sums->untouched,
           sums->pinned);
}

OWN_FRAME static char *allocates_large(void)
{
    return malloc(BUFFER);
}

OWN_FRAME static char *keeps_256(void)
{
    return malloc(256);
}

OWN_FRAME static char *keeps_1024(void)
{
    return malloc(1024);
}

OWN_FRAME static char *keeps_2048(void)
{
    return malloc(2048);
}

OWN_FRAME static char *allocates_and_touches(void)
{
    char *block = malloc(64 * 1024);
    for (int i = 0; block && i < 64 * 1024; i += 512)
        block[i] = 1;
    return block;
}

static char *(*const keeps[KINDS])(void) = {keeps_256, keeps_1024, keeps_2048};
static const char *const names[KINDS] = {"keeps_256", "keeps_1024", "keeps_2048"};

static void *allocates_small(void *none)
{
    for (int i = 0; i < count; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            small[kind][i] = keeps[kind]();
            small[kind][i][0] = 1;
        }
    }
    return none;
}

static void *frees_nine_of_ten(void *none)
{
    for (int i = 0; i < count; i++) {
        for (int kind = 0; kind < KINDS; kind++) {
            if (i % 10 != 0) {
                free(small[kind][i]);
                small[kind][i] = NULL;
            }
        }
    }
    return none;
}

static void in_a_thread(void *(*work)(void *))
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0)
        exit(1);
}

static int by_address(const void *a, const void *b)
{
    uintptr_t first = *(const uintptr_t *)a, second = *(const uintptr_t *)b;
    return (first > second) - (first < second);
}

/* Adds the bytes of the pages of these blocks that are in none of them. */
static void add_pinned(struct sums *sums, char **blocks, size_t size)
{
    uintptr_t *kept = mmap(NULL, sizeof *kept * (size_t)count, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int number = 0;
    for (int i = 0; i < count; i++)
        if (blocks[i])
            kept[number++] = (uintptr_t)blocks[i];
    qsort(kept, (size_t)number, sizeof *kept, by_address);
    for (int i = 0; i < number; i++) {
        if (i == 0 || kept[i] / PAGE != kept[i - 1] / PAGE)
            sums->pinned += PAGE;
        sums->pinned -= size;
    }
    munmap(kept, sizeof *kept * (size_t)count);
}

int main(int argc, char **argv)
{
    static char *large[BUFFERS], *whole[20], buffer[4096];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    if (argc > 1)
        count = atoi(argv[1]);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    for (int kind = 0; kind < KINDS; kind++)
        small[kind] = mmap(NULL, sizeof(char *) * (size_t)count, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    in_a_thread(allocates_small);
    for (int i = 0; i < BUFFERS; i++) {
        large[i] = allocates_large();
        for (size_t at = 0; at < BUFFER / 3; at += 1024)
            large[i][at] = 1;
    }
    for (int i = 0; i < 20; i++)
        whole[i] = allocates_and_touches();
    in_a_thread(frees_nine_of_ten);
    char *page = (char *)((uintptr_t)large[0] / PAGE * PAGE + PAGE);
    madvise(page, 64 * PAGE, MADV_DONTNEED);
    page = (char *)((uintptr_t)large[1] / PAGE * PAGE + PAGE);
    madvise(page, 64 * PAGE, MADV_PAGEOUT);
    if (argc > 2) {
        int status;
        pid_t child = fork();
        if (child > 0)
            return waitpid(child, &status, 0) != child || status != 0;
        close(pages);
        pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        free(escapes(malloc(1 << 20)));
    }
    HEAPPROF_DUMP("all-there");

    struct sums of_large = {0}, of_whole = {0};
    for (int i = 0; i < BUFFERS; i++)
        add(&of_large, large[i], BUFFER);
    for (int i = 0; i < 20; i++)
        add(&of_whole, whole[i], 64 * 1024);
    print("allocates_large", &of_large);
    print("allocates_and_touches", &of_whole);
    for (int kind = 0; kind < KINDS; kind++) {
        struct sums sums = {0};
        for (int i = 0; i < count; i++)
            if (small[kind][i])
                add(&sums, small[kind][i], sizes[kind]);
        add_pinned(&sums, small[kind], sizes[kind]);
        print(names[kind], &sums);
    }
    /* All is free at the end, so a later reading differs. */
    for (int i = 0; i < BUFFERS; i++)
        free(large[i]);
    return 0;
}
