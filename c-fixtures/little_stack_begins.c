/* Situation: the first block that a profiler with a mean interval of 64 MiB samples is one of a
 * gigabyte. Its thread has 6 KiB of stack left (or argv[2] bytes). The thread is in this process,
 * in its forked child, or in a child that the thread itself forks (argv[1]: here, fork, thread).
 * Below the stack is a guard page.
 * A correct profiler begins its work there without needing more than that, and shows the block.
 * If it is wrong: SIGSEGV in the guard page. Making files, tables and a thread takes far more stack
 * than a sample.
 *
 * The `stack_bytes begins <n>` line tells how much of the stack was written below the frame that
 * called the allocator.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <alloca.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, STACK = 64 * PAGE, PAINT = 0x5a, GIB = 1 << 30 };

static size_t left = 6144;
static char *low;
static int thread_forks, status_of_child;
void *kept[2];

OWN_FRAME static void begins(void)
{
    pid_t child = thread_forks ? fork() : 0;
    if (child == 0)
        kept[0] = malloc(GIB);
    else
        waitpid(child, &status_of_child, 0);
    if (child == 0 && thread_forks)
        _exit(kept[0] == NULL);
}

OWN_FRAME static void *with_little_left(void *unused)
{
    char *here = __builtin_frame_address(0);
    volatile char *room = alloca((size_t)(here - low) - left - 256);
    escapes((void *)room);
    char *top = (char *)room;
    for (volatile char *at = low; at < top - 128; at++)
        *at = PAINT;
    begins();
    char *written = low;
    while (written < top && *(volatile char *)written == PAINT)
        written++;
    printf("stack_bytes begins %zu\n", (size_t)(top - written));
    return unused;
}

static int runs_in_thread(void)
{
    char *memory = mmap(NULL, PAGE + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory, PAGE, PROT_NONE);
    low = memory + PAGE;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, memory + PAGE, STACK);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, with_little_left, NULL) != 0)
        return 2;
    pthread_join(thread, NULL);
    return thread_forks ? status_of_child != 0 : kept[0] == NULL;
}

int main(int argc, char **argv)
{
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* printf allocates nothing */
    if (argc > 2)
        left = (size_t)atoi(argv[2]);
    int status = 0;
    if (argc > 1 && strcmp(argv[1], "fork") == 0) {
        pid_t child = fork();
        if (child != 0) {
            waitpid(child, &status, 0);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
    thread_forks = argc > 1 && strcmp(argv[1], "thread") == 0;
    status = runs_in_thread();
    printf("stack %d begins with_little_left ...\n", GIB);
    fflush(stdout);
    return status;
}
