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
 *   labels rotates    few stacks with labels, and events enough for many segments of a log
 *   labels contexts   a thread in spans that it publishes as OpenTelemetry's libraries do
 */
#define _GNU_SOURCE
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

/* OpenTelemetry's thread context: a pointer of this name to such a record. */
struct context {
    uint8_t trace[16], span[8], valid, flags;
    uint16_t length;
    uint8_t attributes[612];
};
__thread struct context *otel_thread_ctx_v1;

static void set(struct context *context, uint8_t trace, uint8_t span, const char *attributes, size_t length)
{
    memset(context, 0, sizeof *context);
    context->trace[0] = trace;
    context->span[7] = span;
    context->length = (uint16_t)length;
    memcpy(context->attributes, attributes, length);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    context->valid = trace != 0 || length > 0;
}

/* OpenTelemetry's process context: a header, and a message with the service and the names of two
 * attributes. */
static int publishes(void)
{
    static const char message[] = "\x0a\x18\x0a\x16\x0a\x0cservice.name\x12\x06\x0a\x04shop"
                                  "\x12\x37\x0a\x1dthreadlocal.attribute_key_map"
                                  "\x12\x16\x2a\x14\x0a\x0c\x0a\x0ahttp_route\x0a\x04\x0a\x02id";
    struct {
        char signature[8];
        uint32_t version, length;
        uint64_t published;
        const char *message;
    } *header;
    int file = memfd_create("OTEL_CTX", 0);
    if (file < 0 || ftruncate(file, 4096) != 0)
        return 2;
    header = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    close(file);
    if (header == MAP_FAILED)
        return 2;
    header->version = 2;
    header->length = sizeof message - 1;
    header->message = message;
    header->published = 1;
    memcpy(header->signature, "OTEL_CTX", 8);
    return 0;
}

OWN_FRAME static void *has_no_context(void *unused)
{
    (void)unused;
    site_labelled(11 * SIZE);
    return NULL;
}

static int contexts(void)
{
    static struct context one, other;
    pthread_t thread;
    if (publishes() != 0)
        return 2;
    set(&one, 0xab, 1, "\0\6/index\1\1x\1\0017", 14); /* the last of a key counts */
    set(&other, 0xab, 2, "\0\7/basket\7\1?", 12);      /* nobody knows the name of 7 */
    site_labelled(SIZE);
    for (int i = 0; i < 3; i++) {
        otel_thread_ctx_v1 = &one;
        site_labelled(2 * SIZE);
        otel_thread_ctx_v1 = &other;
        site_labelled(3 * SIZE);
        HEAPPROF_LABEL_PUSH("tenant", "acme");
        site_labelled(5 * SIZE);
        HEAPPROF_LABEL_POP();
    }
    if (pthread_create(&thread, NULL, has_no_context, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 2;
    /* Not valid, no memory at all, and a record at the end of a page behind which there is none. */
    one.valid = 0;
    otel_thread_ctx_v1 = &one;
    site_labelled(SIZE);
    otel_thread_ctx_v1 = (struct context *)8;
    site_labelled(SIZE);
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || munmap(pages + 4096, 4096) != 0)
        return 2;
    struct context *last = (struct context *)(pages + 4096 - 28);
    memcpy(last, &other, 28);
    otel_thread_ctx_v1 = last;
    site_labelled(SIZE);
    last->length = 0;
    site_labelled(7 * SIZE);
    otel_thread_ctx_v1 = NULL;
    return 0;
}

static int rotates(void)
{
    if (publishes() != 0)
        return 2;
    HEAPPROF_LABEL_PUSH("tenant", "early");
    site_labelled(5 * SIZE);
    HEAPPROF_LABEL_POP();
    HEAPPROF_LABEL_PUSH("tenant", "churn");
    for (int i = 0; i < 200000; i++)
        free(site_labelled(SIZE));
    HEAPPROF_LABEL_POP();
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
    if (strcmp(argv[1], "rotates") == 0)
        return rotates();
    if (strcmp(argv[1], "contexts") == 0)
        return contexts();
    return 2;
}
