/* A loop of one operation, for counting instructions.
 *
 *   ops malloc|malloc-free|new-delete|calloc-free|aligned-free N
 *   ops realloc-of-nothing|realloc-in-place|realloc-grow|medium-free|large-free N
 *   ops malloc-free-in-thread|free-in-thread|hundredth-of-thread N
 *
 * medium-free is malloc-free of 20,000 bytes, large-free of 100,000. malloc-free-in-thread runs in
 * another thread than the main one. free-in-thread allocates in the main thread and frees in
 * another. A hundred of hundredth-of-thread are one thread that allocates ten blocks, frees them,
 * and ends. new-delete uses the sized operator delete, as C++ compilers do. realloc-in-place
 * alternates between sizes of one size class; realloc-grow between 64 and 128 bytes, which moves
 * the block.
 */
#include "work.h"

#include <pthread.h>

void *_Znwm(size_t);
void _ZdlPvm(void *, size_t);

static void *pairs(void *n)
{
    for (long i = 0; i < (long)n; i++) free(escapes(malloc(64)));
    return NULL;
}

static void *frees(void *blocks)
{
    for (void **block = blocks; *block != NULL; block++) free(*block);
    return NULL;
}

static void in_thread(void *(*work)(void *), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, argument) != 0) exit(1);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const char *operation = argc > 1 ? argv[1] : "";
    long n = argument(argc, argv, 2, 1000000);
    if (strcmp(operation, "malloc-free") == 0) {
        for (long i = 0; i < n; i++) free(escapes(malloc(64)));
    } else if (strcmp(operation, "medium-free") == 0) {
        for (long i = 0; i < n; i++) free(escapes(malloc(20000)));
    } else if (strcmp(operation, "large-free") == 0) {
        for (long i = 0; i < n; i++) free(escapes(malloc(100000)));
    } else if (strcmp(operation, "new-delete") == 0) {
        for (long i = 0; i < n; i++) _ZdlPvm(escapes(_Znwm(64)), 64);
    } else if (strcmp(operation, "calloc-free") == 0) {
        for (long i = 0; i < n; i++) free(escapes(calloc(1, 64)));
    } else if (strcmp(operation, "aligned-free") == 0) {
        for (long i = 0; i < n; i++) free(escapes(aligned_alloc(64, 64)));
    } else if (strcmp(operation, "realloc-of-nothing") == 0) {
        for (long i = 0; i < n; i++) free(escapes(realloc(escapes(NULL), 64)));
    } else if (strcmp(operation, "realloc-in-place") == 0) {
        char *block = malloc(64);
        for (long i = 0; i < n; i++) block = escapes(realloc(block, 56 + (size_t)(i & 1) * 8));
        free(block);
    } else if (strcmp(operation, "realloc-grow") == 0) {
        char *block = malloc(64);
        for (long i = 0; i < n; i++) block = escapes(realloc(block, 64 + (size_t)(i & 1) * 64));
        free(block);
    } else if (strcmp(operation, "malloc-free-in-thread") == 0) {
        in_thread(pairs, (void *)n);
    } else if (strcmp(operation, "free-in-thread") == 0) {
        void **blocks = calloc((size_t)n + 1, sizeof *blocks);
        for (long i = 0; i < n; i++) blocks[i] = malloc(64);
        in_thread(frees, blocks);
    } else if (strcmp(operation, "hundredth-of-thread") == 0) {
        for (long i = 0; i < n / 100; i++) in_thread(pairs, (void *)10);
    } else if (strcmp(operation, "malloc") == 0) {
        for (long i = 0; i < n; i++) escapes(malloc(64));
    } else {
        fprintf(stderr, "ops: no operation %s\n", operation);
        return 2;
    }
    return 0;
}
