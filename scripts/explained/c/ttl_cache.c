/*
 * A cache whose entries expire after some seconds; the traffic is even.
 *
 * expect: cache store
 */
#include "../pace.h"

struct entry {
    struct entry *next;
    double expires;
    char value[12000];
};

static struct entry *first, **last = &first;

SITE static void store(void) {
    struct entry *entry = fill(malloc(sizeof *entry), sizeof *entry);
    entry->next = NULL;
    entry->expires = seconds() + 8;
    *last = entry;
    last = &entry->next;
}

static void expire(void) {
    while (first && first->next && first->expires < seconds()) {
        struct entry *entry = first;
        first = entry->next;
        free(entry);
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 15; i++)
            store();
        expire();
        rest(50);
    }
}
