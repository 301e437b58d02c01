/*
 * The last messages in a ring: each new message replaces the oldest.
 *
 * expect: cache ring_put
 */
#include "../pace.h"

enum { SLOTS = 2048 };

static char *ring[SLOTS];

SITE static void ring_put(unsigned slot) {
    size_t size = 2000 + chance(20000);
    free(ring[slot]);
    ring[slot] = malloc(size);
    fill(ring[slot], size);
}

int main(int argc, char **argv) {
    unsigned next = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 16; i++)
            ring_put(next++ % SLOTS);
        rest(50);
    }
}
