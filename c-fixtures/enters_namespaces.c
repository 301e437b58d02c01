/* Situation: a program with one thread enters other namespaces, which the kernel allows only for
 * such a process.
 * A correct profiler's thread is not in the way, and records on.
 * If it is wrong: EINVAL.
 *
 * Prints `ok <check>` lines; `skip` for what is not allowed here.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *kept[200];
static int failures, count;

OWN_FRAME static void allocates(int size)
{
    for (int i = 0; i < 40; i++)
        kept[count++] = malloc(size);
    NO_TAIL_CALL();
}

static void check(const char *what, int answer)
{
    if (answer != 0 && (errno == EPERM || errno == ENOSPC))
        printf("skip %s: %s\n", what, strerror(errno));
    else if (answer != 0)
        printf("FAIL %s: %s\n", what, strerror(errno));
    else
        printf("ok %s\n", what);
    failures += answer != 0 && errno != EPERM && errno != ENOSPC;
}

static void *waits(void *of)
{
    pthread_barrier_wait(of);
    pthread_barrier_wait(of);
    return NULL;
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    allocates(45001);
    int here = open("/proc/self/ns/mnt", O_RDONLY);
    check("mount", setns(here, CLONE_NEWNS));
    check("mount_by_file", setns(here, 0));
    close(here);
    allocates(45002);

    /* With a thread of its own, the program is refused as without a profiler. */
    pthread_barrier_t both;
    pthread_t other;
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&other, NULL, waits, &both);
    pthread_barrier_wait(&both);
    errno = 0;
    int refused = unshare(CLONE_NEWUSER) == -1 && errno == EINVAL;
    errno = EINVAL;
    check("refused", -!refused);
    pthread_barrier_wait(&both);
    pthread_join(other, NULL);
    allocates(45003);

    errno = 0;
    refused = setns(-1, CLONE_NEWUSER) == -1 && errno == EBADF;
    check("no_file", -!refused);
    check("user", unshare(CLONE_NEWUSER));
    allocates(45004);
    return failures != 0;
}
