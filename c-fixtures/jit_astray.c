/* Situation: code that the program wrote, in 8192 places, without frame pointers, calls malloc. rbp
 * leads to words that look like a frame, whose caller would be in a page that another thread maps
 * and unmaps all the time. For a second, a thread takes free descriptors by dup2 meanwhile; for
 * another second no descriptor may be opened.
 * A correct profiler ends its walks there.
 * If it is wrong: it asks the kernel about that memory in each walk, and dup2 answers EBUSY; or it
 * loads from the page, and faults.
 */
#define _GNU_SOURCE
#include "frames.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PLACES = 8192, APART = 64 };

/* push rbp; mov rbp, rsi; call rdi; pop rbp; ret */
static const unsigned char with_rbp_general[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};

typedef void code(void (*work)(void), uint64_t rbp);

static unsigned char *page;
static atomic_int dups_end, all_ends;
static long busy;

static void *maps_and_unmaps(void *nothing)
{
    while (!all_ends) {
        mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        page[0] = 1;
        munmap(page, PAGE);
    }
    return nothing;
}

static void *takes_free_numbers(void *nothing)
{
    int mine = open("/dev/null", O_RDONLY);
    while (!dups_end) {
        if (dup2(mine, mine + 1) >= 0)
            close(mine + 1);
        else if (errno == EBUSY)
            busy++;
    }
    return nothing;
}

OWN_FRAME static void allocates(void)
{
    free(escapes(malloc(100)));
    NO_TAIL_CALL();
}

static void runs_for_a_second(unsigned char *places, volatile uint64_t *lookalike)
{
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        for (size_t i = 0; i < PLACES; i++) {
            code *entry;
            *(void **)&entry = places + APART * i;
            entry(allocates, (uint64_t)lookalike);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < begin.tv_sec * 1000 + begin.tv_nsec / 1000000 + 1000);
}

int main(void)
{
    unsigned char *places = mmap(NULL, PLACES * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < PLACES; i++)
        memcpy(places + APART * i, with_rbp_general, sizeof with_rbp_general);
    mprotect(places, PLACES * APART, PROT_READ | PROT_EXEC);
    /* The page lies between two that stay, so that no other mapping comes there. */
    page = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page += PAGE;
    volatile uint64_t lookalike[4] = {(uint64_t)&lookalike[2], (uint64_t)page + 64, 0, 0};
    allocates();
    pthread_t threads[2];
    if (pthread_create(&threads[0], NULL, maps_and_unmaps, NULL) != 0) return 2;
    if (pthread_create(&threads[1], NULL, takes_free_numbers, NULL) != 0) return 2;
    usleep(100000); /* until nothing more is read for the new threads */
    busy = 0;
    runs_for_a_second(places, lookalike);
    dups_end = 1;
    pthread_join(threads[1], NULL);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_NOFILE, &none);
    runs_for_a_second(places, lookalike);
    all_ends = 1;
    pthread_join(threads[0], NULL);
    if (busy == 0)
        printf("ok free\n");
    else
        printf("FAILED free: a free number could not be taken %ld times\n", busy);
    return busy != 0;
}
