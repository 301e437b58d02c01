/* Situation: dlmopen loads a plug-in into a name space of its own, with a libc of its own, whose
 * malloc serves it: nothing is preloaded there. The plug-in allocates, starts a thread, and frees
 * its own blocks; the program goes on. A second plug-in is loaded with dlmopen into the program's
 * own name space, with RTLD_DEEPBIND.
 * A correct profiler leaves the other name space alone, and walks through its functions when they
 * call back.
 * If it is wrong: two allocators meet in one block (a crash in free).
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *kept;

OWN_FRAME static void called_back(void) { kept = malloc(37001); NO_TAIL_CALL(); }

OWN_FRAME static int uses(void *plugin)
{
    if (plugin == NULL) {
        printf("FAIL dlmopen: %s\n", dlerror());
        return 0;
    }
    int (*entry)(void (*)(void));
    *(void **)&entry = dlsym(plugin, "border_allocates_and_calls");
    int passed = entry(called_back);
    NO_TAIL_CALL();
    return passed;
}

/* Blocks cross the border in both directions. */
OWN_FRAME static int exchanges(void *plugin)
{
    if (plugin == NULL)
        return 0;
    void *(*give)(size_t);
    void (*take)(void *);
    *(void **)&give = dlsym(plugin, "border_gives");
    *(void **)&take = dlsym(plugin, "border_takes");
    for (int i = 0; i < 1000; i++) {
        free(give(37002));
        take(escapes(malloc(37003)));
        take(realloc(give(100), 37004));
    }
    return 1;
}

int main(void)
{
    void *far = dlmopen(LM_ID_NEWLM, "border_plugin.so", RTLD_NOW);
    int all = uses(far);
    if (far != NULL)
        dlclose(far);
    all &= exchanges(dlmopen(LM_ID_BASE, "border_plugin.so", RTLD_NOW | RTLD_DEEPBIND));
    all &= exchanges(dlopen("deepbind_plugin.so", RTLD_NOW | RTLD_DEEPBIND));
    printf(all ? "ok borders\n" : "FAIL borders: 0 (expected 1)\n");
    printf("stack 37001 called_back border_allocates_and_calls uses main\n");
    printf("count 37001 1 1\n");
    printf("stack 37002 border_gives exchanges main\n");
    printf("count 37002 2000 0\n");
    printf("count 37003 2000 0\n");
    printf("count 37004 2000 0\n");
    return !all;
}
