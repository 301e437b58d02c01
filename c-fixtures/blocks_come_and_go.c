/* Situation: a program allocates blocks and frees them, again and again.
 * A correct allocator uses the same memory, or maps new memory at addresses that it had before.
 * If it is wrong: the process grows, or the allocator's map of addresses.
 *
 *   blocks_come_and_go BLOCKS BYTES ROUNDS [written]
 *
 * written: each page of a block is written, and the allocator keeps what is freed. Otherwise the
 * freed memory is unmapped (malloc_trim) after each round.
 *
 * Prints `peak KB <resident at most>`.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000 };
static char *volatile blocks[MOST];

static long peak_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    return kb;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int count = atoi(argv[1]), rounds = atoi(argv[3]);
    size_t bytes = strtoul(argv[2], NULL, 10);
    int is_written = argc > 4 && strcmp(argv[4], "written") == 0;
    if (count > MOST)
        return 2;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(bytes);
            if (blocks[i] == NULL)
                return 1;
            for (size_t at = 0; is_written && at < bytes; at += 4096)
                blocks[i][at] = 1;
        }
        for (int i = 0; i < count; i++)
            free(blocks[i]);
#ifdef __GLIBC__ /* musl has no such function */
        if (!is_written)
            malloc_trim(0);
#endif
    }
    printf("peak KB %ld\n", peak_kb());
    return 0;
}
