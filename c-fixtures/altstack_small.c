/* Situation: threads with the smallest possible stack (PTHREAD_STACK_MIN) allocate. A signal
 * handler allocates, too, on the smallest sensible alternate stack (SIGSTKSZ).
 * A correct profiler samples there, and the threads end as they should.
 * If it is wrong: a hook with large buffers on the stack runs into the guard page, or, on the
 * alternate stack, over the canary below it.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, BLOCKS = 100, CANARY = 512 };

void *kept[THREADS][BLOCKS];
void *kept_by_handler;

OWN_FRAME static void allocates_on_small_stack(size_t thread)
{
    for (int i = 0; i < BLOCKS; i++)
        kept[thread][i] = malloc(14001);
}

OWN_FRAME static void *small_thread(void *number)
{
    allocates_on_small_stack((size_t)number);
    NO_TAIL_CALL();
    return NULL;
}

static int run_small_threads(void)
{
    pthread_t handles[THREADS];
    pthread_attr_t small;
    pthread_attr_init(&small);
    if (pthread_attr_setstacksize(&small, (size_t)sysconf(_SC_THREAD_STACK_MIN)) != 0)
        return 0;
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&handles[i], &small, small_thread, (void *)i) != 0)
            return 0;
    for (int i = 0; i < THREADS; i++)
        pthread_join(handles[i], NULL);
    return 1;
}

OWN_FRAME static void handler_on_small_stack(int signal)
{
    (void)signal;
    kept_by_handler = escapes(malloc(14002));
}

OWN_FRAME static void raises_on_small_stack(void)
{
    raise(SIGUSR1);
    NO_TAIL_CALL();
}

static int is_intact(const char *canary)
{
    for (int i = 0; i < CANARY; i++)
        if (canary[i] != 0x5a)
            return 0;
    return 1;
}

OWN_FRAME static int run_handler(void)
{
#ifdef _SC_SIGSTKSZ
    size_t size = (size_t)sysconf(_SC_SIGSTKSZ);
#else
    size_t size = SIGSTKSZ; /* glibc before 2.34 */
#endif
    char *memory = malloc(CANARY + size);
    memset(memory, 0x5a, CANARY);
    stack_t alternate = {.ss_sp = memory + CANARY, .ss_size = size};
    struct sigaction action = {.sa_handler = handler_on_small_stack, .sa_flags = SA_ONSTACK};
    sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
    raises_on_small_stack();
    return is_intact(memory);
}

int main(void)
{
    int started = run_small_threads();
    int intact = run_handler();
    printf(started ? "ok small_threads\n" : "FAIL small_threads: not started (expected started)\n");
    printf(intact ? "ok canary\n" : "FAIL canary: overwritten (expected intact)\n");
    printf("stack 14001 allocates_on_small_stack small_thread ...\n");
    printf("count 14001 %d %d\n", THREADS * BLOCKS, THREADS * BLOCKS);
    printf("stack 14002 handler_on_small_stack ... raises_on_small_stack run_handler main\n");
    return !(started && intact);
}
