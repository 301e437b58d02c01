/* Situation: a busy process starts others, again and again, and each looks at the descriptors that
 * it inherited.
 * A correct profiler's files are open for moments only, and another program never sees them.
 * If it is wrong: a server's helper holds a deleted log open for months.
 *
 *   exec_fds [rounds]     default 300
 *
 * Prints `ok descriptors`.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dirent.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int stop;

OWN_FRAME static void *allocates_until_stopped(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        for (size_t size = 16; size < 20000; size *= 2)
            free(escapes(malloc(size)));
    return NULL;
}

/* In the started program, without any environment: returns the number of descriptors beyond the
 * three. */
static int strangers(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        count += entry->d_name[0] != '.' && atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(folder);
    return folder == NULL ? 99 : count;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "image") == 0)
        return strangers();
    int rounds = argc > 1 ? atoi(argv[1]) : 300, bad = 0;
    char *args[] = {"/proc/self/exe", "image", NULL}, *nothing[] = {NULL};
    pthread_t threads[2];
    for (int fd = 3; fd < 1024; fd++)
        close(fd); /* descriptors that this program inherited */
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, allocates_until_stopped, NULL);
    for (int i = 0; i < rounds; i++) {
        pid_t pid;
        int status = 1;
        if (posix_spawn(&pid, args[0], NULL, NULL, args, nothing) != 0 || waitpid(pid, &status, 0) != pid)
            return 2;
        bad += status != 0;
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf(bad == 0 ? "ok descriptors\n" : "FAIL descriptors: %d children had some (expected 0)\n", bad);
    return bad != 0;
}
