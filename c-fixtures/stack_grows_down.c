/* Situation: the program maps a thread's stack itself, with MAP_GROWSDOWN: a few pages at the end
 * of address space that it keeps free for the stack. The thread starts after the first allocation,
 * and its stack grows.
 * A correct profiler maps nothing into that gap.
 * If it is wrong: the stack meets a mapping, and the program ends by SIGSEGV.
 *
 *   stack_grows_down [KiB]     how far the stack may grow (default: 128)
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* the kernel keeps a gap below what grows */
enum { PAGE = 4096, FIRST = 4 * PAGE, GAP = 256 * PAGE };

static size_t stack_bytes;
static void *kept[64];

OWN_FRAME static void *grows(void *nothing)
{
    size_t bytes = stack_bytes - FIRST;
    volatile char *low = __builtin_alloca(bytes);
    for (size_t at = bytes; at > 0; at -= 1024)
        low[at - 1] = 1;
    kept[63] = escapes(malloc(39002));
    return nothing;
}

int main(int argc, char **argv)
{
    stack_bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 128) << 10;
    size_t all = GAP + stack_bytes;
    char *gap = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (gap == MAP_FAILED || munmap(gap, all) != 0)
        return 2;
    char *first = gap + all - FIRST;
    int how = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN;
    if (mmap(first, FIRST, PROT_READ | PROT_WRITE, how, -1, 0) != first)
        return 3;
    /* As many allocations as bring a profiler to map what it needs. */
    for (int i = 0; i < 62; i++)
        kept[i] = escapes(malloc(39001));
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, gap + GAP, stack_bytes);
    if (pthread_create(&thread, &attributes, grows, NULL) != 0)
        return 4;
    pthread_join(thread, NULL);
    printf("ok grown\n");
    printf("count 39001 62 62\n");
    printf("count 39002 1 1\n");
    printf("stack 39002 grows ...\n");
    return 0;
}
