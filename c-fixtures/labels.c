/* Situation: threads say by labels what they work on. Labels nest, shadow each other, and have more
 * values than a profiler keeps.
 * A correct profiler, recording everything, has the numbers of each `label` line: bytes that were
 * allocated, and that are in use at the end, by the value of a key. "(none)" is without a label.
 * If it is wrong: a label outlives its pop or leaks into another thread, a shadowed value counts,
 * or a value is lost without a count.
 *
 *   labels            prints `label <key> <value> <bytes allocated> <bytes in use>`
 *   labels many       one key with more values than are kept, and labels deeper than are kept
 *   labels storm      threads that push and pop as fast as they can
 */
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1000, THREADS = 4, ROUNDS = 50 };

OWN_FRAME static void *site_labelled(size_t size) { return escapes(malloc(size)); }

OWN_FRAME static void *site_grown(void *block, size_t size) { return escapes(realloc(block, size)); }

/* The same stack in each thread, under another tenant. */
OWN_FRAME static void *works(void *tenant)
{
    free(site_labelled(SIZE)); /* without a label */
    HEAPPROF_LABEL_PUSH("tenant", tenant);
    for (int i = 0; i < ROUNDS; i++) {
        HEAPPROF_LABEL_PUSH("path", i % 2 ? "/odd" : "/even");
        free(site_labelled(SIZE));
        HEAPPROF_LABEL_POP();
    }
    site_labelled(2 * SIZE);
    HEAPPROF_LABEL_PUSH("tenant", "inner"); /* shadows */
    void *block = site_labelled(SIZE);
    HEAPPROF_LABEL_POP();
    site_grown(block, 3 * SIZE);
    HEAPPROF_LABEL_POP();
    HEAPPROF_LABEL_POP(); /* one too many does nothing */
    free(site_labelled(SIZE)); /* without a label again */
    return NULL;
}

static int simple(void)
{
    static char names[THREADS][8] = {"acme", "bolt", "acme", "cube"};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, works, names[i]) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    long a_thread = ROUNDS * SIZE + 2 * SIZE + 3 * SIZE;
    printf("label tenant acme %ld %d\n", 2 * a_thread, 2 * 5 * SIZE);
    printf("label tenant bolt %ld %d\n", a_thread, 5 * SIZE);
    printf("label tenant cube %ld %d\n", a_thread, 5 * SIZE);
    printf("label tenant inner %d 0\n", THREADS * SIZE);
    printf("label path /odd %d 0\n", THREADS * ROUNDS / 2 * SIZE);
    printf("label path /even %d 0\n", THREADS * ROUNDS / 2 * SIZE);
    /* Under its own label the parent forks, and the child works on. */
    HEAPPROF_LABEL_PUSH("tenant", "forked");
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        return 2;
    if (child == 0) {
        site_labelled(7 * SIZE);
        HEAPPROF_LABEL_POP();
        site_labelled(9 * SIZE);
        exit(0);
    }
    waitpid(child, NULL, 0);
    HEAPPROF_LABEL_POP();
    return 0;
}

enum { VALUES = 30, DEPTH = 100 };

static int many(void)
{
    char value[16];
    for (int i = 0; i < VALUES; i++) {
        snprintf(value, sizeof value, "%d", i);
        HEAPPROF_LABEL_PUSH("request", value);
        site_labelled(SIZE);
        HEAPPROF_LABEL_POP();
    }
    HEAPPROF_LABEL_PUSH("request", "0"); /* known, so not folded */
    site_labelled(SIZE);
    HEAPPROF_LABEL_POP();
    for (int i = 0; i < DEPTH; i++)
        HEAPPROF_LABEL_PUSH("level", "deep");
    site_labelled(3 * SIZE);
    for (int i = 0; i < DEPTH; i++)
        HEAPPROF_LABEL_POP();
    site_labelled(5 * SIZE); /* without a label */
    return 0;
}

OWN_FRAME static void *storms(void *own)
{
    for (int i = 0; i < 20000; i++) {
        char value[24];
        snprintf(value, sizeof value, "%d", i % 50);
        HEAPPROF_LABEL_PUSH("shared", value);
        HEAPPROF_LABEL_PUSH("own", own);
        free(site_labelled(SIZE));
        HEAPPROF_LABEL_POP();
        HEAPPROF_LABEL_POP();
    }
    return NULL;
}

static int storm(void)
{
    static char names[THREADS][8] = {"a", "b", "c", "d"};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, storms, names[i]) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return simple();
    if (strcmp(argv[1], "many") == 0)
        return many();
    if (strcmp(argv[1], "storm") == 0)
        return storm();
    return 2;
}
