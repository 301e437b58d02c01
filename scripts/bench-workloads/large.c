/* Large blocks, 64 KiB to 16 MiB, a page in four of each written; ten are live.
 *
 *   large N [largest KiB]      N blocks
 */
#include "work.h"

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 1000);
    uint64_t largest = (uint64_t)argument(argc, argv, 2, 16384);
    char *live[10] = {0};
    uint64_t random = 88172645463325252u;
    int doublings = 0;
    while ((128u << doublings) <= largest) doublings++;
    for (long i = 0; i < n; i++) {
        uint64_t drawn = next_random(&random);
        /* Evenly spread over the logarithm of the size. */
        size_t base = (size_t)65536 << (drawn % (uint64_t)(doublings > 0 ? doublings : 1));
        size_t bytes = base + (drawn >> 16) % base;
        char **slot = &live[(drawn >> 8) % 10];
        free(*slot);
        *slot = must(malloc(bytes));
        for (size_t at = 0; at < bytes; at += 16384) (*slot)[at] = 1;
    }
    for (int i = 0; i < 10; i++) free(live[i]);
    return 0;
}
