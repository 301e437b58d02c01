/* Situation: the loader calls functions of the program before any constructor: resolvers of IFUNC
 * symbols, in the program and in a library that it is linked with (ifunc_library.c). They allocate.
 * The library's resolver runs while the loader is still relocating: a preloaded allocator may
 * itself not be relocated yet.
 * A correct profiler allocates all the same, and the blocks can be grown, measured and freed later.
 * If it is wrong: a jump through an unrelocated address, or a write through the thread pointer. The
 * result is SIGSEGV before main, or later, when such a block is freed.
 */
#include "frames.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *resolved_in_library(char **blocks); /* fills in two blocks of its resolver's */

static char *from_resolver;

static int implementation(void) { return 26; }

static int (*resolve(void))(void)
{
    from_resolver = malloc(26001);
    memset(from_resolver, 'p', 26001);
    return implementation;
}

int resolved_in_program(void) __attribute__((ifunc("resolve")));

static int is_filled(const char *block, size_t size, char with)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != with)
            return 0;
    return 1;
}

static int check(const char *what, int passed)
{
    printf(passed ? "ok %s\n" : "FAIL %s: 0 (expected 1)\n", what);
    return passed;
}

int main(void)
{
    char *blocks[2];
    int all = check("program", resolved_in_program() == 26 && is_filled(from_resolver, 26001, 'p'));
    all &= check("library", resolved_in_library(blocks) == blocks[0]);
    all &= check("contents", is_filled(blocks[0], 260, 'l') && is_filled(blocks[1], 1000, 0));
    all &= check("usable", malloc_usable_size(blocks[0]) >= 260 && malloc_usable_size(blocks[1]) >= 1000);
    blocks[0] = realloc(blocks[0], 26002);
    all &= check("grown", is_filled(blocks[0], 260, 'l'));
    free(blocks[0]);
    free(blocks[1]);
    free(from_resolver);
    char *after = malloc(26003);
    all &= check("after", after != NULL && after != blocks[1]);
    escapes(after);
    printf("count 26003 1 1\n");
    return !all;
}
