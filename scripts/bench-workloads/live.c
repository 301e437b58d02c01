/* A live set of small blocks. A random block is freed and replaced by a new one, which is written.
 *
 *   live N [blocks] [largest [least]]
 *
 * N replacements; sizes small and mixed, or uniform up to `largest`.
 */
#include "work.h"

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 1000000);
    size_t blocks = (size_t)argument(argc, argv, 2, 10000);
    size_t largest = (size_t)argument(argc, argv, 3, 0);
    size_t least = (size_t)argument(argc, argv, 4, 1);
    char **live = must(calloc(blocks, sizeof *live));
    uint64_t random = 88172645463325252u;
    for (long i = 0; i < n; i++) {
        uint64_t drawn = next_random(&random);
        size_t bytes = largest != 0 ? least + (drawn >> 40) % (largest + 1 - least) : small_size(drawn);
        size_t at = (drawn >> 8) % blocks;
        free(live[at]);
        live[at] = must(malloc(bytes));
        memset(live[at], 1, bytes < 256 ? bytes : 256);
    }
    for (size_t i = 0; i < blocks; i++) free(live[i]);
    free(live);
    return 0;
}
