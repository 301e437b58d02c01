/* Situation: one thread loads and unloads plug-ins, argv[1] times (default 600), while others
 * allocate. Some allocate below frames of their own. Some allocate below a frame without an unwind
 * table, whose saved frame pointer leads to a word that points into the plug-in, loaded or not. A
 * callback of dl_iterate_phdr, which runs under the loader's lock, allocates, too.
 * A correct profiler ends the second kind of stack somewhere and says so, and shows the first kind
 * whole.
 * If it is wrong: it reads the unwind table of a library that is being unmapped (SIGSEGV). Or it
 * takes the loader's lock in malloc while the loader waits for the thread (a hang).
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *volatile in_plugin; /* an address in the plug-in that was loaded last */
static int is_over;

/* Calls `work` with rbp leading to `frame`: a saved rbp and a return address. It has no unwind
 * table. */
void misleading(void (*work)(void), void **frame);
__asm__(".text\n.type misleading, @function\nmisleading:\n"
        "push %rbp\n mov %rsi, %rbp\n call *%rdi\n pop %rbp\n ret\n.size misleading, . - misleading\n");

OWN_FRAME static void allocates_misled(void) { free(escapes(malloc(30001))); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_well(void) { free(escapes(malloc(30002))); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_in_callback(void) { free(escapes(malloc(30003))); NO_TAIL_CALL(); }

OWN_FRAME static void *misled_thread(void *nothing)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST)) {
        void *frame[2] = {NULL, in_plugin};
        escapes(frame);
        misleading(allocates_misled, frame);
    }
    return nothing;
}

OWN_FRAME static void *other_thread(void *nothing)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST))
        allocates_well();
    return nothing;
}

OWN_FRAME static int callback(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size, (void)data;
    allocates_in_callback();
    return 0;
}

OWN_FRAME static void *iterating_thread(void *nothing)
{
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST))
        dl_iterate_phdr(callback, NULL);
    return nothing;
}

static void loads_and_unloads(const char *file, const char *name)
{
    void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "dlopen_storm: %s\n", dlerror());
        exit(2);
    }
    in_plugin = (char *)dlsym(plugin, name) + 5;
    dlclose(plugin);
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 600;
    void *(*works[])(void *) = {misled_thread, misled_thread, other_thread, iterating_thread};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        if (pthread_create(&threads[i], NULL, works[i], NULL) != 0)
            return 2;
    for (int i = 0; i < times; i++) {
        loads_and_unloads("storm_plugin.so", "storm_0");
        loads_and_unloads("plugin_b.so", "plugin_b_entry");
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("stack 30001 allocates_misled misleading ...\n");
    printf("stack 30002 allocates_well other_thread ...\n");
    printf("stack 30003 allocates_in_callback callback ... iterating_thread ...\n");
    return 0;
}
