/* Situation: a program exports its own dlsym, as overlays and tracers do. It allocates, then calls
 * the real one as if it were the caller itself. The program loads and unloads a plug-in, starts
 * threads that end by pthread_exit, and at last becomes another program.
 * A correct profiler never calls this dlsym. Only the program calls it: once for the plug-in's
 * function.
 * If it is wrong: dlsym calls calloc before the profiler knows any function. Or "the next after me"
 * is answered for the program instead of the profiler, which then finds its own functions and calls
 * itself for ever.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int calls;

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    free(escapes(calloc(1, 100)));
    if (real == NULL)
        *(void **)&real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = real(handle, name);
    NO_TAIL_CALL();
    return found;
}

void *kept[2];

OWN_FRAME static void *thread_main(void *nothing)
{
    kept[1] = malloc(28002);
    pthread_exit(nothing);
}

OWN_FRAME static void uses_plugin(void)
{
    void *plugin = dlopen("plugin_a.so", RTLD_NOW);
    void *(*allocates)(void);
    *(void **)&allocates = dlsym(plugin, "plugin_a_entry");
    kept[0] = allocates();
    dlclose(plugin);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        printf("ok exec\n");
        return 0;
    }
    uses_plugin();
    pthread_t thread;
    if (pthread_create(&thread, NULL, thread_main, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    if (calls != 1)
        printf("FAIL calls: %d (expected 1)\n", calls);
    else
        printf("ok calls\n");
    printf("stack 8001 plugin_a_inner plugin_a_entry uses_plugin main\n");
    printf("stack 28002 thread_main ...\n");
    fflush(stdout);
    execl(argv[0], argv[0], "again", NULL);
    return 2;
}
