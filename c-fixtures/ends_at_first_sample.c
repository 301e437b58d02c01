/* Situation: the program ends while another thread takes its first sample.
 * A correct profiler waits for the start of its writer, within its bounds. The log has an end: the
 * program's, or one that says that it is cut.
 * If it is wrong: the ending thread finds no writer yet. It leaves a log without an end and without
 * blocks, and nobody is told.
 *
 *   ends_at_first_sample MICROSECONDS     from the start of that malloc to the end of main
 */
#include "frames.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static atomic_int goes_on;

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

OWN_FRAME static void *allocates(void *unused)
{
    atomic_store(&goes_on, 1);
    escapes(malloc(64 << 20)); /* many intervals */
    pause();
    return unused;
}

int main(int argc, char **argv)
{
    long long delay_ns = argc > 1 ? atoll(argv[1]) * 1000 : 0;
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocates, NULL) != 0)
        return 2;
    while (!atomic_load(&goes_on))
        sched_yield();
    for (long long until = now_ns() + delay_ns; now_ns() < until;)
        ;
    return 0;
}
