/* Situation: two plug-ins are loaded and unloaded in turn, 50 times; each allocates while it is
 * loaded. The second usually lands at the address of the first.
 * A correct profiler shows 25 blocks of plug-in A and 25 of plug-in B, each with the names of its
 * own plug-in.
 * If it is wrong: a stale module list names B's addresses after A, or unwinds B by A's rules; or
 * reading the unwind tables of an unloaded library crashes the program. A profiler that wraps
 * dlopen becomes its caller. Then the plug-ins, which this program's RUNPATH finds, are not found
 * at all.
 */
#include "frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CYCLES = 50 };

void *kept[CYCLES];

/* Runs the whole life of a plug-in: load, allocate inside it, unload. Its address is returned for
 * comparison only. */
OWN_FRAME static void *loads_allocates_unloads(const char *file, const char *entry, int cycle)
{
    void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "dlopen_cycle: %s\n", dlerror());
        exit(2);
    }
    void *(*allocates)(void);
    *(void **)&allocates = dlsym(plugin, entry);
    kept[cycle] = allocates();
    void *address = *(void **)&allocates;
    dlclose(plugin);
    return address;
}

int main(void)
{
    void *before = NULL;
    int same_page = 0;
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        void *now = cycle % 2 == 0 ? loads_allocates_unloads("plugin_a.so", "plugin_a_entry", cycle)
                                   : loads_allocates_unloads("plugin_b.so", "plugin_b_entry", cycle);
        same_page += (size_t)before / 4096 == (size_t)now / 4096;
        before = now;
    }
    printf("stack 8001 plugin_a_inner plugin_a_entry loads_allocates_unloads main\n");
    printf("stack 8002 plugin_b_inner plugin_b_middle plugin_b_entry loads_allocates_unloads main\n");
    printf("count 8001 25 25\n");
    printf("count 8002 25 25\n");
    printf("note a plug-in took the place of the other %d times\n", same_page);
    return 0;
}
