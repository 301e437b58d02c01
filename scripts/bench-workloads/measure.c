/* Runs a command and says what it cost.
 *
 *   measure REPORT REPEAT SECONDS MEGABYTES [NAME=VALUE...] -- COMMAND [ARGUMENT...]
 *
 * Runs COMMAND REPEAT times, each with the variables NAME=VALUE, and writes one line to the file REPORT:
 *
 *   <exit status> <CPU us> <wall us> <peak RSS KiB>
 *
 * CPU is user plus system time of the command and of all its descendants, those included whose parents did not
 * wait for them. Peak RSS is that of the largest of these processes. The exit status is 0, that of the last command that
 * failed, 128 + N after signal N, or 124 after more than SECONDS for one run. MEGABYTES limits the address space
 * of every process (0: no limit).
 *
 * A program of its own, because Linux counts into a process's peak RSS what ran in it before exec: started from Python,
 * no peak would be less than Python's 15 MiB.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile pid_t child;
static volatile int late;

static void too_late(int signal)
{
    (void)signal;
    late = 1;
    /* The command leads a process group of its own: helpers go with it. */
    if (child > 0) kill(-child, SIGKILL);
}

static long long now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000LL + time.tv_nsec / 1000;
}

static int status_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    int command = 5;
    while (command < argc && strcmp(argv[command], "--") != 0) command++;
    if (command + 1 >= argc) {
        fprintf(stderr, "measure: see the head of measure.c\n");
        return 2;
    }
    const char *report = argv[1];
    long repeat = atol(argv[2]);
    unsigned seconds = (unsigned)atol(argv[3]);
    rlim_t bytes = (rlim_t)atol(argv[4]) << 20;

    /* Orphans become our children, so that their time is counted too. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct sigaction action = {.sa_handler = too_late};
    sigaction(SIGALRM, &action, NULL);

    int result = 0;
    long long wall = 0;
    for (long i = 0; i < repeat; i++) {
        long long start = now_us();
        child = fork();
        if (child == 0) {
            setpgid(0, 0);
            if (bytes != 0) {
                struct rlimit limit = {bytes, bytes};
                setrlimit(RLIMIT_AS, &limit);
            }
            for (int at = 5; at < command; at++) putenv(argv[at]);
            execvp(argv[command + 1], argv + command + 1);
            perror(argv[command + 1]);
            _exit(127);
        }
        if (child < 0) {
            perror("measure: fork");
            return 2;
        }
        alarm(seconds);
        int status;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        wall += now_us() - start;
        if (status_of(status) != 0) result = status_of(status);
        /* Helpers that outlive the command: their time counts, up to the same limit. */
        while (waitpid(-1, &status, 0) > 0 || errno == EINTR) {}
        alarm(0);
        if (late) {
            result = 124;
            break;
        }
    }

    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    long long cpu = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL +
                    usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    FILE *file = fopen(report, "w");
    if (file == NULL) {
        perror(report);
        return 2;
    }
    fprintf(file, "%d %lld %lld %ld\n", result, cpu, wall, usage.ru_maxrss);
    return fclose(file) == 0 ? 0 : 2;
}
