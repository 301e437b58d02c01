/* Situation: three spikes of three functions, each shorter than any step of a curve, over a base
 * that stays.
 * A correct profiler lists the three peaks, the highest first, each with its function, and shows
 * the whole spike in that function's curve.
 * If it is wrong: a curve shows the state between spikes, and a spike belongs to nobody.
 *
 *   spikes       prints `spike <function> <bytes>`, in the order of time
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KB = 1000, BLOCKS = 64, BASE = 1000 * KB, PAUSE_MS = 100 };

static void quiet(void)
{
    struct timespec pause = {.tv_sec = 0, .tv_nsec = PAUSE_MS * 1000000};
    while (nanosleep(&pause, &pause) != 0)
        ;
}

static void *blocks[BLOCKS];

static void free_all(void)
{
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
}

OWN_FRAME static void spike_low(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = escapes(malloc(40 * KB));
    free_all();
}

OWN_FRAME static void spike_high(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = escapes(malloc(100 * KB));
    free_all();
}

OWN_FRAME static void spike_middle(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = escapes(malloc(70 * KB));
    free_all();
}

OWN_FRAME static void *base(void)
{
    void *block = escapes(malloc(BASE));
    NO_TAIL_CALL();
    return block;
}

int main(void)
{
    void *stays = base();
    quiet();
    spike_low();
    quiet();
    spike_high();
    quiet();
    spike_middle();
    quiet();
    printf("spike spike_low %d\nspike spike_high %d\nspike spike_middle %d\n", BLOCKS * 40 * KB,
           BLOCKS * 100 * KB, BLOCKS * 70 * KB);
    free(stays);
    return 0;
}
