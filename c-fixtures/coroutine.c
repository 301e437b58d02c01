/* Situation: coroutines allocate on stacks that are not the thread's: one made by malloc, one by
 * mmap with a guard page. They have 16 KiB each, or argv[1] KiB.
 * A correct profiler shows the coroutine's functions down to its entry and ends there; the program
 * still runs.
 * If it is wrong: bounds taken from the thread's own stack reject every frame; or the walk reads
 * beyond the coroutine's stack; or the hook needs more stack than there is (guard page: SIGSEGV;
 * malloc: the canary below the stack changes).
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, CANARY = 512 };

void *kept[4];
static ucontext_t main_context, coroutine_context;

OWN_FRAME static void allocates_on_malloced_stack(void) { kept[0] = malloc(13001); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_on_mmapped_stack(void) { kept[1] = malloc(13002); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_after_resuming(void) { kept[2] = malloc(13003); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_between(void) { kept[3] = malloc(13004); NO_TAIL_CALL(); }

OWN_FRAME static void coroutine_on_malloced(void)
{
    allocates_on_malloced_stack();
    swapcontext(&coroutine_context, &main_context);
    allocates_after_resuming();
}

OWN_FRAME static void coroutine_on_mmapped(void)
{
    allocates_on_mmapped_stack();
    NO_TAIL_CALL();
}

static void start(void (*entry)(void), void *stack, size_t size)
{
    getcontext(&coroutine_context);
    coroutine_context.uc_stack.ss_sp = stack;
    coroutine_context.uc_stack.ss_size = size;
    coroutine_context.uc_link = &main_context;
    makecontext(&coroutine_context, entry, 0);
    swapcontext(&main_context, &coroutine_context);
}

static int is_intact(const char *canary)
{
    for (int i = 0; i < CANARY; i++)
        if (canary[i] != 0x5a)
            return 0;
    return 1;
}

OWN_FRAME static int runs_on_malloced_stack(size_t size)
{
    char *memory = malloc(CANARY + size);
    memset(memory, 0x5a, CANARY);
    start(coroutine_on_malloced, memory + CANARY, size);
    allocates_between();
    swapcontext(&main_context, &coroutine_context);
    int intact = is_intact(memory);
    free(memory);
    return intact;
}

OWN_FRAME static void runs_on_mmapped_stack(size_t size)
{
    char *memory = mmap(NULL, PAGE + size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, PAGE, PROT_NONE);
    start(coroutine_on_mmapped, memory + PAGE, size);
    munmap(memory, PAGE + size);
}

int main(int argc, char **argv)
{
    size_t size = (argc > 1 ? (size_t)atoi(argv[1]) : 16) * 1024;
    int intact = runs_on_malloced_stack(size);
    runs_on_mmapped_stack(size);
    printf("stack 13001 allocates_on_malloced_stack coroutine_on_malloced ...\n");
    printf("stack 13002 allocates_on_mmapped_stack coroutine_on_mmapped ...\n");
    printf("stack 13003 allocates_after_resuming coroutine_on_malloced ...\n");
    printf("stack 13004 allocates_between runs_on_malloced_stack main\n");
    printf(intact ? "ok canary\n" : "FAIL canary: overwritten (expected intact)\n");
    return !intact;
}
