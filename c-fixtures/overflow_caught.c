/* Situation: a thread's stack overflows while it allocates. A handler on a signal stack jumps out,
 * as some language runtimes do, and the thread goes on. This happens twenty times, mostly in the
 * middle of a hook, which needs the most stack.
 * A correct profiler lets every thread go on, counts possibly missing events, and a moment later
 * records that thread again.
 * If it is wrong: the program crashes or hangs, freed blocks stay in use, or the thread is not
 * recorded any more.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCKS = 1000, OVERFLOWS = 20, ROOM = 64 << 10, STACK = 256 << 10 };

static sigjmp_buf before;
static void *kept[BLOCKS];

static void jump_out(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

OWN_FRAME static int allocates_ever_deeper(int depth)
{
    if (depth < 0)
        return 0;
    free(escapes(malloc(50 + (size_t)depth % 7)));
    int deepest = allocates_ever_deeper(depth + 1);
    NO_TAIL_CALL();
    return deepest;
}

static void *overflows(void *room)
{
    sigaltstack(&(stack_t){.ss_sp = room, .ss_size = ROOM}, NULL);
    volatile int caught = 0;
    for (volatile int i = 0; i < OVERFLOWS; i++)
        if (sigsetjmp(before, 1) == 0)
            allocates_ever_deeper(i);
        else
            caught++;
    for (int i = 0; i < BLOCKS; i++)
        free(kept[i]);
    for (int i = 0; i < 50; i++) {
        free(escapes(malloc(4002)));
        usleep(20000);
    }
    for (int i = 0; i < BLOCKS; i++)
        escapes(malloc(4003));
    printf("%d overflows\n", caught);
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
    return NULL;
}

OWN_FRAME static void *allocates_beside(void *nothing)
{
    for (int i = 0; i < BLOCKS; i++)
        kept[i] = malloc(4001);
    return nothing;
}

static void run(void *(*work)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, work, argument) == 0)
        pthread_join(thread, NULL);
}

int main(void)
{
    sigaction(SIGSEGV, &(struct sigaction){.sa_handler = jump_out, .sa_flags = SA_ONSTACK | SA_NODEFER}, NULL);
    run(allocates_beside, NULL);
    run(overflows, malloc(ROOM));
    run(allocates_beside, NULL);
    return 0;
}
