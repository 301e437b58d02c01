/* Situation: all code before main allocates: .preinit_array, a library that asks to be initialised
 * first (before_main_first.c, `-z initfirst`), a library's constructor (before_main_library.c) and
 * the program's constructors. Threads that they start allocate while the next constructors run.
 * A correct profiler records everything after its own constructor, counts everything before, and
 * hangs nowhere.
 * If it is wrong: its state is used before it is made, or made twice; or its constructor waits for
 * a thread that waits for the loader.
 */
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *before_main_library_block(void); /* before_main_library.c: allocated by its constructor */
void *before_main_first_block(void);   /* before_main_first.c */
void before_main_first_join(void);

void *kept[4];
static pthread_t thread;
static int is_in_main;

OWN_FRAME static void preinit(void)
{
    kept[0] = malloc(29001);
}

__attribute__((section(".preinit_array"), used)) static void (*const in_preinit)(void) = preinit;

OWN_FRAME static void *thread_of_constructor(void *nothing)
{
    kept[1] = malloc(29002);
    while (!__atomic_load_n(&is_in_main, __ATOMIC_SEQ_CST))
        free(escapes(malloc(29010)));
    return nothing;
}

OWN_FRAME __attribute__((constructor(101))) static void first_constructor(void)
{
    kept[2] = malloc(29003);
    if (pthread_create(&thread, NULL, thread_of_constructor, NULL) != 0)
        _exit(2);
}

OWN_FRAME __attribute__((constructor)) static void last_constructor(void)
{
    for (int i = 0; i < 1000; i++)
        free(escapes(malloc(29011)));
    kept[3] = malloc(29004);
}

int main(void)
{
    __atomic_store_n(&is_in_main, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    before_main_first_join();
    printf("stack 29002 thread_of_constructor ...\n");
    printf("stack 29003 first_constructor ...\n");
    printf("stack 29004 last_constructor ...\n");
    printf("count 29011 1000 0\n");
    /* Blocks from before the profiler could run may be missing; freeing them must still be
     * right. */
    for (int i = 0; i < 4; i++)
        free(kept[i]);
    free(before_main_library_block());
    free(before_main_first_block());
    printf("count 29002 1 0\n");
    printf("count 29003 1 0\n");
    printf("count 29004 1 0\n");
    printf("ok freed\n");
    return 0;
}
