/* Situation: a plug-in registers handlers with pthread_atfork, and is unloaded. The program
 * registered some before its constructors ran (`.preinit_array`), and they allocate.
 * A correct profiler lets libc know the owner of each handler: the plug-in's handlers disappear
 * with it.
 * If it is wrong: a fork calls unmapped code, or hangs.
 *
 * Prints `ok <check>` lines.
 */
#include "frames.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int handlers_called, early_called;
void *kept;

static void allocates(void)
{
    free(kept);
    kept = malloc(43001);
    early_called++;
}

static void registers(void) { pthread_atfork(allocates, allocates, allocates); }
__attribute__((section(".preinit_array"), used)) static void (*early)(void) = registers;

/* Returns true if a fork calls that many handlers of the plug-in in the parent, and its child ends
 * well. */
static int forks_with(int expected)
{
    int before = handlers_called, early_before = early_called, status = 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(20);
        exit(handlers_called - before != expected || early_called - early_before != 2);
    }
    waitpid(pid, &status, 0);
    return status == 0 && handlers_called - before == expected && early_called - early_before == 2;
}

int main(int argc, char **argv)
{
    (void)argc;
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[0]);
    char *end = strrchr(path, '/');
    snprintf(end ? end + 1 : path, 100, "atfork_plugin.so");
    int failures = 0;
    const char *what[] = {"loaded", "unloaded", "again", "unloaded_again"};
    void *plugin = NULL;
    for (int i = 0; i < 4; i++) {
        if (i % 2 == 0 && !(plugin = dlopen(path, RTLD_NOW)))
            return 2;
        if (i % 2 == 1)
            dlclose(plugin);
        int good = forks_with(i % 2 == 0 ? 2 : 0);
        printf(good ? "ok %s\n" : "FAIL %s\n", what[i]);
        failures += !good;
    }
    return failures != 0;
}
