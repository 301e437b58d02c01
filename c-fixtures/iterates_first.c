/* Situation: the first sampled block is allocated in a callback of dl_iterate_phdr, which runs
 * under a lock of the loader. Another thread waits for that lock in dlopen, and holds another lock,
 * which every thread creation needs.
 * A correct profiler creates no thread there.
 * If it is wrong: the two threads wait for each other for ever.
 *
 * Needs an interval of some MiB: then blocks of 64 MiB are sampled, and the loader's own are not.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LARGE = 64 << 20, WAITS_MS = 20 };

static volatile int loader_thread, may_load;
void *kept;

OWN_FRAME static void allocates_in_callback(void) { free(escapes(malloc(LARGE + 1))); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_after_it(void) { kept = malloc(LARGE + 2); NO_TAIL_CALL(); }

static void *loads(void *nothing)
{
    loader_thread = (int)syscall(SYS_gettid);
    while (!may_load)
        usleep(100);
    if (dlopen("storm_plugin.so", RTLD_NOW | RTLD_LOCAL) == NULL)
        exit(2);
    return nothing;
}

/* Returns whether the other thread is in the futex call, without stdio, which would allocate. */
static int waits_for_a_lock(void)
{
    char path[64], call[16] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", loader_thread);
    int file = open(path, O_RDONLY);
    if (file < 0 || read(file, call, sizeof call - 1) < 0)
        _exit(3);
    close(file);
    return atoi(call) == SYS_futex && strncmp(call, "running", 7) != 0;
}

static int callback(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    may_load = 1;
    for (int waited = 0; waited < WAITS_MS; usleep(1000))
        waited = waits_for_a_lock() ? waited + 1 : 0;
    allocates_in_callback();
    return 1;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, loads, NULL) != 0)
        return 2;
    while (loader_thread == 0)
        usleep(100);
    dl_iterate_phdr(callback, NULL);
    pthread_join(thread, NULL);
    allocates_after_it();
    puts("done");
    return 0;
}
