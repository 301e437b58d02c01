/* Situation: a server forks a process for each connection. Each child allocates less than one
 * sample's interval and ends. A correct sampler's axis begins anew in each child. Together the
 * children are sampled like one process that allocated as much, whether or not the server allocates
 * between two of them.
 * If it is wrong: each child goes on to the next mark of its parent and loses it there, so that its
 * allocations up to there are never sampled. Or the same blocks are sampled in all children.
 *
 *   fork_short_children CHILDREN BLOCKS BETWEEN
 *
 * Each child allocates BLOCKS blocks of 24001 bytes; the server allocates BETWEEN such blocks
 * before each child.
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
