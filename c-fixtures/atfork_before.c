/* Situation: pthread_atfork handlers that were registered before any other constructor ran
 * (atfork_first.c). In the child, their part runs first, before that of a profiler that registered
 * later. It allocates and frees, while other threads of the parent were allocating at the fork.
 * A correct profiler lets every child end, and has the child's allocations after the fork. It knows
 * that the handler freed the inherited block of 36002 bytes.
 * If it is wrong: the child waits for a lock or a queue whose owner does not exist in it; it is
 * killed here after 20 s.
 *
 *   atfork_before [forks [past]]
 *
 * The default is 60 forks. With `past`, the library registers the handlers past a profiler.
 *
 * Prints `ok children` and `allocated <n>`: the number of other processes that allocated.
 */
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHURNERS = 3, SIZE = 36001 };

static int stop;
void *kept;

/* Blocks of the handlers (atfork_first.c). */
extern void *atfork_first_of_child[100], *atfork_first_inherited;

OWN_FRAME static void *allocates_until_stopped(void *unused)
{
    (void)unused;
    struct timespec moment = {0, 20000};
    for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED); nanosleep(&moment, NULL))
        for (size_t size = 16; size < 100000; size *= 3)
            free(escapes(malloc(size)));
    return NULL;
}

OWN_FRAME static void allocates_in_child(void) { kept = malloc(SIZE); NO_TAIL_CALL(); }

int main(int argc, char **argv)
{
    int forks = argc > 1 ? atoi(argv[1]) : 60, good = 0;
    pthread_t threads[CHURNERS];
    for (int i = 0; i < CHURNERS; i++)
        pthread_create(&threads[i], NULL, allocates_until_stopped, NULL);
    atfork_first_inherited = malloc(36002);
    for (int i = 0; i < forks; i++) {
        int status = 1;
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            allocates_in_child();
            for (int j = 50; j < 100; j++)
                free(atfork_first_of_child[j]);
            exit(0);
        }
        waitpid(pid, &status, 0);
        good += status == 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CHURNERS; i++)
        pthread_join(threads[i], NULL);
    printf(good == forks ? "ok children\n" : "FAIL children: %d (expected %d)\n", good, forks);
    printf("allocated %d\n", forks);
    return good != forks;
}
