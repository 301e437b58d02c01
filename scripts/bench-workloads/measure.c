/* Runs commands, one or several side by side, and reports their costs.
 *
 *   measure REPORT REPEAT SECONDS all|one RUN [::: RUN]...
 *   RUN: MEGABYTES FOLDER [NAME=VALUE...] -- COMMAND [ARGUMENT...]
 *
 * Runs each COMMAND REPEAT times, in FOLDER and with the variables NAME=VALUE, and writes one line
 * for each RUN to the file REPORT:
 *
 *   <exit status> <CPU us> <elapsed us> <peak RSS KiB>
 *
 * CPU is user plus system time of the command and of all its descendants, including those whose
 * parents did not wait for them. Peak RSS is that of the largest of these processes. The exit
 * status is 0, that of the last command that failed, 128 + N after signal N, or 124 after more than
 * SECONDS. MEGABYTES limits the address space of every process (0: no limit).
 *
 * Several commands take turns of 15 ms, in an order that is drawn anew for each round. During a
 * turn, all processes of one command run, and the others are stopped. So all commands share the
 * disturbances of a shared machine. Its neighbours change its speed twofold within a tenth of a
 * second, and consecutive runs would differ by that. Elapsed time is that of the command's own
 * turns.
 *
 * With turns, a program does its clock-driven work more often: a turn wakes all its threads, and
 * each sees that the time of all other commands has passed. So turns are not shorter, and few
 * commands should be compared at once.
 *
 * `one` runs all commands on one processor, the one that is fastest at the beginning. It is for
 * programs of one thread, which would otherwise move between processors with different neighbours.
 * The threads of a profiler run there, too.
 *
 * This is a C program, because Linux counts into a process's peak RSS the memory from before exec:
 * started from Python, no peak would be below Python's own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TURN_US 15000
#define MOST_RUNS 16

/* A RUN. Its keeper, a child of this process, starts the command and waits for it; both processes
 * write here. */
struct run {
    char **words, **command;
    pid_t keeper;
    _Atomic(pid_t) group; /* of the command's processes; 0: none now */
    int status, late, ended;
    long long cpu_us, elapsed_us;
    long peak_kib;
};

static struct shared {
    _Atomic(struct run *) turn; /* the run whose turn it is, or null */
    struct run runs[MOST_RUNS];
} *shared;

static void die(const char *what)
{
    perror(what);
    exit(2);
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

/* Starts the command's process in a group of its own, so that its helpers stop, continue and end
 * with it. */
static void start(struct run *run)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    atomic_store(&run->group, getpid());
    /* The turn may have ended while the keeper forked, when there was no group to stop. */
    if (atomic_load(&shared->turn) != run) raise(SIGSTOP);
    rlim_t bytes = (rlim_t)atol(run->words[0]) << 20;
    struct rlimit limit = {bytes, bytes};
    if (bytes != 0) setrlimit(RLIMIT_AS, &limit);
    if (chdir(run->words[1]) != 0) die(run->words[1]);
    for (char **word = run->words + 2; word < run->command - 1; word++) putenv(*word);
    execvp(run->command[0], run->command);
    perror(run->command[0]);
    _exit(127);
}

static void keep(struct run *run, long repeat)
{
    /* The process that gives the turns may be killed: stopped processes would stay stopped for
     * ever. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    raise(SIGSTOP); /* until its first turn */
    /* Orphans become children of the keeper, so that their time is counted, too. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (long i = 0; i < repeat && !run->late; i++) {
        pid_t child = fork();
        if (child == 0) start(run);
        if (child < 0) die("measure: fork");
        int status;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
        if (status_of(status) != 0) run->status = status_of(status);
        /* Helpers that outlive the command: their time counts, up to the same limit. */
        while (waitpid(-1, &status, 0) > 0 || errno == EINTR) {}
        atomic_store(&run->group, 0);
    }
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    run->cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
    run->peak_kib = usage.ru_maxrss;
    if (run->late) run->status = 124;
    _exit(0);
}

/* Signals all processes of a run. The keeper continues last and stops first, so that it starts no
 * process unseen. */
static void signal_run(struct run *run, int number)
{
    if (number == SIGSTOP) kill(run->keeper, number);
    pid_t group = atomic_load(&run->group);
    if (group > 0) kill(-group, number);
    if (number == SIGCONT) kill(run->keeper, number);
}

/* Lets a run continue for that long, or until it ends. SIGCHLD is blocked, and arrives when a
 * keeper ends. */
static void turn(struct run *run, long long most_us)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    long long begin = now_us(), left_us;
    atomic_store(&shared->turn, run);
    signal_run(run, SIGCONT);
    while ((left_us = begin + most_us - now_us()) > 0) {
        struct timespec wait = {left_us / 1000000, left_us % 1000000 * 1000};
        sigtimedwait(&ends, NULL, &wait);
        if (waitpid(run->keeper, NULL, WNOHANG) == run->keeper) {
            run->ended = 1;
            break;
        }
    }
    atomic_store(&shared->turn, NULL);
    if (!run->ended) signal_run(run, SIGSTOP);
    run->elapsed_us += now_us() - begin;
}

static void turns(int count, long long most_us)
{
    struct run *order[MOST_RUNS];
    for (int i = 0; i < count; i++) order[i] = &shared->runs[i];
    while (count > 0) {
        for (int i = count - 1; i > 0; i--) {
            int other = (int)(random() % (i + 1));
            struct run *at = order[i];
            order[i] = order[other];
            order[other] = at;
        }
        for (int i = 0; i < count; i++) {
            struct run *run = order[i];
            long long left_us = most_us - run->elapsed_us;
            if (left_us <= 0 && !run->late) {
                run->late = 1;
                pid_t group = atomic_load(&run->group);
                if (group > 0) kill(-group, SIGKILL);
            }
            /* The keeper of a late run still has to wait for its processes. */
            turn(run, count > 1 || left_us <= 0 ? TURN_US : left_us);
        }
        int left = 0;
        for (int i = 0; i < count; i++)
            if (!order[i]->ended) order[left++] = order[i];
        count = left;
    }
}

/* Puts this process, and so all that it starts, on the processor that takes least time for the same
 * work. */
static void choose_processor(void)
{
    cpu_set_t all, one, best;
    long long least = -1;
    if (sched_getaffinity(0, sizeof all, &all) != 0) die("measure: sched_getaffinity");
    best = all;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) continue;
        /* Four sums side by side: they suffer from a neighbour on the same core, which shares its
         * units. */
        long long begin = now_us();
        unsigned a = 1, b = 2, c = 3, d = 4;
        for (unsigned i = 0; i < 1000000; i++) {
            a += i;
            b ^= i;
            c -= i;
            d += i & 7;
            __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
        }
        long long took = now_us() - begin;
        if (least < 0 || took < least) {
            least = took;
            best = one;
        }
    }
    sched_setaffinity(0, sizeof best, &best);
}

int main(int argc, char **argv)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) die("measure: mmap");
    int count = 0;
    for (int at = 5; at < argc; count++) {
        if (count == MOST_RUNS) break;
        struct run *run = &shared->runs[count];
        run->words = argv + at;
        for (; at < argc && strcmp(argv[at], ":::") != 0; at++)
            if (run->command == NULL && strcmp(argv[at], "--") == 0) run->command = argv + at + 1;
        if (run->command == NULL || run->command < run->words + 3 || run->command >= argv + at) count = MOST_RUNS;
        if (at < argc) argv[at++] = NULL;
    }
    if (count < 1 || count > MOST_RUNS) {
        fprintf(stderr, "measure: see the head of measure.c\n");
        return 2;
    }
    cpu_set_t own;
    sched_getaffinity(0, sizeof own, &own);
    if (strcmp(argv[4], "one") == 0) choose_processor();

    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGCHLD);
    for (int i = 0; i < count; i++) {
        struct run *run = &shared->runs[i];
        pid_t keeper = fork();
        if (keeper == 0) keep(run, atol(argv[2]));
        if (keeper < 0) die("measure: fork");
        run->keeper = keeper;
        waitpid(keeper, NULL, WUNTRACED);
    }
    /* The process that gives the turns uses another processor, if there is one. */
    sched_setaffinity(0, sizeof own, &own);
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGCHLD, &action, NULL);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    turns(count, atoll(argv[3]) * 1000000);

    FILE *file = fopen(argv[1], "w");
    if (file == NULL) die(argv[1]);
    for (int i = 0; i < count; i++) {
        struct run *run = &shared->runs[i];
        fprintf(file, "%d %lld %lld %ld\n", run->status, run->cpu_us, run->elapsed_us, run->peak_kib);
    }
    return fclose(file) == 0 ? 0 : 2;
}
