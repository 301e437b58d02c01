/* Situation: a program goes on allocating while the consumer of its records stands still, as on a
 * disk that does not answer.
 *
 * usage: waits_for_nobody FILE PAIRS
 *
 * Makes 1000 pairs of malloc and free, prints `waits`, and waits until FILE exists; then makes
 * PAIRS more, and prints `took <ms>`.
 *
 * A correct profiler may stall it once, for some seconds; not at each malloc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void pairs(long count)
{
    for (long i = 0; i < count; i++) {
        char *volatile block = malloc(100);
        free(block);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    pairs(1000);
    puts("waits");
    fflush(stdout);
    while (access(argv[1], F_OK) != 0)
        usleep(1000);
    long begin = now_ms();
    pairs(atol(argv[2]));
    printf("took %ld\n", now_ms() - begin);
    return 0;
}
