/* Situation: a program installs a seccomp filter after its start, as browsers, sshd and container
 * runtimes do. It goes on allocating, and sets its ids to their current values.
 * A correct profiler needs only the system calls that it documents. If the filter would kill it, it
 * gives up with a line before the filter is installed. A refused call changes nothing for the
 * program.
 * If it is wrong: SIGSYS kills the process for a call that the program never made.
 *
 *   fenced nothreads           no thread can be started, from before the first large block
 *   fenced errno [call…]       calls not needed and not named fail with EPERM, in all threads
 *   fenced kill [call…]        … kill the process
 *   fenced prctl [call…]       … kill the process; prctl filters the main thread only, as in sshd
 *
 * Allocates 20001 bytes before and 20002 after the filter (nothreads: both after it), and many
 * other blocks, by a second thread, too. Prints `ok fenced`, or `skip seccomp` if there is none.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 64 };

static const struct {
    const char *name;
    int number;
} known[] = {
#define CALL(name) {#name, SYS_##name}
    CALL(openat),   CALL(open),      CALL(fstat),     CALL(write),          CALL(read),          CALL(close),
    CALL(poll),     CALL(futex),     CALL(getpid),    CALL(gettid),         CALL(tgkill),        CALL(prctl),         CALL(mmap),
    CALL(munmap),   CALL(madvise),   CALL(mprotect),  CALL(nanosleep),      CALL(sched_yield),   CALL(getrandom),
    CALL(renameat2), CALL(unlinkat), CALL(linkat),    CALL(ftruncate),      CALL(rt_sigprocmask), CALL(rt_sigtimedwait),
    CALL(rt_sigaction), CALL(getdents64), CALL(prlimit64), CALL(get_robust_list),
    CALL(ioctl), CALL(exit), CALL(clock_gettime),  CALL(getcwd),        CALL(readlinkat),
    CALL(pread64),  CALL(pwrite64), CALL(lseek),     CALL(newfstatat),       CALL(fcntl), CALL(sigaltstack),
    CALL(capget),   CALL(capset),   CALL(getresuid), CALL(getresgid),       CALL(setresuid),     CALL(setresgid),
};

/* Calls that the rest of this program makes on plain glibc. */
static const int needed[] = {SYS_write, SYS_exit_group, SYS_exit,     SYS_brk,         SYS_mmap,   SYS_munmap,
                             SYS_mremap, SYS_madvise,   SYS_mprotect, SYS_rt_sigreturn, SYS_futex, SYS_restart_syscall,
                             SYS_rt_sigprocmask, SYS_sched_yield,
                             SYS_setuid, SYS_tgkill,    SYS_getpid};

void *kept[2];

OWN_FRAME static void allocates_before(void) { kept[0] = malloc(20001); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_behind(void) { kept[1] = malloc(20002); NO_TAIL_CALL(); }

static void allocates_much(void)
{
    for (int i = 0; i < 20000; i++)
        free(escapes(malloc(16 + (size_t)i % 10000)));
}

static int there, go, gone;

static void *works_behind_the_fence(void *unused)
{
    (void)unused;
    __atomic_store_n(&there, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
        sched_yield();
    allocates_much();
    __atomic_store_n(&gone, 1, __ATOMIC_RELEASE);
    return NULL;
}

static int number_of(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].number;
    fprintf(stderr, "fenced: %s is not among the calls that it knows\n", name);
    exit(2);
}

/* The way to install a filter: in all threads by libc's syscall; in this one by its prctl; in all
 * past libc, which no interposed function sees. */
enum how { SYSCALL, PRCTL, PAST_LIBC };

static long past_libc(long number, long a, long b, const void *c)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

/* Answers `listed` for the calls of the list and `others` for the rest. */
static void fence(const int *list, size_t count, unsigned listed, unsigned others, enum how how)
{
    struct sock_filter filter[MOST * 2 + 4];
    size_t n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++) {
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)list[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    struct sock_fprog program = {(unsigned short)n, filter};
    const long all = SECCOMP_FILTER_FLAG_TSYNC;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        (how == PRCTL       ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
         : how == PAST_LIBC ? past_libc(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all, &program)
                            : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all, &program)) != 0) {
        printf("skip seccomp: %s\n", strerror(errno));
        exit(0);
    }
}

#ifndef SYS_clone3
#define SYS_clone3 435 /* headers of before Linux 5.3 */
#endif

static int without_threads(void)
{
    const int clones[] = {SYS_clone, SYS_clone3};
    pthread_t thread;
    fence(clones, 2, SECCOMP_RET_ERRNO | EAGAIN, SECCOMP_RET_ALLOW, PAST_LIBC);
    allocates_before();
    allocates_behind();
    allocates_much();
    for (int i = 0; i < 64; i++)
        free(escapes(malloc(1 << 20)));
    if (pthread_create(&thread, NULL, works_behind_the_fence, NULL) != EAGAIN)
        return 1;
    printf("ok fenced\n");
    return 0;
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "errno";
    if (strcmp(way, "nothreads") == 0)
        return without_threads();
    int allowed[MOST];
    size_t count = 0;
    pthread_t thread;
    uid_t uid = getuid();
    allocates_before();
    setvbuf(stdout, NULL, _IONBF, 0);
    pthread_create(&thread, NULL, works_behind_the_fence, NULL);
    /* its start needs more calls than the filter allows */
    while (!__atomic_load_n(&there, __ATOMIC_ACQUIRE))
        sched_yield();
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        allowed[count++] = needed[i];
    for (int i = 2; i < argc && count < MOST; i++)
        allowed[count++] = number_of(argv[i]);
    enum how how = strcmp(way, "prctl") == 0 ? PRCTL : SYSCALL;
    int kills = how == PRCTL || strcmp(way, "kill") == 0;
    fence(allowed, count, SECCOMP_RET_ALLOW, kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM, how);
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    allocates_much();
    allocates_behind();
    while (!__atomic_load_n(&gone, __ATOMIC_ACQUIRE))
        sched_yield();
    int good = setuid(uid) == 0; /* no change; but libc makes every thread set its ids */
    puts(good ? "ok fenced" : "FAIL fenced: its ids");
    return !good;
}
