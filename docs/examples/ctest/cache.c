/* A cache of so many pages of 64 KiB. */
#include <stdlib.h>
#include <string.h>

enum { PAGE = 64 << 10 };

int main(int argc, char **argv)
{
    int pages = argc > 1 ? atoi(argv[1]) : 16;
    char **all = calloc(pages, sizeof *all);
    for (int i = 0; i < pages; i++) {
        all[i] = malloc(PAGE);
        memset(all[i], 1, PAGE);
    }
    for (int i = 0; i < pages; i++)
        free(all[i]);
    free(all);
    return 0;
}
