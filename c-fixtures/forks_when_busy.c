/* Situation: several processes whose threads keep all processors busy fork children, one after the
 * other. Each child has two threads that allocate and end.
 * A correct profiler adds the cost of profiling so many short processes, and no more.
 * If it is wrong: its reads under /proc make the kernel spin when a child ends, in the process that
 * waits for it (shrink_dcache_parent), until the child's last thread gets a processor. Or the
 * child's threads spin while one of the threads begins to profile.
 *
 *   forks_when_busy [children]     of each of six processes; default 20
 *
 * Prints `ok children` and `used <n>`: milliseconds of processor time of all processes.
 */
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 6, CHURNERS = 3 };

static void *allocates_for_ever(void *unused)
{
    (void)unused;
    struct timespec moment = {0, 20000};
    for (;; nanosleep(&moment, NULL))
        for (size_t size = 16; size < 100000; size *= 3)
            free(escapes(malloc(size)));
    return NULL;
}

static void *allocates_once(void *unused)
{
    free(escapes(malloc(1000)));
    return unused;
}

static int forks(int children)
{
    pthread_t thread;
    int good = 0;
    for (int i = 0; i < CHURNERS; i++)
        pthread_create(&thread, NULL, allocates_for_ever, NULL);
    for (int i = 0; i < children; i++) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0) {
            pthread_create(&thread, NULL, allocates_once, NULL);
            allocates_once(NULL);
            pthread_join(thread, NULL);
            exit(0);
        }
        waitpid(pid, &status, 0);
        good += status == 0;
    }
    return good != children;
}

int main(int argc, char **argv)
{
    int children = argc > 1 ? atoi(argv[1]) : 20, good = 0;
    for (int i = 0; i < PROCESSES; i++)
        if (fork() == 0)
            exit(forks(children));
    for (int status, i = 0; i < PROCESSES; i++)
        good += wait(&status) > 0 && status == 0;
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    printf(good == PROCESSES ? "ok children\n" : "FAIL children: %d of %d processes\n", good, PROCESSES);
    printf("used %ld\n", (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000 +
                             (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1000);
    return good != PROCESSES;
}
