/* Situation: four threads fork, again and again, while two others allocate without pause, and
 * handlers of pthread_atfork allocate and free, too. One child in four allocates and keeps, one
 * only frees inherited blocks, one does nothing, and one forks a child that allocates.
 * A correct profiler lets every child end, and leaves a profile of each process that allocated.
 * If it is wrong: a child hangs on a lock whose owner does not exist in it; it is killed here after
 * 20 s.
 *
 *   fork_storm [forks]     default 1000
 *
 * Prints `ok children` and `allocated <n>`: the number of other processes that allocated.
 */
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKERS = 4, CHURNERS = 2, SIZE = 24001 };

static int forks = 1000;
static int next_number, good, allocated, stop;
/* Between the handlers, only the thread that forks may write to it. */
static __thread void *of_prepare;
void *kept;

static void prepares(void) { of_prepare = malloc(24101); }
static void after_in_parent(void) { free(of_prepare); free(escapes(malloc(24102))); }
/* Frees only: a process that does not allocate leaves no profile. */
static void after_in_child(void) { free(of_prepare); }

OWN_FRAME static void *allocates_until_stopped(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 16; size < 100000; size *= 3)
            free(escapes(malloc(size)));
    return NULL;
}

OWN_FRAME static void allocates_in_child(void) { kept = malloc(SIZE); NO_TAIL_CALL(); }

static void child(int number, void *inherited)
{
    alarm(20);
    switch (number % 4) {
    case 0:
        allocates_in_child();
        break;
    case 1:
        free(inherited);
        break;
    case 2:
        break;
    default: {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            allocates_in_child();
            _exit(0);
        }
        _exit(pid < 0 || waitpid(pid, &status, 0) != pid || status != 0);
    }
    }
    _exit(0);
}

static void *forks_children(void *unused)
{
    (void)unused;
    int number;
    while ((number = __atomic_fetch_add(&next_number, 1, __ATOMIC_RELAXED)) < forks) {
        void *block = escapes(malloc(24103));
        int status = 1;
        pid_t pid = fork();
        if (pid == 0)
            child(number, block);
        free(block);
        if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0) {
            __atomic_fetch_add(&good, 1, __ATOMIC_RELAXED);
            /* The last kind of child allocates as well: in the handler before its own fork. */
            __atomic_fetch_add(&allocated, number % 4 == 0 ? 1 : number % 4 == 3 ? 2 : 0, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t churners[CHURNERS], forkers[FORKERS];
    if (argc > 1)
        forks = atoi(argv[1]);
    pthread_atfork(prepares, after_in_parent, after_in_child);
    for (int i = 0; i < CHURNERS; i++)
        pthread_create(&churners[i], NULL, allocates_until_stopped, NULL);
    for (int i = 0; i < FORKERS; i++)
        pthread_create(&forkers[i], NULL, forks_children, NULL);
    for (int i = 0; i < FORKERS; i++)
        pthread_join(forkers[i], NULL);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(churners[i], NULL);
    printf("allocated %d\n", allocated);
    if (good == forks)
        printf("ok children\n");
    else
        printf("FAIL children: %d ended well (expected %d)\n", good, forks);
    return good != forks;
}
