/* Library of before_main.c that is linked with `-z initfirst`. The loader grants that flag to one
 * library, the last that asks. A preloaded profiler that asks, too, is then initialised after this
 * library, in the middle of the work of its thread. */
#include "frames.h"

#include <pthread.h>
#include <stdlib.h>

void *before_main_first_block(void);
void before_main_first_join(void);

static void *block;
static pthread_t thread;

static void *allocates(void *nothing)
{
    for (size_t i = 0; i < 5000; i++)
        free(escapes(malloc(i % 512)));
    return nothing;
}

__attribute__((constructor)) static void first_of_all(void)
{
    block = malloc(29006);
    if (pthread_create(&thread, NULL, allocates, NULL) != 0)
        abort();
}

void before_main_first_join(void) { pthread_join(thread, NULL); }
void *before_main_first_block(void) { return block; }
