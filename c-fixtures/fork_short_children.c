/* Situation: a server forks a process for each connection, which allocates a little and ends: less than is sampled once.
 * A correct sampler's line begins anew in each child: together the children are sampled like one process that allocated
 * as much, whether the server allocates between two of them or not.
 * If it is wrong: each child goes on to the mark that its parent was about to reach and forgets it there, so that what it
 * allocated up to there is never sampled; or all children are sampled at the same of their blocks.
 *
 *   fork_short_children CHILDREN BLOCKS BETWEEN
 *
 * Each child allocates BLOCKS blocks of 24001 bytes; the server allocates BETWEEN of them before each child.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 24001 };

OWN_FRAME static void allocates(int blocks)
{
    for (int i = 0; i < blocks; i++)
        free(escapes(malloc(SIZE)));
    NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    int children = atoi(argv[1]), blocks = atoi(argv[2]), between = atoi(argv[3]);
    for (int i = 0; i < children; i++) {
        allocates(between);
        pid_t child = fork();
        if (child < 0)
            return 1;
        if (child == 0) {
            allocates(blocks);
            exit(0);
        }
        int status = 0;
        if (waitpid(child, &status, 0) != child || status != 0)
            return 1;
    }
    printf("ok children\n");
    return 0;
}
