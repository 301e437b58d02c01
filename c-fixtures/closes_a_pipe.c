/* Situation: after its first allocation a program closes one end of a pipe that it had before.
 * Daemons tell their parent in this way that they run.
 * A correct profiler does not keep that end open: the reader of the other end finds the end of the
 * file.
 * If it is wrong: the parent waits for ever.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    int ends[2];
    char byte;
    if (pipe(ends) != 0)
        return 2;
    escapes(malloc(100));
    alarm(60); /* for a wrong profiler */
    close(ends[1]);
    printf(read(ends[0], &byte, 1) == 0 ? "ok end\n" : "FAILED end\n");
    return 0;
}
