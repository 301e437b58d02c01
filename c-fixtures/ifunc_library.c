/* Library of ifunc_allocates.c: its resolver allocates while the loader relocates this library. It
 * is built for lazy binding: the functions that a resolver calls are bound at the call. */
#include "frames.h"

#include <stdlib.h>
#include <string.h>

char *resolved_in_library(char **blocks);

static char *blocks_of_resolver[2];

static char *implementation(char **blocks)
{
    memcpy(blocks, blocks_of_resolver, sizeof blocks_of_resolver);
    return blocks[0];
}

static char *(*resolve(void))(char **)
{
    char *block = malloc(130);
    for (int i = 0; i < 130; i++)
        block[i] = 'l';
    block = realloc(block, 260);
    for (int i = 130; i < 260; i++)
        block[i] = 'l';
    blocks_of_resolver[0] = block;
    blocks_of_resolver[1] = calloc(10, 100);
    free(malloc(50));
    return implementation;
}

static char *resolved(char **blocks) __attribute__((ifunc("resolve")));

char *resolved_in_library(char **blocks)
{
    return resolved(blocks);
}
