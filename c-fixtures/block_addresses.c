/* Situation: a debugger or a crash names addresses: inside and outside of blocks in use, in a block
 * that was freed, of one that was resized elsewhere, and of memory that never was a block.
 * A correct profiler tells each block by its address, with its size and function, and whether it
 * was freed.
 * If it is wrong: a use after free is blamed on the wrong function, or on nobody.
 *
 *   block_addresses         prints `<function> <address> <size>` of each block, and of a mapping
 *   block_addresses <file>  then waits until there is that file
 *
 * All blocks are freed at the end. The first dump is written while all but the resized block are in
 * use, the second one when two are gone.
 */
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* A reading has its blocks in parts of a few thousand. */
enum { KEPT = 3, MANY = 9000 };

OWN_FRAME static char *keeps(size_t size)
{
    return malloc(size);
}

OWN_FRAME static char *frees_early(void)
{
    return malloc(12345);
}

OWN_FRAME static char *grows_from(void)
{
    return malloc(3000);
}

OWN_FRAME static char *grows_to(char *block)
{
    return realloc(block, 5 << 20);
}

OWN_FRAME static char *aligns(void)
{
    return aligned_alloc(4096, 100);
}

OWN_FRAME static char *fills(void)
{
    return malloc(200);
}

static void tell(const char *function, const char *address, size_t size)
{
    printf("%s %p %zu\n", function, (const void *)address, size);
}

int main(int argc, char **argv)
{
    static char buffer[4096], *kept[KEPT], *many[MANY];
    static const size_t sizes[KEPT] = {24, 1000, 3 << 20};
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (int i = 0; i < KEPT; i++)
        kept[i] = keeps(sizes[i]);
    for (int i = 0; i < MANY; i++)
        many[i] = fills();
    char *aligned = aligns();
    char *freed = frees_early();
    char *before = grows_from();
    uintptr_t at_freed = (uintptr_t)freed, at_before = (uintptr_t)before;
    HEAPPROF_DUMP("first");
    free(freed);
    char *grown = grows_to(before);
    HEAPPROF_DUMP("second");

    for (int i = 0; i < KEPT; i++)
        tell("keeps", kept[i], sizes[i]);
    tell("aligns", aligned, 100);
    tell("grows_to", grown, 5 << 20);
    tell("frees_early", (const char *)at_freed, 12345);
    tell("grows_from", (const char *)at_before, 3000);
    for (int i = 0; i < MANY; i += MANY / 3)
        tell("fills", many[i], 200);
    char *mapping = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tell("main", mapping, 0);
    fflush(stdout);
    while (argc > 1 && access(argv[1], F_OK) != 0)
        usleep(1000);
    for (int i = 0; i < KEPT; i++)
        free(kept[i]);
    for (int i = 0; i < MANY; i++)
        free(many[i]);
    free(aligned);
    free(grown);
    return 0;
}
