/* Situation: a program with threads changes its ids, and a forked child that has allocated does,
 * too. libc sends a signal of its own to every thread, a profiler's as well, and waits until each
 * has changed its ids.
 * A correct profiler's thread does not block that signal, whichever thread started it, with any
 * signal mask.
 * If it is wrong: the program waits for ever.
 *
 * Needs no rights: the ids keep their values. Prints `ok <check>` lines.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int go_on[2], failures;
void *kept;

static void check(const char *what, int good)
{
    printf(good ? "ok %s\n" : "FAIL %s\n", what);
    failures += !good;
}

static int changes_ids(void)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    return setgid(gid) == 0 && setegid(gid) == 0 && setregid(gid, gid) == 0 && setresgid(gid, gid, gid) == 0 &&
           setuid(uid) == 0 && seteuid(uid) == 0 && setreuid(uid, uid) == 0 && setresuid(uid, uid, uid) == 0;
}

OWN_FRAME static void *waits(void *unused)
{
    char end;
    return read(go_on[0], &end, 1) < 0 ? NULL : unused;
}

OWN_FRAME static void *allocates_and_changes_ids(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    kept = malloc(42002);
    check("in_thread", changes_ids());
    return unused;
}

int main(int argc, char **argv)
{
    (void)argv;
    pthread_t waiting, changing;
    if (pipe(go_on) != 0)
        return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    /* A first thread before the first of these blocks: libc prepares a process for threads only
     * once. With an argument the block comes first, and then a profiler's thread. */
    if (argc > 1)
        kept = malloc(42001);
    pthread_create(&waiting, NULL, waits, NULL);
    if (argc == 1)
        kept = malloc(42001);
    check("with_thread", changes_ids());
    pthread_create(&changing, NULL, allocates_and_changes_ids, NULL);
    pthread_join(changing, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        kept = malloc(42003);
        exit(!changes_ids());
    }
    int status = 1;
    waitpid(pid, &status, 0);
    check("in_child", status == 0);
    if (write(go_on[1], "", 1) != 1)
        return 2;
    pthread_join(waiting, NULL);
    return failures != 0;
}
