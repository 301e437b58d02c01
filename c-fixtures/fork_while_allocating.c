/* Situation: one thread forks again and again while four others allocate without pause, as a
 * threaded server that starts helpers does. Every child allocates, frees blocks of its parent, and
 * ends, some by exit and some by _exit.
 * A correct profiler lets every child live: it touches no state that another thread of the parent
 * was changing.
 * If it is wrong: a child hangs on a lock whose owner does not exist in it; it is killed here after
 * 20 s.
 */
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, FORKS = 50 };

static int stop;

OWN_FRAME static void *allocates_until_stopped(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 16; size < 100000; size *= 3)
            free(escapes(malloc(size)));
    return NULL;
}

OWN_FRAME static void child(void *of_parent, int number)
{
    alarm(20);
    for (size_t i = 0; i < 1000; i++)
        free(escapes(malloc(16 + i)));
    free(of_parent);
    if (number % 2 == 0)
        exit(0);
    _exit(0);
}

int main(void)
{
    pthread_t threads[THREADS];
    int good = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, allocates_until_stopped, NULL);
    for (int i = 0; i < FORKS; i++) {
        void *block = malloc(15101);
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            child(block, i);
        free(block);
        waitpid(pid, &status, 0);
        good += status == 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    if (good == FORKS)
        printf("ok children\n");
    else
        printf("FAIL children: %d ended well (expected %d)\n", good, FORKS);
    return good != FORKS;
}
