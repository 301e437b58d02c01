/* Situation: a program closes descriptors that it has not opened, and opens files of its own, again
 * and again. Another thread allocates meanwhile, and its records are written.
 * A correct profiler writes nothing into the program's files.
 * If it is wrong: the profiler's descriptor is closed in the middle of a write, and its number is
 * now the program's file.
 *
 * usage: reuses_descriptors FILE [times]      prints `foreign <times that the empty file had
 * contents>`
 */
#define _GNU_SOURCE
#include "frames.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { UNKNOWN = 32, OPEN_FOR_NS = 20000 };

static volatile int is_over;

static void *allocates(void *nothing)
{
    for (size_t size = 16; !is_over; size = size % 4000 + 16)
        free(escapes(malloc(size)));
    return nothing;
}

static long now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int argc, char **argv)
{
    int times = argc > 2 ? atoi(argv[2]) : 5000, foreign = 0;
    pthread_t thread;
    if (argc < 2 || pthread_create(&thread, NULL, allocates, NULL) != 0)
        return 2;
    for (int i = 0; i < times; i++) {
        struct stat status;
        for (int fd = 3; fd < UNKNOWN; fd++)
            close(fd);
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (long start = now_ns(); now_ns() < start + OPEN_FOR_NS;)
            ;
        foreign += stat(argv[1], &status) == 0 && status.st_size != 0;
        close(file);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    printf("foreign %d\n", foreign);
    return 0;
}
