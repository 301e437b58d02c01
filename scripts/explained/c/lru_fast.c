/*
 * A least-recently-used cache that is full after some seconds.
 *
 * expect: cache cache_put
 */
#include "../pace.h"

enum { ENTRIES = 3000 };

static struct entry {
    char *value;
    unsigned long used_at;
} entries[ENTRIES];

SITE static void cache_put(struct entry *entry) {
    size_t size = 4000 + chance(16000);
    free(entry->value);
    entry->value = malloc(size);
    fill(entry->value, size);
}

int main(int argc, char **argv) {
    unsigned long now = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 30; i++) {
            struct entry *oldest = &entries[chance(ENTRIES)];
            for (int tries = 0; tries < 10; tries++) {
                struct entry *other = &entries[chance(ENTRIES)];
                if (other->used_at < oldest->used_at)
                    oldest = other;
            }
            cache_put(oldest);
            oldest->used_at = ++now;
        }
        rest(50);
    }
}
