/* Plug-in of namespaces.c, under two file names, so that it can be loaded twice. */
#include "frames.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int border_allocates_and_calls(void (*callback)(void));
void *border_gives(size_t size);
void border_takes(void *block);

static void *thread_main(void *nothing)
{
    for (int i = 0; i < 1000; i++)
        free(escapes(malloc((size_t)i)));
    return nothing;
}

OWN_FRAME int border_allocates_and_calls(void (*callback)(void))
{
    char *block = malloc(100);
    block = realloc(block, 100000);
    free(strdup("text"));
    pthread_t thread;
    int started = pthread_create(&thread, NULL, thread_main, NULL) == 0;
    callback();
    if (started)
        pthread_join(thread, NULL);
    free(block);
    return started;
}

OWN_FRAME void *border_gives(size_t size) { void *block = malloc(size); NO_TAIL_CALL(); return block; }
OWN_FRAME void border_takes(void *block) { free(block); NO_TAIL_CALL(); }
