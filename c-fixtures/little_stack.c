/* Situation: a thread has 6 KiB of stack left (or argv[1] bytes) when it allocates: for the first
 * time, again from the same place, from a new place, from a library that was just loaded, and when
 * it frees. Below its stack is a guard page.
 * A correct profiler needs less than that, and shows every block.
 * If it is wrong: SIGSEGV in the guard page, in programs that ran well. Causes are large buffers in
 * a hook, or symbols that are bound at their first call: the loader then saves all vector registers
 * on the stack.
 *
 * Each `stack_bytes <what> <n>` line tells how much of the stack was written below the frame that
 * called the allocator.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <alloca.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 64 * PAGE, PAINT = 0x5a };

static size_t left = 6144;
void *kept[8];
static void *(*plugin_entry)(void);

OWN_FRAME static void allocates_first(void) { kept[0] = malloc(24001); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_elsewhere(void) { kept[2] = malloc(24002); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_in_plugin(void) { kept[3] = plugin_entry(); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_in_main_first(void) { kept[4] = malloc(24003); NO_TAIL_CALL(); }
OWN_FRAME static void grows(void) { kept[4] = realloc(kept[4], 24004); NO_TAIL_CALL(); }
OWN_FRAME static void frees(void) { free(kept[2]); NO_TAIL_CALL(); }

/* Runs `work` with `left` bytes of stack between here and `low`; returns how many bytes were
 * written. */
OWN_FRAME static size_t with_little_left(void (*work)(void), char *low)
{
    char *here = __builtin_frame_address(0);
    volatile char *room = alloca((size_t)(here - low) - left - 256);
    char *top = escapes((void *)room); /* the compiler sees the memory below as no part of it */
    /* Nothing is between the painted bytes and the call but this function's own frame. */
    for (volatile char *at = low; at < top - 128; at++)
        *at = PAINT;
    work();
    char *written = low;
    while (written < top && *(volatile char *)written == PAINT)
        written++;
    return (size_t)(top - written);
}

struct task {
    void (*work)(void);
    const char *what;
    char *low;
};

OWN_FRAME static void *small_thread(void *argument)
{
    for (struct task *task = argument; task->work != NULL; task++)
        printf("stack_bytes %s %zu\n", task->what, with_little_left(task->work, task->low));
    return NULL;
}

static int runs_in_thread(struct task *tasks)
{
    char *memory = mmap(NULL, PAGE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, PAGE, PROT_NONE);
    for (struct task *task = tasks; task->work != NULL; task++)
        task->low = memory + PAGE;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory + PAGE, STACK);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, small_thread, tasks) != 0)
        return 0;
    pthread_join(thread, NULL);
    return 1;
}

int main(int argc, char **argv)
{
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* printf allocates nothing */
    if (argc > 1)
        left = (size_t)atoi(argv[1]);
    void *plugin = dlopen("plugin_b.so", RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL)
        return 2;
    *(void **)&plugin_entry = dlsym(plugin, "plugin_b_entry");
    struct task tasks[] = {
        {allocates_first, "first", NULL},       {allocates_first, "again", NULL},
        {allocates_elsewhere, "elsewhere", NULL}, {allocates_in_plugin, "plugin", NULL},
        {allocates_in_main_first, "malloc", NULL}, {grows, "realloc", NULL},
        {frees, "free", NULL},                  {NULL, NULL, NULL},
    };
    if (!runs_in_thread(tasks))
        return 2;
    printf("stack 24001 allocates_first with_little_left small_thread ...\n");
    printf("count 24001 2 2\n");
    printf("stack 24002 allocates_elsewhere with_little_left small_thread ...\n");
    printf("count 24002 1 0\n");
    printf("stack 24004 grows with_little_left small_thread ...\n");
    return 0;
}
