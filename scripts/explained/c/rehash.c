/*
 * A hash table that grows while the known keys come in, and is steady later.
 *
 * expect: one-time|nothing grow_table; one-time|nothing add_key; cache|nothing set_value
 */
#include "../pace.h"

enum { KEYS = 60000 };

struct entry {
    struct entry *next;
    char *value;
    unsigned key;
};

static struct entry **table;
static unsigned room, count;

SITE static void grow_table(void) {
    unsigned larger = room ? room * 2 : 1024;
    struct entry **next = fill(malloc(larger * sizeof *next), larger * sizeof *next);
    memset(next, 0, larger * sizeof *next);
    for (unsigned i = 0; i < room; i++)
        for (struct entry *entry = table[i], *after; entry; entry = after) {
            after = entry->next;
            entry->next = next[entry->key % larger];
            next[entry->key % larger] = entry;
        }
    free(table);
    table = next;
    room = larger;
}

SITE static struct entry *add_key(unsigned key) {
    struct entry *entry = fill(malloc(sizeof *entry), sizeof *entry);
    *entry = (struct entry){table[key % room], NULL, key};
    table[key % room] = entry;
    return entry;
}

SITE static void set_value(struct entry *entry) {
    free(entry->value);
    entry->value = malloc(400);
    fill(entry->value, 400);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 400; i++) {
            unsigned key = count < KEYS ? count : chance(KEYS);
            if (count >= room)
                grow_table();
            struct entry *entry = table[key % room];
            while (entry && entry->key != key)
                entry = entry->next;
            if (!entry)
                entry = add_key(key), count++;
            set_value(entry);
        }
        rest(50);
    }
}
