/* Situation: the library that publishes OpenTelemetry's thread contexts is opened while threads
 * run, closed and opened again.
 * A correct profiler, recording everything, has the numbers of each `span` line: bytes that were
 * allocated by the span's id.
 * If it is wrong: spans are missing, a thread that never published has one, or memory of a library
 * that is closed is read.
 *
 *   opened_contexts PLUGIN    context_plugin.so or context_plugin_static.so
 */
#include "frames.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1000 };

struct context {
    uint8_t trace[16], span[8], valid, flags;
    uint16_t length;
};

static struct context one = {.trace = {0xab}, .span = {[7] = 1}, .valid = 1};
static struct context other = {.trace = {0xab}, .span = {[7] = 2}, .valid = 1};
static void (*publish)(void *);
static pthread_barrier_t step;

OWN_FRAME static void *site_labelled(size_t size) { return escapes(malloc(size)); }

static void *open_plugin(const char *name, const char *program)
{
    char path[4096];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*s/%s", slash ? (int)(slash - program) : 1, slash ? program : ".", name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    publish = (void (*)(void *))dlsym(library, "publish");
    return library;
}

/* A thread from before the library. */
static void *is_older(void *unused)
{
    (void)unused;
    site_labelled(SIZE);
    pthread_barrier_wait(&step); /* opened */
    site_labelled(2 * SIZE);
    publish(&other);
    site_labelled(3 * SIZE);
    pthread_barrier_wait(&step); /* no thread is in the library */
    pthread_barrier_wait(&step); /* closed */
    site_labelled(5 * SIZE);
    pthread_barrier_wait(&step); /* opened again */
    site_labelled(7 * SIZE);
    publish(&one);
    site_labelled(11 * SIZE);
    return NULL;
}

static void *is_younger(void *unused)
{
    (void)unused;
    site_labelled(13 * SIZE);
    publish(&other);
    site_labelled(17 * SIZE);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t older, younger;
    if (argc < 2 || pthread_barrier_init(&step, NULL, 2) != 0 ||
        pthread_create(&older, NULL, is_older, NULL) != 0)
        return 2;
    void *library = open_plugin(argv[1], argv[0]);
    site_labelled(19 * SIZE);
    publish(&one);
    site_labelled(23 * SIZE);
    pthread_barrier_wait(&step);
    if (pthread_create(&younger, NULL, is_younger, NULL) != 0 || pthread_join(younger, NULL) != 0)
        return 2;
    pthread_barrier_wait(&step);
    if (dlclose(library) != 0)
        return 2;
    site_labelled(29 * SIZE);
    pthread_barrier_wait(&step);
    open_plugin(argv[1], argv[0]);
    pthread_barrier_wait(&step);
    if (pthread_join(older, NULL) != 0)
        return 2;
    site_labelled(31 * SIZE);
    printf("span (none) %d\n", (1 + 2 + 5 + 7 + 13 + 19 + 29 + 31) * SIZE);
    printf("span 0000000000000001 %d\n", (11 + 23) * SIZE);
    printf("span 0000000000000002 %d\n", (3 + 17) * SIZE);
    return 0;
}
