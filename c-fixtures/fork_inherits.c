/* Situation: a process forks with blocks in use; its child frees some of these and allocates
 * others.
 * A correct profiler shows in the child the inherited blocks, without the freed ones, and the
 * child's own.
 * If it is wrong: the child's log begins with an empty heap, and its frees are of unknown blocks.
 *
 * Prints for the child, after it has ended, `count <size> <allocated> <in use>` for each size.
 * Inherited blocks count as allocated.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { INHERITED = 100, FREED = 40, OWN = 7, INHERITED_SIZE = 21001, OWN_SIZE = 21002 };

static void *inherited[INHERITED];
static void *own[OWN];

OWN_FRAME static void allocates_before_the_fork(void)
{
    for (int i = 0; i < INHERITED; i++)
        inherited[i] = escapes(malloc(INHERITED_SIZE));
    NO_TAIL_CALL();
}

OWN_FRAME static void allocates_in_the_child(void)
{
    for (int i = 0; i < OWN; i++)
        own[i] = escapes(malloc(OWN_SIZE));
    NO_TAIL_CALL();
}

int main(void)
{
    allocates_before_the_fork();
    pid_t child = fork();
    if (child < 0)
        return 1;
    if (child == 0) {
        for (int i = 0; i < FREED; i++)
            free(inherited[i]);
        allocates_in_the_child();
        exit(0);
    }
    /* Actions of the parent that do not count for the child. */
    for (int i = 0; i < INHERITED; i += 2)
        free(inherited[i]);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    printf("child %d\n", (int)child);
    printf("count %d %d %d\n", INHERITED_SIZE, INHERITED, INHERITED - FREED);
    printf("count %d %d %d\n", OWN_SIZE, OWN, OWN);
    return 0;
}
