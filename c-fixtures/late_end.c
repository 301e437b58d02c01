/* Situation: a program whose threads allocate up to the very end, which comes in one of many ways.
 * A correct profiler has everything that was allocated up to 100 ms before, whatever ended the
 * process, and adds less than 100 ms to the end.
 * If it is wrong: the profile of a crash lacks its cause; a service takes seconds to restart.
 *
 *   late_end return|exit|_exit|quick_exit|abort|sigterm|sigsegv|sigkill|exec
 *
 * For some 400 ms one thread keeps a block of 500000 + n bytes, where n is the number of
 * milliseconds since the start, and writes `tick n`. Two others allocate and free nearly without
 * pause. Last comes `leaving <ns>`, by the monotonic clock.
 * Status: as in exit_ways; sigsegv dies of it; exec becomes /bin/true.
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

static long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Without stdio: nothing may stay in a buffer. */
static void tell(const char *word, long number)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %ld\n", word, number);
    if (write(1, line, (size_t)length) != length)
        _exit(2);
}

OWN_FRAME static void *allocates_all_the_time(void *unused)
{
    (void)unused;
    struct timespec moment = {0, 20000};
    for (;; nanosleep(&moment, NULL))
        for (size_t size = 16; size < 20000; size *= 2)
            free(escapes(malloc(size)));
    return NULL;
}

OWN_FRAME static void keeps(size_t size) { escapes(malloc(size)); NO_TAIL_CALL(); }

static void tick_for(long ms)
{
    long start = now_ns(), last = -1;
    for (;;) {
        long tick = (now_ns() - start) / 1000000;
        struct timespec pause = {0, 300000};
        if (tick > ms)
            return;
        if (tick != last) {
            keeps(500000 + (size_t)tick);
            tell("tick", tick);
            last = tick;
        }
        nanosleep(&pause, NULL);
    }
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "return";
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, allocates_all_the_time, NULL);
    tick_for(400);
    tell("leaving", now_ns());
    if (strcmp(way, "exit") == 0)
        exit(3);
    if (strcmp(way, "_exit") == 0)
        _exit(4);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(5);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "sigterm") == 0)
        raise(SIGTERM);
    if (strcmp(way, "sigsegv") == 0)
        *(volatile int *)escapes(NULL) = 0;
    if (strcmp(way, "sigkill") == 0)
        raise(SIGKILL);
    if (strcmp(way, "exec") == 0)
        execl("/bin/true", "true", NULL);
    return strcmp(way, "return") == 0 ? 0 : 2;
}
