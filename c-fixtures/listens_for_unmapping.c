/* Situation: UCX listens for memory that is given back, as it does in Open MPI and wherever memory
 * is registered for RDMA.
 * A correct profiler lets UCX hear of the program's blocks.
 * If it is wrong: UCX keeps the registration of memory that has another owner by then, and data is
 * corrupted silently.
 *
 * UCX is loaded here, so that this can be built without it.
 */
#include "frames.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* musl has none. */
int malloc_trim(size_t) __attribute__((weak));

/* As in <ucm/api/ucm.h>. */
enum { UCM_EVENT_VM_UNMAPPED = 1 << 17 };
union event {
    struct {
        void *address;
        size_t size;
    } vm_unmapped;
    char room[256];
};
typedef void listener(int type, union event *event, void *argument);

static char *volatile watched;
static size_t watched_bytes;
static volatile int heard;

static void hear(int type, union event *event, void *argument)
{
    char *from = event->vm_unmapped.address;
    (void)type, (void)argument;
    if (watched != NULL && from < watched + watched_bytes && from + event->vm_unmapped.size > watched)
        heard++;
}

static void check(const char *name, size_t size)
{
    heard = 0;
    watched_bytes = size;
    watched = malloc(size);
    memset(watched, 1, size);
    free(watched);
    if (malloc_trim != NULL)
        malloc_trim(0);
    watched = NULL;
    if (heard > 0)
        printf("ok %s\n", name);
    else
        printf("FAIL %s: 0 (expected to hear that it is given back)\n", name);
}

int main(void)
{
    dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL); /* the other one lacks it among what it needs */
    void *ucm = dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
    int (*set_event_handler)(int, int, listener *, void *);
    *(void **)&set_event_handler = ucm == NULL ? NULL : dlsym(ucm, "ucm_set_event_handler");
    if (set_event_handler == NULL) {
        printf("skip ucx: %s\n", dlerror());
        return 0;
    }
    int status = set_event_handler(UCM_EVENT_VM_UNMAPPED, 0, hear, NULL);
    if (status != 0)
        printf("FAIL handler: %d (expected 0)\n", status);
    check("large", 64 << 20);
    check("middle", 1 << 20);
    return 0;
}
