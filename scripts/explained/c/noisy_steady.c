/*
 * A noisy but steady server: blocks of random sizes with random lives.
 *
 * expect: cache|churn|nothing take_small; cache|churn|nothing take_large; cache|nothing *
 */
#include "../pace.h"

enum { SLOTS = 900 };

static char *slots[SLOTS];

SITE static char *take_small(size_t size) {
    char *block = malloc(size);
    return fill(block, size);
}

SITE static char *take_large(size_t size) {
    char *block = malloc(size);
    return fill(block, size);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 20; i++) {
            unsigned slot = chance(SLOTS);
            free(slots[slot]);
            slots[slot] = NULL;
            if (chance(100) < 30)
                continue;
            if (chance(100) < 8)
                slots[slot] = take_large(100000 + chance(900000));
            else
                slots[slot] = take_small(100 + chance(30000));
        }
        rest(20 + (int)chance(60));
    }
}
