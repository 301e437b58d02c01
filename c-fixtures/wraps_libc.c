/* Situation: a library behind the profiler wraps functions of libc, and finds the real ones in its
 * constructor.
 * A correct profiler calls no wrapper itself, neither before that constructor nor later. The
 * program's calls reach the wrappers, also where the profiler stands before them.
 * If it is wrong: a crash or a deadlock before main; a tool that loses what it saves in its
 * `_exit`.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

void program_calls(int now);
const char *reached(int at), *stranger(int at);

void *kept[2];

OWN_FRAME static void allocates(void)
{
    kept[0] = malloc(38001);
    for (int i = 0; i < 2000; i++)
        free(escapes(malloc((size_t)(i * 31))));
    free(escapes(malloc(64 << 20)));
    free(escapes(calloc(1000, 100)));
    kept[0] = realloc(kept[0], 38002);
}

OWN_FRAME static void *thread_main(void *nothing)
{
    kept[1] = malloc(38003);
    return nothing;
}

static void calls_exec(void)
{
    char nowhere[] = "/nonexistent/program";
    char *const words[] = {nowhere, NULL};
    execve(nowhere, words, words);
    execv(nowhere, words);
    execvp(nowhere, words);
    execvpe(nowhere, words, words);
    execl(nowhere, nowhere, NULL);
    execlp(nowhere, nowhere, NULL);
    execle(nowhere, nowhere, NULL, words);
    fexecve(-1, words, words);
#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 34)
    execveat(-1, "", words, words, 0);
#endif
#endif
}

/* Called with the values that the process already has: nothing changes, with any user. */
static int calls_ids(void)
{
    uid_t user = getuid();
    gid_t group = getgid();
    gid_t groups[64];
    int n = getgroups(64, groups);
    return setuid(user) + setgid(group) + seteuid(user) + setegid(group) + setreuid(user, user)
           + setregid(group, group) + setresuid(user, user, user) + setresgid(group, group, group)
           + setgroups(n < 0 ? 0 : (size_t)n, groups) + initgroups("root", group);
}

/* Mappings large enough to be recorded. */
static void maps(void)
{
    enum { SIZE = 1 << 20, ALL = PROT_READ | PROT_WRITE, OWN = MAP_PRIVATE | MAP_ANONYMOUS };
    char *pages = mmap(NULL, SIZE, ALL, OWN, -1, 0);
    if (pages == MAP_FAILED)
        return;
    char *moved = mremap(pages, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
    munmap(moved == MAP_FAILED ? pages : moved, 2 * SIZE);
#ifdef __GLIBC__
    pages = mmap64(NULL, SIZE, ALL, OWN, -1, 0);
    if (pages != MAP_FAILED)
        munmap(pages, SIZE);
#endif
    void *end = sbrk(0);
    if (brk(end) != 0)
        printf("note brk\n");
}

static void calls_others(void)
{
    char name[16];
    prctl(PR_GET_NAME, name, 0, 0, 0);
    syscall(SYS_getppid);
    dlclose(dlopen(NULL, RTLD_NOW));
#ifdef __GLIBC__
    dlclose(dlmopen(LM_ID_BASE, NULL, RTLD_NOW));
#endif
    if (chroot("/nonexistent/folder") == 0 || unshare(0) != 0 || setns(-1, 0) == 0)
        printf("note others\n");
    pthread_atfork(NULL, NULL, NULL);
}

static void *volatile from_child;

/* Calls that end a process, in a child. */
static int status_of_child(int which)
{
    pid_t child = fork();
    if (child == 0) {
        from_child = malloc(38004);
        program_calls(1);
        if (which == 0)
            _exit(3);
        if (which == 1)
            _Exit(4);
        if (daemon(1, 1) != 0)
            _exit(7);
        _exit(5);
    }
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    allocates();
    pthread_t thread;
    program_calls(1);
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    calls_exec();
    int ids = calls_ids();
    maps();
    calls_others();
    program_calls(0);
    int statuses[] = {status_of_child(0), status_of_child(1), status_of_child(2)};
    usleep(150000); /* whatever else there is has its turn */
    if (statuses[0] == 3 && statuses[1] == 4 && statuses[2] == 0)
        printf("ok statuses\n");
    else
        printf("FAIL statuses: %d %d %d (expected 3 4 0)\n", statuses[0], statuses[1], statuses[2]);
    printf("note ids %d\n", ids);
    const char *name;
    for (int i = 0; (name = reached(i)) != NULL; i++)
        printf("ok %s\n", name);
    int strangers = 0;
    for (; (name = stranger(strangers)) != NULL; strangers++)
        printf("FAIL %s: called by somebody else (expected by the program only)\n", name);
    printf("stack 38002 allocates main\n");
    printf("stack 38003 thread_main ...\n");
    return strangers != 0;
}
