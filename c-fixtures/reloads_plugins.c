/* Situation: a plug-in is loaded, used and unloaded again and again, as by a server that loads a
 * module for each request; or two in turn, which take each other's place.
 * A correct profiler knows each of them again: after the last cycle there are as many modules and
 * stacks as after the second. Its memory does not grow, and a bounded log stays within its bound.
 * If it is wrong: each cycle leaves a module and its stacks in memory, and in each checkpoint.
 *
 *   reloads_plugins CYCLES [two]     prints `grew`: KiB of resident memory since a tenth of the
 *                                    cycles
 */
#include "frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1)
        exit(2);
    fclose(file);
    return pages * 4;
}

OWN_FRAME static void loads_uses_unloads(const char *file, const char *entry)
{
    void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "reloads_plugins: %s\n", dlerror());
        exit(2);
    }
    void *(*allocates)(void);
    *(void **)&allocates = dlsym(plugin, entry);
    free(allocates());
    dlclose(plugin);
}

int main(int argc, char **argv)
{
    int cycles = argc > 1 ? atoi(argv[1]) : 1000, two = argc > 2 && strcmp(argv[2], "two") == 0;
    long before = 0;
    for (int cycle = 0; cycle < cycles; cycle++) {
        if (two && cycle % 2 == 1)
            loads_uses_unloads("plugin_b.so", "plugin_b_entry");
        else
            loads_uses_unloads("plugin_a.so", "plugin_a_entry");
        if (cycle == cycles / 10)
            before = resident_kib();
    }
    long grew = resident_kib() - before;
    printf("grew %ld\n", grew > 0 ? grew : 0);
    return 0;
}
