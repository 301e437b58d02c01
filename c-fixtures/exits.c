/* Situation: a program ends with many blocks in use, allocated by many different stacks, while
 * other threads go on allocating.
 *
 * usage: exits [blocks [stacks [threads [way [FILE]]]]]      way: exit (default), _exit, kill
 *
 * Each of the `stacks` is at least 20 calls deep, and they differ in the place of each call. The
 * blocks are spread over them evenly. From then on the threads allocate and free without pause. For
 * some 300 ms the main thread prints `tick <n>` and keeps a block of 5000 + n bytes, where n is the
 * number of milliseconds since it began. The blocks in the log tell how much of the end is missing.
 * With FILE it then prints `waits`, and waits until FILE exists. Last comes `leaving <ns> <ns>`, by
 * the wall clock and by the monotonic one.
 *
 * A correct profiler delays the end by less than 100 ms, for any amount of data, and has everything
 * up to 100 ms before.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEVELS = 20, SIZES = 8, TICKS_MS = 300 };

static long now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Each bit of `path` chooses one of two places of the next call. */
OWN_FRAME static void *descends(unsigned long path, int level, size_t size)
{
    void *block;
    if (level == 0) {
        block = escapes(malloc(size));
        NO_TAIL_CALL();
    } else if (path & 1) {
        block = descends(path >> 1, level - 1, size);
        __asm__ volatile("# one place" ::: "memory"); /* two texts: the two calls are not merged */
    } else {
        block = descends(path >> 1, level - 1, size);
        __asm__ volatile("# another place" ::: "memory");
    }
    return block;
}

OWN_FRAME static void *goes_on(void *unused)
{
    (void)unused;
    for (size_t size = 16;; size = size < 4096 ? size * 2 : 16)
        free(escapes(malloc(size)));
    return NULL;
}

OWN_FRAME static void keeps(size_t size) { escapes(malloc(size)); NO_TAIL_CALL(); }

/* Without stdio: nothing may stay in a buffer. */
static void tell(const char *line, int length)
{
    if (write(1, line, (size_t)length) != length)
        _exit(2);
}

static void ticks(const char *file)
{
    char line[80];
    long start = now_ns(CLOCK_MONOTONIC), last = -1;
    for (;;) {
        struct timespec pause = {0, 300000};
        long tick = (now_ns(CLOCK_MONOTONIC) - start) / 1000000;
        if (file ? access(file, F_OK) == 0 : tick > TICKS_MS)
            break;
        if (tick != last) {
            keeps(5000 + (size_t)tick);
            tell(line, snprintf(line, sizeof line, "tick %ld\n", tick));
            last = tick;
        }
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    unsigned long blocks = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    unsigned long stacks = argc > 2 ? strtoul(argv[2], NULL, 10) : 10;
    int threads = argc > 3 ? atoi(argv[3]) : 0;
    const char *way = argc > 4 ? argv[4] : "exit";
    if (stacks == 0 || stacks > 1ul << LEVELS)
        return 2;
    for (unsigned long i = 0; i < blocks; i++)
        descends(i % stacks, LEVELS, 16 + 16 * (i / stacks % SIZES));
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, goes_on, NULL) != 0)
            return 2;
    }
    ticks(argc > 5 ? argv[5] : NULL);
    char line[80];
    tell(line, snprintf(line, sizeof line, "leaving %ld %ld\n", now_ns(CLOCK_REALTIME), now_ns(CLOCK_MONOTONIC)));
    if (strcmp(way, "_exit") == 0)
        _exit(0);
    if (strcmp(way, "kill") == 0)
        raise(SIGKILL);
    exit(0);
}
