/* Buffers that grow by realloc, as data are appended to them.
 *
 *   grow N [step] [buffers]
 *
 * N reallocs. Each makes a buffer `step` bytes larger, up to 16 KiB; then the buffer is freed and
 * begins anew. With one buffer and small steps most reallocs stay in place. With more buffers,
 * taken in turn, and large steps they move.
 */
#include "work.h"

int main(int argc, char **argv)
{
    long n = argument(argc, argv, 1, 1000000);
    size_t step = (size_t)argument(argc, argv, 2, 16);
    long buffers = argument(argc, argv, 3, 1);
    struct { char *at; size_t size; } all[64] = {{0}};
    if (buffers > 64) buffers = 64;
    for (long i = 0; i < n; i++) {
        size_t size = all[i % buffers].size;
        if (size + step > 16384) {
            free(all[i % buffers].at);
            all[i % buffers].at = NULL;
            size = 0;
        }
        char *grown = must(realloc(all[i % buffers].at, size + step));
        grown[size] = 1;
        all[i % buffers].at = grown;
        all[i % buffers].size = size + step;
    }
    for (long i = 0; i < buffers; i++) free(all[i].at);
    return 0;
}
