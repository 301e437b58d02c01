/* Situation: a program with a limited address space allocates until there is no more memory,
 * several times over, in two threads, and handles the failure.
 * A correct profiler, which lives in the same address space, does not interfere: the program ends
 * well. The profile may end with a line that says so.
 * If it is wrong: the profiler's own failed allocation ends the process.
 *
 *   until_no_memory [MB]     default: 64 MB more than it has at its start
 *
 * Prints `ok enomem`.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SIZE = 5000, ROUNDS = 3 };

struct block {
    struct block *next;
};

static pthread_barrier_t started, limited;

OWN_FRAME static void *allocates_all_there_is(void *unused)
{
    (void)unused;
    free(escapes(malloc(SIZE)));
    pthread_barrier_wait(&started);
    pthread_barrier_wait(&limited);
    for (int round = 0; round < ROUNDS; round++) {
        struct block *blocks = NULL, *block;
        errno = 0;
        while ((block = escapes(malloc(SIZE))) != NULL) {
            block->next = blocks;
            blocks = block;
        }
        if (errno != ENOMEM)
            return "errno is not ENOMEM";
        while ((block = blocks) != NULL) {
            blocks = block->next;
            free(block);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    void *wrong[2] = {NULL, NULL};
    unsigned long pages = 0;
    /* large: everything that begins with the first sample has begun */
    free(escapes(malloc(8 << 20)));
    FILE *statm = fopen("/proc/self/statm", "r");
    for (int i = 0; i < 2; i++)
        escapes(malloc(1000));
    if (statm == NULL || fscanf(statm, "%lu", &pages) != 1)
        return 2;
    fclose(statm);
    rlim_t most = pages * 4096 + ((rlim_t)(argc > 1 ? atol(argv[1]) : 64) << 20) + (16 << 20);
    struct rlimit limit = {most, most};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_barrier_init(&started, NULL, 3);
    pthread_barrier_init(&limited, NULL, 3);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], &attributes, allocates_all_there_is, NULL) != 0)
            return 2;
    pthread_barrier_wait(&started);
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    pthread_barrier_wait(&limited);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], &wrong[i]);
    char line[100];
    int length = snprintf(line, sizeof line, "%s\n",
                          wrong[0] || wrong[1] ? "FAIL enomem: errno (expected ENOMEM)" : "ok enomem");
    if (write(1, line, (size_t)length) != length)
        return 2;
    return wrong[0] || wrong[1];
}
