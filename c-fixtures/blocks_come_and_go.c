/* Situation: a program maps and unmaps large blocks, again and again.
 * A correct allocator maps them at addresses that it had before, or forgets those.
 * If it is wrong: its map of addresses grows with each block, and the process with it.
 *
 *   blocks_come_and_go BLOCKS BYTES ROUNDS
 *
 * Prints `resident KB <at the end>`.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };
static void *volatile blocks[MOST];

static long resident_kb(void)
{
    char line[256];
    long kb = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = strtol(line + 6, NULL, 10);
    return kb;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int count = atoi(argv[1]), rounds = atoi(argv[3]);
    size_t bytes = strtoul(argv[2], NULL, 10);
    if (count > MOST)
        return 2;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < count; i++) {
            blocks[i] = malloc(bytes);
            if (blocks[i] == NULL)
                return 1;
        }
        for (int i = 0; i < count; i++)
            free(blocks[i]);
        malloc_trim(0); /* unmaps them */
    }
    printf("resident KB %ld\n", resident_kb());
    return 0;
}
