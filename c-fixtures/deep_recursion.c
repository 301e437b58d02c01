/* Situation: a block is allocated below 2000 recursive calls, as parsers and tree walks do.
 * A correct profiler shows the innermost frames up to its depth limit and says that the stack was
 * cut there. With a limit above 2000 it shows all frames, `starts_recursion` and main.
 * If it is wrong: the walk overflows a fixed buffer or its own stack, drops the sample, or keeps
 * the outer end.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 2000 };

void *kept;

OWN_FRAME static void *allocates_at_the_bottom(void)
{
    void *block = malloc(10001);
    NO_TAIL_CALL();
    return block;
}

OWN_FRAME static void *recurses(int frames_to_go)
{
    void *block = frames_to_go == 1 ? allocates_at_the_bottom() : recurses(frames_to_go - 1);
    NO_TAIL_CALL();
    return block;
}

OWN_FRAME static void *starts_recursion(void)
{
    void *block = recurses(DEPTH);
    NO_TAIL_CALL();
    return block;
}

int main(void)
{
    kept = starts_recursion();
    printf("stack 10001 allocates_at_the_bottom recurses*%d starts_recursion main\n", DEPTH);
    return 0;
}
