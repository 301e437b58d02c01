/*
 * A tool that loads an index, works with it, and frees everything at its end.
 *
 * expect: one-time load_index; nothing search
 */
#include "../pace.h"

enum { PARTS = 2000, PART = 25000 };

static char **index_parts;

SITE static void load_index(void) {
    index_parts = malloc(PARTS * sizeof *index_parts);
    for (int i = 0; i < PARTS; i++) {
        index_parts[i] = malloc(PART);
        fill(index_parts[i], PART);
    }
}

SITE static int search(unsigned key) {
    char *found = fill(malloc(300), 300);
    int place = index_parts[key % PARTS][key % PART] + found[1];
    free(found);
    return place;
}

int main(int argc, char **argv) {
    unsigned long sum = 0;
    begin(argc, argv);
    load_index();
    while (going()) {
        sum += (unsigned long)search(chance(1u << 30));
        rest(20);
    }
    for (int i = 0; i < PARTS; i++)
        free(index_parts[i]);
    free(index_parts);
    printf("%lu\n", sum);
}
