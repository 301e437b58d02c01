/* Situation: signals sent to the process, while all its threads block them, and while they do not.
 * A correct profiler has no thread that takes one, and leaves the disposition of every signal
 * unchanged.
 * If it is wrong: a handler runs in a thread that the program does not know, outside the order in
 * which the program expects its signals. Or sigwait waits for a signal that another thread has
 * taken.
 *
 * Prints `ok blocked`, `ok handled`, `ok dispositions`.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS = 1000 };

static long known[3];
static int handled, astray, stop;

static void handler(int signal)
{
    (void)signal;
    long me = syscall(SYS_gettid);
    int mine = 0;
    for (int i = 0; i < 3; i++)
        mine |= __atomic_load_n(&known[i], __ATOMIC_RELAXED) == me;
    __atomic_fetch_add(mine ? &handled : &astray, 1, __ATOMIC_RELAXED);
}

OWN_FRAME static void *allocates_until_stopped(void *place)
{
    __atomic_store_n((long *)place, syscall(SYS_gettid), __ATOMIC_RELAXED);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 16; size < 20000; size *= 3)
            free(escapes(malloc(size)));
    return NULL;
}

static int verdict(const char *what, int good)
{
    printf(good ? "ok %s\n" : "FAIL %s: no (expected yes)\n", what);
    return good;
}

int main(void)
{
    struct sigaction before[65], action = {.sa_handler = handler}, now;
    pthread_t threads[2];
    sigset_t set;
    int good = 1, same = 1, received;
    for (int signal = 1; signal <= 64; signal++)
        if (sigaction(signal, NULL, &before[signal]) != 0)
            before[signal].sa_handler = SIG_DFL;
    known[0] = syscall(SYS_gettid);
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, allocates_until_stopped, &known[i + 1]);
    for (int i = 0; i < ROUNDS; i++) {
        kill(getpid(), SIGUSR1);
        free(escapes(malloc(1000)));
        good &= sigwait(&set, &received) == 0 && received == SIGUSR1;
    }
    good = verdict("blocked", good && handled == 0 && astray == 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        kill(getpid(), SIGUSR1);
        free(escapes(malloc(1000)));
    }
    good &= verdict("handled", handled > 0 && astray == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    before[SIGUSR1] = action;
    for (int signal = 1; signal <= 64; signal++)
        if (sigaction(signal, NULL, &now) == 0)
            same &= now.sa_handler == before[signal].sa_handler;
    good &= verdict("dispositions", same);
    return !good;
}
