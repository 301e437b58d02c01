/* Situation: a program takes all of its address space in blocks of one size, frees all of them, and
 * goes on with blocks of other sizes; many times over.
 * A correct allocator serves the small blocks at once, and gives as many large ones as before.
 * If it is wrong: no small block is cut out of the freed ranges, and the program is refused memory
 * that it has given back.
 *
 *   memory_ran_out BYTES ROUNDS [MiB]     MiB: the address space that the program limits itself
 *                                         to (default: the limit that it has)
 *
 * Prints `ok small`, `blocks <first round> <fewest> <last round>`, and `maps <at the end>`: the
 * number of the process's mappings.
 */
#include "frames.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST = 1 << 17 };
static void *blocks[MOST];

static int mappings(void)
{
    static char text[1 << 16];
    int file = open("/proc/self/maps", O_RDONLY), count = 0;
    ssize_t got;
    while ((got = read(file, text, sizeof text)) > 0)
        for (ssize_t i = 0; i < got; i++)
            count += text[i] == '\n';
    return count;
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    int rounds = argc > 2 ? atoi(argv[2]) : 0;
    if (bytes == 0 || rounds == 0)
        return 2;
    if (argc > 3) {
        struct rlimit most = {0};
        most.rlim_cur = most.rlim_max = strtoul(argv[3], NULL, 10) << 20;
        if (setrlimit(RLIMIT_AS, &most) != 0)
            return 3;
    }
    int first = 0, fewest = MOST, last = 0, refused = 0;
    for (int round = 0; round < rounds; round++) {
        int count = 0;
        while (count < MOST && (blocks[count] = malloc(bytes)) != NULL)
            count++;
        last = count;
        first = round == 0 ? count : first;
        fewest = count < fewest ? count : fewest;
        while (count > 0)
            free(blocks[--count]);
        for (size_t small = 16; small < 100000; small *= 2) {
            void *block = malloc(small);
            refused += block == NULL;
            free(block);
            block = calloc(1, small);
            refused += block == NULL;
            free(block);
            block = realloc(realloc(NULL, small), 3 * small);
            refused += block == NULL;
            free(block);
        }
    }
    if (refused == 0)
        printf("ok small\n");
    else
        printf("FAIL small: %d refused (expected 0)\n", refused);
    printf("maps %d\n", mappings());
    printf("blocks %d %d %d\n", first, fewest, last);
    return refused != 0;
}
