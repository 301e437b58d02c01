/* Situation: a program allocates 64 MiB in blocks of a page, frees them, and then waits for 13
 * seconds without a call of malloc's functions.
 * A correct profiler gives the pages back meanwhile, as the allocator does when it is called.
 * If it is wrong: the program stays as large as at its peak while it allocates nothing.
 */
#include "frames.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCKS = 16384, PAGE = 4096 };

static void *blocks[BLOCKS];

/* Returns the resident pages, without stdio, which allocates. */
static long resident(void)
{
    char text[128] = {0};
    int file = open("/proc/self/statm", O_RDONLY);
    if (file < 0 || read(file, text, sizeof text - 1) <= 0)
        return -1;
    close(file);
    const char *second = strchr(text, ' ');
    return second == NULL ? -1 : atol(second);
}

int main(void)
{
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = escapes(malloc(PAGE)), 1, PAGE);
    long most = resident();
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    sleep(13);
    printf("pages %ld %ld\n", most, resident());
    return 0;
}
