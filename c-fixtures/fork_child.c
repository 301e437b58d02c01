/* Situation: a process allocates and forks, and both processes go on allocating; the child ends by
 * exit, _exit or return.
 * A correct profiler keeps two profiles. The parent's has blocks 15001 and 15003. The child's has
 * 15002, has 15001 as inherited or not at all, and never has 15003. The parent's files are as
 * without a child.
 * If it is wrong: the child writes into its parent's log, deadlocks on a lock that another thread
 * held, or has no profile at all.
 *
 *   fork_child [exit|_exit|return]
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *kept[3];

OWN_FRAME static void allocates_before_fork(void) { kept[0] = malloc(15001); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_in_child(void) { kept[1] = malloc(15002); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_in_parent(void) { kept[2] = malloc(15003); NO_TAIL_CALL(); }

OWN_FRAME static int child(const char *way)
{
    allocates_in_child();
    printf("child %d\n", (int)getpid());
    printf("stack 15002 allocates_in_child child main\n");
    fflush(stdout);
    if (strcmp(way, "exit") == 0)
        exit(0);
    if (strcmp(way, "_exit") == 0)
        _exit(0);
    return 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "exit";
    allocates_before_fork();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        return child(way);
    allocates_in_parent();
    int status = 0;
    waitpid(pid, &status, 0);
    printf("parent %d\n", (int)getpid());
    printf("stack 15001 allocates_before_fork main\n");
    printf("stack 15003 allocates_in_parent main\n");
    printf(status == 0 ? "ok child\n" : "FAIL child: status %d (expected 0)\n", status);
    return status != 0;
}
