/* Situation: blocks of every size up to 32 KiB, and some up to 100 MiB, and reallocs from each to
 * sizes around it.
 * A correct profiler knows how large each block really is (`usable` lines: size and
 * malloc_usable_size). Its realloc gives no block that is too small, and loses no contents. It
 * keeps no block that is larger than a new one would be (`note larger`; glibc keeps such blocks).
 * If it is wrong: it reports slack that does not exist; the heap's end is overwritten; or memory
 * that a program shrank stays.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 32768 };

static size_t fresh[LARGEST + LARGEST / 4 + 64];
static void *kept[LARGEST + 1];

/* Returns whether the realloc'ed block is larger than necessary. */
static int resized(size_t from, size_t to)
{
    unsigned char *block = malloc(from);
    memset(block, (int)(from & 0x7f), from);
    block = realloc(block, to);
    size_t usable = malloc_usable_size(block);
    if (usable < to)
        printf("FAIL realloc %zu to %zu: %zu usable\n", from, to, usable);
    for (size_t i = 0; i < from && i < to; i++)
        if (block[i] != (from & 0x7f)) {
            printf("FAIL realloc %zu to %zu: byte %zu is lost\n", from, to, i);
            break;
        }
    free(block);
    return usable != fresh[to];
}

int main(void)
{
    for (size_t size = 0; size < sizeof fresh / sizeof *fresh; size++) {
        void *block = malloc(size);
        fresh[size] = malloc_usable_size(block);
        if (size <= LARGEST) {
            printf("usable %zu %zu\n", size, fresh[size]);
            kept[size] = block;
        } else
            free(block);
    }
    for (size_t size = 0; size <= LARGEST; size++)
        free(kept[size]);
    for (size_t size = LARGEST + 1; size < 100u << 20; size += size / 7) {
        void *block = malloc(size);
        printf("usable %zu %zu\n", size, malloc_usable_size(block));
        free(block);
    }
    long larger = 0;
    for (size_t from = 1; from <= LARGEST; from += from < 1024 ? 1 : 7) {
        size_t to[] = {from + 1, from - 1, from + 16, from > 16 ? from - 16 : 1, from + from / 4, from - from / 5, from / 2};
        for (size_t i = 0; i < sizeof to / sizeof *to; i++)
            if (to[i] > 0)
                larger += resized(from, to[i]);
    }
    printf("note larger %ld\n", larger);
    return 0;
}
