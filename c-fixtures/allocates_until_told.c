/* Situation: a service that runs until it is told to end, and that `heapprof ctl` controls.
 * A correct profiler obeys while it runs. It records only between a start and a stop, follows an
 * interval, writes a dump, and names a moment.
 * If it is wrong: a command is ignored, unanswered, or answered by the wrong process; or the
 * program is disturbed.
 *
 *   allocates_until_told FILE [steady | idle | hot | fork]     ends when FILE exists
 *     steady   a block of 23001 bytes, freed at once, about every millisecond; one of 23002 is kept
 *     idle     one block of 23002, then nothing
 *     hot      blocks of 200 to 1223 bytes, all freed, for 2 s of CPU time; then nothing
 *     fork     as steady, in two processes
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void *kept;

OWN_FRAME static void allocates_and_frees(size_t size)
{
    free(escapes(malloc(size)));
    NO_TAIL_CALL();
}

static void waits_a_millisecond(void)
{
    struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static double cpu_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

OWN_FRAME static void allocates_flat_out(void)
{
    unsigned long blocks = 0, bytes = 0;
    double end = cpu_seconds() + 2;
    while (cpu_seconds() < end)
        for (int i = 0; i < 1024; i++) {
            size_t size = 200 + (size_t)(i * 7 % 1024);
            allocates_and_frees(size);
            blocks++;
            bytes += size;
        }
    printf("allocated %lu %lu\n", blocks, bytes);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    const char *mode = argc > 2 ? argv[2] : "steady";
    pid_t child = strcmp(mode, "fork") == 0 ? fork() : -1;
    kept = malloc(23002);
    printf("%s %d\n", child == 0 ? "child" : "pid", (int)getpid());
    fflush(stdout);
    int busy = strcmp(mode, "idle") != 0;
    if (strcmp(mode, "hot") == 0) {
        allocates_flat_out();
        busy = 0;
    }
    while (access(argv[1], F_OK) != 0) {
        if (busy)
            allocates_and_frees(23001);
        waits_a_millisecond();
    }
    if (child > 0)
        waitpid(child, NULL, 0);
    return 0;
}
