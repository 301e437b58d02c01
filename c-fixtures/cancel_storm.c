/* Situation: threads that do nothing but allocate are cancelled at any moment: asynchronously
 * (argv[1] times, default 400), and deferred, which ends a thread only at a cancellation point; the
 * allocator has none.
 * A correct profiler continues: the resources that a cancelled thread held are given back, and
 * other threads are still sampled.
 * If it is wrong: a lock or a buffer stays taken for ever (a hang, or no more samples). Or malloc
 * becomes a cancellation point, because it writes a file, and ends threads in the middle of their
 * work.
 *
 * POSIX leaves the cancellation of a thread inside the allocator undefined. With glibc it works as
 * long as no lock is held. So the threads here allocate from their own caches: the same sizes again
 * and again.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t has_begun;
static volatile int is_cancelled;
static long after_cancellation;

OWN_FRAME static void allocates_asynchronously(void) { free(escapes(malloc(1000))); NO_TAIL_CALL(); }

OWN_FRAME static void *asynchronous_thread(void *nothing)
{
    for (int i = 0; i < 100; i++)
        free(escapes(malloc(1000)));
    sem_post(&has_begun);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    for (;;)
        allocates_asynchronously();
    return nothing;
}

/* Goes on allocating after it was cancelled, up to a cancellation point. */
OWN_FRAME static void *deferred_thread(void *nothing)
{
    sem_post(&has_begun);
    while (!is_cancelled)
        free(escapes(malloc(36001)));
    for (int i = 0; i < 1000; i++) {
        free(escapes(malloc(36002)));
        after_cancellation++;
    }
    pthread_testcancel();
    return nothing;
}

static int cancels(void *(*work)(void *), int times)
{
    for (int i = 0; i < times; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 0;
        sem_wait(&has_begun);
        for (volatile int pause = 0; pause < i * 37 % 2000; pause++)
            ;
        pthread_cancel(thread);
        is_cancelled = 1;
        void *result;
        pthread_join(thread, &result);
        is_cancelled = 0;
        if (result != PTHREAD_CANCELED)
            return 0;
    }
    return 1;
}

OWN_FRAME static void allocates_afterwards(void)
{
    for (int i = 0; i < 100; i++)
        free(escapes(malloc(36003)));
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 400;
    sem_init(&has_begun, 0, 0);
    int all = cancels(asynchronous_thread, times) && cancels(deferred_thread, 10);
    allocates_afterwards();
    all &= after_cancellation == 10 * 1000;
    printf(all ? "ok cancelled\n" : "FAIL cancelled: 0 (expected 1)\n");
    printf("count 36002 10000 0\n");
    printf("stack 36003 allocates_afterwards main\n");
    printf("count 36003 100 0\n");
    return !all;
}
