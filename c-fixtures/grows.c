/* Situation: a service that leaks in two ways, beside blocks that it frees at once.
 * A correct view of its log shows the leak growing, with both of its callers, and the other site
 * allocating without growth.
 * If it is wrong: the leak is lost in the churn, or belongs to one caller only.
 *
 *   grows FILE     ends when FILE exists; about every millisecond:
 *     first_way -> keeps     2001 bytes, kept
 *     second_way -> keeps    1001 bytes, kept
 *     churns                 30001 bytes, freed at once
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct kept {
    struct kept *next;
};

static struct kept *all;

OWN_FRAME static void keeps(size_t size)
{
    struct kept *block = escapes(malloc(size));
    block->next = all;
    all = block;
    NO_TAIL_CALL();
}

OWN_FRAME static void first_way(void)
{
    keeps(2001);
    NO_TAIL_CALL();
}

OWN_FRAME static void second_way(void)
{
    keeps(1001);
    NO_TAIL_CALL();
}

OWN_FRAME static void churns(void)
{
    free(escapes(malloc(30001)));
    NO_TAIL_CALL();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
    while (access(argv[1], F_OK) != 0) {
        struct timespec millisecond = {0, 1000000};
        first_way();
        second_way();
        churns();
        nanosleep(&millisecond, NULL);
    }
    return 0;
}
