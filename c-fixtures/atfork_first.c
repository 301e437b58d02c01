/* Library of atfork_before.c, linked with `-z initfirst`. Its handlers are registered before all
 * others, even before those of a preloaded profiler that asks to be first (see
 * before_main_first.c). Nothing is allocated at that time. An allocator that takes its locks in a
 * handler, as jemalloc does, must therefore be asked for memory before it takes them.
 *
 * With a second argument, the handlers are registered with libc itself, past any interposed
 * function, and after an allocation: without one, no such allocator could work. */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

extern void *atfork_first_of_child[100], *atfork_first_inherited;
extern void *__dso_handle;

static void *of_prepare;
void *atfork_first_of_child[100], *atfork_first_inherited;

static void prepares(void) { of_prepare = malloc(36101); }
static void after_in_parent(void) { free(of_prepare); free(escapes(malloc(36102))); }

static void after_in_child(void)
{
    free(of_prepare);
    free(atfork_first_inherited);
    for (int i = 0; i < 100; i++)
        atfork_first_of_child[i] = malloc(36103);
    for (int i = 0; i < 50; i++)
        free(atfork_first_of_child[i]);
}

__attribute__((constructor)) static void registers(int argc)
{
    if (argc < 3) {
        pthread_atfork(prepares, after_in_parent, after_in_child);
        return;
    }
    free(escapes(malloc(1)));
    int (*registers_them)(void (*)(void), void (*)(void), void (*)(void), void *) =
        (int (*)(void (*)(void), void (*)(void), void (*)(void), void *))dlsym(RTLD_NEXT, "__register_atfork");
    registers_them(prepares, after_in_parent, after_in_child, &__dso_handle);
}
