/* Blocks of other functions than malloc, each freed at once.
 *
 *   ways calloc|aligned|nothing N
 *
 * N blocks of small sizes, mixed: zeroed; aligned to a cache line, as over-aligned types of C++ and
 * Rust are; or by a realloc of a null pointer, as growing arrays begin.
 */
#include "work.h"

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "";
    long n = argument(argc, argv, 2, 1000000);
    uint64_t random = 0x9E3779B97F4A7C15u;
    if (strcmp(way, "calloc") == 0) {
        for (long i = 0; i < n; i++) free(escapes(must(calloc(1, small_size(next_random(&random))))));
    } else if (strcmp(way, "aligned") == 0) {
        for (long i = 0; i < n; i++) {
            void *block = NULL;
            if (posix_memalign(&block, 64, small_size(next_random(&random))) != 0) return 1;
            free(escapes(block));
        }
    } else if (strcmp(way, "nothing") == 0) {
        for (long i = 0; i < n; i++) free(escapes(must(realloc(escapes(NULL), small_size(next_random(&random))))));
    } else {
        fprintf(stderr, "ways: no way %s\n", way);
        return 2;
    }
    return 0;
}
