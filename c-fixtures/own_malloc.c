/* Situation: the program exports a malloc of its own, which serves it and its libraries, whatever
 * is preloaded. It counts. A block of libc's (strdup) is one of its own.
 * A correct profiler records the blocks at the entry of these functions, or says that there is
 * nothing to record.
 * If it is wrong: it records nothing and says nothing; or its part of the interface (memalign, say)
 * is mixed with the program's.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 20, HEAD = 16 };

static char piece[PIECE] __attribute__((aligned(16)));
static size_t used;
static long mallocs;

static int is_mine(void *block) { return (char *)block >= piece && (char *)block < piece + PIECE; }

void *memalign(size_t alignment, size_t size)
{
    size_t begin = (used + HEAD + alignment - 1) / alignment * alignment;
    if (begin + size > PIECE) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(piece + begin - HEAD, &size, sizeof size);
    used = (begin + size + 15) & ~(size_t)15;
    mallocs++;
    return piece + begin;
}

void *malloc(size_t size) { return memalign(16, size); }
void *calloc(size_t count, size_t size) { return memalign(16, count * size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **out, size_t alignment, size_t size)
{
    *out = memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

void *realloc(void *block, size_t size)
{
    void *moved = malloc(size);
    size_t known = 0;
    if (block != NULL)
        memcpy(&known, (char *)block - HEAD, sizeof known);
    if (moved != NULL && block != NULL)
        memcpy(moved, block, known < size ? known : size);
    return moved;
}

void free(void *block)
{
    if (block != NULL && !is_mine(block))
        abort();
}

int main(void)
{
    long before = mallocs;
    char *text = strdup("text");
    void *grown = realloc(escapes(malloc(100)), 1000);
    int mine = is_mine(text) && is_mine(grown) && mallocs - before >= 3;
    free(text);
    free(grown);
    printf(mine ? "ok own\n" : "FAIL own: 0 (expected 1)\n");
    return !mine;
}
