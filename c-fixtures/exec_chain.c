/* Situation: a process replaces itself by exec, N times, with one pid: wrappers, shells, daemons
 * that re-exec.
 * A correct profiler makes one readable profile per image, none overwritten; image n has one block
 * of 16000 + n.
 * If it is wrong: the next image truncates the log of the one before, since the pid is the same; or
 * the memory of the environment is lost and only the first image is profiled.
 *
 *   exec_chain [N]      N more images after the first, default 3; image numbers count down to 0
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *kept;

OWN_FRAME static void allocates_in_image(int number)
{
    kept = malloc((size_t)(16000 + number));
    NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 3;
    allocates_in_image(number);
    printf("image %d pid %d\n", number, (int)getpid());
    printf("stack %d allocates_in_image main\n", 16000 + number);
    fflush(stdout);
    if (number == 0)
        return 0;
    char next[16];
    snprintf(next, sizeof next, "%d", number - 1);
    execl("/proc/self/exe", argv[0], next, (char *)NULL);
    perror("exec_chain");
    return 2;
}
