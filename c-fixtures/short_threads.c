/* Situation: argv[1] threads (default 10,240), one after the other in eight lines. Each allocates a
 * little and frees the blocks of the thread before it. After the first quarter and at the end the
 * program prints how much memory it has.
 * A correct profiler keeps nothing for a thread that has ended.
 * If it is wrong: per-thread buffers, caches or tables of threads grow for ever.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINES = 8 };

static int threads_of_line;
static void *from_before[LINES];

OWN_FRAME static void *short_thread(void *line)
{
    void **mine = &from_before[(size_t)line];
    for (int i = 0; i < 8; i++)
        free(escapes(malloc(34001)));
    free(*mine);
    *mine = malloc(34002);
    return NULL;
}

static void *runs_line(void *line)
{
    for (int i = 0; i < threads_of_line; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, short_thread, line) != 0)
            _exit(2);
        pthread_join(thread, NULL);
    }
    return NULL;
}

static void runs_lines(int each)
{
    threads_of_line = each;
    pthread_t lines[LINES];
    for (size_t i = 0; i < LINES; i++)
        if (pthread_create(&lines[i], NULL, runs_line, (void *)i) != 0)
            _exit(2);
    for (int i = 0; i < LINES; i++)
        pthread_join(lines[i], NULL);
}

/* Returns anonymous memory in KiB, as the kernel counts it. */
static long anonymous_kib(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long found = -1;
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "RssAnon: %ld", &found) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return found;
}

int main(int argc, char **argv)
{
    int all = argc > 1 ? atoi(argv[1]) : 10240;
    runs_lines(all / 4 / LINES);
    long before = anonymous_kib();
    runs_lines((all - all / 4) / LINES);
    long after = anonymous_kib();
    printf("anonymous_kib %ld %ld\n", before, after);
    int ran = LINES * (all / 4 / LINES + (all - all / 4) / LINES);
    printf("stack 34002 short_thread ...\n");
    printf("count 34001 %d 0\n", 8 * ran);
    printf("count 34002 %d %d\n", ran, LINES);
    return 0;
}
