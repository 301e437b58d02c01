/*
 * A cache with room for hours of entries: at the end of the run it is still filling.
 *
 * expect: leak cache_put; churn|nothing read_key
 */
#include "../pace.h"

enum { ENTRIES = 1000000 };

static char *entries[ENTRIES];

SITE static char *read_key(size_t size) {
    char *key = malloc(size);
    return fill(key, size);
}

SITE static void cache_put(unsigned slot) {
    free(entries[slot]);
    char *value = malloc(9000);
    entries[slot] = fill(value, 9000);
}

int main(int argc, char **argv) {
    unsigned next = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 4; i++) {
            char *key = read_key(3000);
            cache_put(next++ % ENTRIES);
            free(key);
        }
        rest(50);
    }
}
