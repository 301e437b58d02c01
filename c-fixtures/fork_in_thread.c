/* Situation: a thread forks. It is the child's main thread, and its function returns there. libc
 * ends the process with the last of its threads, and the parent waits for that.
 * A correct profiler's own thread does not keep the child alive.
 * If it is wrong: the child never ends, nor does its parent.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;

static void *forks(void *nothing)
{
    child = fork();
    if (child == 0) {
        alarm(60); /* for a wrong profiler */
        void *volatile block = malloc(35001);
        (void)block;
        printf("ok buffered\n"); /* exit writes it */
        usleep(300000); /* until a profiler that sleeps when idle sleeps */
    }
    return nothing;
}

int main(void)
{
    pthread_t thread;
    int status = 0;
    if (pthread_create(&thread, NULL, forks, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    if (waitpid(child, &status, 0) != child || status != 0) {
        printf("FAIL child: %#x (expected 0)\n", status);
        return 1;
    }
    printf("child %d\nok child\n", child);
    return 0;
}
