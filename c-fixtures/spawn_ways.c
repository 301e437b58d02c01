/* Situation: a process starts others in every way but plain fork: vfork, clone with shared memory,
 * posix_spawn, system, popen, a daemon's double fork, and _Fork, which runs no handlers.
 * A correct profiler puts the blocks that a child allocates in its parent's memory into the
 * parent's profile, which the child's `_exit` does not end. Images have profiles of their own. The
 * daemon has one; the process between has none. A child of _Fork hangs on nothing.
 * If it is wrong: the parent's profile ends with a vfork child, or a child waits for a writer that
 * does not exist.
 *
 *   spawn_ways                 all ways
 *   spawn_ways image <size>    a started image: allocates that size
 *
 * Prints `stack` lines for blocks in the parent's profile, `started <size>` for blocks in an
 * image's or the daemon's, `ok <way>` for each way.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
pid_t _Fork(void) __attribute__((weak));

void *kept[8];
static char self[4096];

OWN_FRAME static void first_of_all(void) { kept[5] = malloc(22000); NO_TAIL_CALL(); }
OWN_FRAME static void vforked_allocates(void) { kept[0] = malloc(22001); NO_TAIL_CALL(); }
OWN_FRAME static void cloned_allocates(void) { kept[1] = malloc(22004); NO_TAIL_CALL(); }
OWN_FRAME static void sharing_allocates(void) { kept[2] = malloc(22005); NO_TAIL_CALL(); }
OWN_FRAME static void parent_allocates(void) { kept[3] = malloc(22010); NO_TAIL_CALL(); }

static int verdict(const char *way, int good)
{
    if (good)
        printf("ok %s\n", way);
    else
        printf("FAIL %s: it did not end well (expected 0)\n", way);
    fflush(stdout);
    return good;
}

static int ended_well(pid_t pid, int options)
{
    int status = 1;
    return pid > 0 && waitpid(pid, &status, options) == pid && status == 0;
}

static int clone_main(void *unused)
{
    (void)unused;
    cloned_allocates();
    _exit(0);
}

static int sharing_main(void *unused)
{
    (void)unused;
    sharing_allocates();
    _exit(0);
}

/* A child of vfork allocates the very first block of the process: whatever a profiler starts there,
 * ends there. */
static int by_vfork_at_once(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        first_of_all();
        _exit(0);
    }
    return ended_well(pid, 0);
}

static int by_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        vforked_allocates();
        _exit(0);
    }
    return verdict("vfork", ended_well(pid, 0));
}

static int by_vfork_and_exec(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl(self, self, "image", "22002", NULL);
        _exit(9);
    }
    return verdict("vfork_exec", ended_well(pid, 0));
}

static int by_spawn(void)
{
    pid_t pid = 0;
    char *args[] = {self, "image", "22003", NULL};
    int error = posix_spawn(&pid, self, NULL, NULL, args, environ);
    return verdict("posix_spawn", error == 0 && ended_well(pid, 0));
}

static char stack[2][65536] __attribute__((aligned(16)));

static int by_clone(void)
{
    pid_t pid = clone(clone_main, stack[0] + sizeof stack[0], CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
    return verdict("clone_vfork", ended_well(pid, 0));
}

/* The parent waits in waitpid: both have one thread pointer. */
static int by_sharing_clone(void)
{
    pid_t pid = clone(sharing_main, stack[1] + sizeof stack[1], CLONE_VM | SIGCHLD, NULL);
    return verdict("clone_vm", ended_well(pid, 0));
}

static int by_shell(void)
{
    char command[5000], line[64] = "";
    snprintf(command, sizeof command, "%s image 22006", self);
    int good = verdict("system", system(command) == 0);
    snprintf(command, sizeof command, "%s image 22007", self);
    FILE *pipe = popen(command, "r");
    char *read = fgets(line, sizeof line, pipe);
    return good & verdict("popen", read != NULL && strcmp(line, "started 22007\n") == 0 && pclose(pipe) == 0);
}

/* The process between only forks. The end of a pipe tells when the daemon ends. */
static int by_double_fork(void)
{
    int ends[2];
    char byte;
    if (pipe2(ends, O_CLOEXEC) != 0)
        exit(2);
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            setsid();
            kept[4] = malloc(22008);
            exit(0); /* stdio's buffer is empty */
        }
        _exit(0);
    }
    int good = ended_well(pid, 0);
    close(ends[1]);
    return verdict("daemon", good && read(ends[0], &byte, 1) == 0);
}

/* Far more blocks than any queue holds, within 20 s. */
static int by_bare_fork(void)
{
    if (_Fork == NULL) {
        printf("skip _Fork: not in this libc\n");
        return 1;
    }
    pid_t pid = _Fork();
    if (pid == 0) {
        alarm(20);
        for (int i = 0; i < 30000; i++)
            free(escapes(malloc(22009)));
        _exit(0);
    }
    return verdict("_Fork", ended_well(pid, 0));
}

static int image(const char *size)
{
    kept[0] = malloc((size_t)atol(size));
    printf("started %s\n", size);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "image") == 0)
        return image(argv[2]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return 2;
    if (!by_vfork_at_once())
        return 1;
    kept[6] = malloc(1000);
    int good = by_vfork() & by_vfork_and_exec() & by_spawn() & by_clone() & by_sharing_clone() & by_shell() &
               by_double_fork() & by_bare_fork();
    parent_allocates();
    printf("started 22007\nstarted 22008\n");
    printf("stack 22001 vforked_allocates ...\n");
    printf("stack 22004 cloned_allocates ...\n");
    printf("stack 22005 sharing_allocates ...\n");
    printf("stack 22010 parent_allocates main\n");
    return !good;
}
