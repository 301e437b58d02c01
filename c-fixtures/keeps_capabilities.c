/* Situation: a program with one thread gives up being root and keeps some capabilities, by
 * PR_SET_KEEPCAPS and capset. It changes ids by system calls past libc. The kernel does all this
 * for one thread. In between, the program calls libc's set*id functions, which make every thread of
 * the process change its ids. They abort if one thread is refused what another is granted. So a
 * profiler's thread must have the rights of the calling thread.
 * A correct profiler changes no result, and records on: the program keeps the right to write to
 * root's files.
 * If it is wrong: SIGABRT; or a result that is not the program's own.
 *
 * Prints `ok <check>` lines; `skip` when not started as root.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { UID = 61001, GID = 61002, OTHER = 61003 };
#define BIT(cap) (1ull << (cap))
#define IDS (BIT(CAP_SETUID) | BIT(CAP_SETGID))
#define KEPT (IDS | BIT(CAP_SETPCAP) | BIT(CAP_DAC_OVERRIDE))

void *kept[100];
static int failures;

static void check(const char *what, int good)
{
    printf(good ? "ok %s\n" : "FAIL %s: %s (expected what it is without a profiler)\n", what, strerror(errno));
    failures += !good;
}

static int capabilities(unsigned long long effective, unsigned long long permitted)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{effective, permitted, 0}, {effective >> 32, permitted >> 32, 0}};
    return syscall(SYS_capset, &head, data);
}

static unsigned long long effective_ones(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &head, data);
    return data[0].effective | (unsigned long long)data[1].effective << 32;
}

static int are(unsigned real, unsigned effective, unsigned saved)
{
    uid_t r, e, s;
    return getresuid(&r, &e, &s) == 0 && r == real && e == effective && s == saved;
}

OWN_FRAME static void allocates(int size)
{
    for (int i = 0; i < 100; i++) {
        free(kept[i]);
        kept[i] = malloc(size);
    }
    NO_TAIL_CALL();
}

/* Drops root as setpriv does, with all its steps. */
static void keeps(void)
{
    int good = prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(UID, UID, UID) == 0;
    check("kept", good && effective_ones() == 0 && are(UID, UID, UID));
    good = capabilities(KEPT, KEPT) == 0 && setresgid(GID, GID, GID) == 0;
    check("groups", good && setgroups(0, NULL) == 0 && initgroups("root", GID) == 0 && effective_ones() == KEPT);
}

/* Tries an action that the program could do, and has dropped for now. */
static void is_refused(const char *what)
{
    int good = capabilities(KEPT & ~IDS, KEPT) == 0;
    errno = 0;
    good &= setgid(OTHER) == -1 && errno == EPERM && getegid() == GID;
    errno = 0;
    good &= setgroups(0, NULL) == -1 && errno == EPERM;
    errno = 0;
    good &= setuid(OTHER) == -1 && errno == EPERM && are(UID, UID, UID);
    good &= setreuid(UID, UID) == 0 && setegid(GID) == 0 && setregid(GID, GID) == 0;
    check(what, good && capabilities(KEPT, KEPT) == 0);
}

/* Ids that libc does not know. */
static void goes_past_libc(void)
{
    int good = syscall(SYS_setresuid, UID, OTHER, OTHER) == 0 && capabilities(KEPT & ~IDS, KEPT) == 0;
    good &= seteuid(UID) == 0 && are(UID, UID, OTHER) && seteuid(OTHER) == 0;
    good &= setuid(UID + 9) == -1 && errno == EPERM && are(UID, OTHER, OTHER);
    check("past_libc", good && capabilities(KEPT, KEPT) == 0 && setresuid(UID, UID, UID) == 0);
}

/* Ids and capabilities that no longer correspond. */
static void has_other_rules(void)
{
    int good = prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP | SECBIT_KEEP_CAPS) == 0;
    good &= setresuid(0, 0, 0) == 0 && setresuid(UID, UID, UID) == 0 && effective_ones() == KEPT;
    check("rules", good && setegid(OTHER) == 0 && setegid(GID) == 0);
}

static void on_signal(int signal) { (void)signal; is_refused("in_handler"); }

static void in_child(pid_t pid, const char *what)
{
    int status = -1;
    waitpid(pid, &status, 0);
    check(what, status == 0);
}

int main(void)
{
    if (geteuid() != 0) {
        printf("skip only root can give up being root\n");
        return 0;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    allocates(41001);
    keeps();
    allocates(41002);
    is_refused("refused");
    goes_past_libc();
    has_other_rules();
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);

    pid_t pid = vfork();
    if (pid == 0) {
        /* A process with its parent's memory, and with rights of its own. */
        int good = capabilities(0, 0) == 0 && setgid(OTHER) == -1 && setuid(UID) == 0;
        _exit(!good);
    }
    in_child(pid, "vforked");
    if ((pid = fork()) == 0) {
        is_refused("in_child");
        allocates(41004);
        is_refused("in_child_recorded");
        allocates(41005);
        exit(failures != 0);
    }
    in_child(pid, "forked");

    allocates(41003);
    check("nothing_left", capabilities(BIT(CAP_DAC_OVERRIDE), BIT(CAP_DAC_OVERRIDE)) == 0 && setuid(0) == -1 && setgid(0) == -1 && setgid(GID) == 0);
    return failures != 0;
}
