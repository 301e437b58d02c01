/* Situation: a process allocates a little and then does nothing for a long time.
 * A correct profiler has the block of 19001 bytes on disk soon, wakes up rarely, and uses no
 * measurable CPU time.
 * If it is wrong: a writer that polls burns CPU in thousands of idle processes; or the block stays
 * in a buffer until the process ends.
 *
 *   idle [seconds]     default 2; any number of milliseconds as 0.3
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void *kept;

OWN_FRAME static void allocates_a_little(void) { kept = malloc(19001); NO_TAIL_CALL(); }

/* Returns the user and system time of all threads, the profiler's too. */
static double cpu_ms(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static long wakeups(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    allocates_a_little();
    printf("pid %d\n", (int)getpid());
    printf("stack 19001 allocates_a_little main\n");
    fflush(stdout);
    double cpu_before = cpu_ms();
    long wakeups_before = wakeups();
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
    printf("idle_cpu_ms %.3f\n", cpu_ms() - cpu_before);
    printf("idle_wakeups %ld\n", wakeups() - wakeups_before);
    return 0;
}
