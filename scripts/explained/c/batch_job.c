/*
 * A job that comes again and again, takes a working set, and gives it all back.
 *
 * expect: periodic load_batch; one-time load_catalogue
 */
#include "../pace.h"

enum { PARTS = 300, PART = 120000 };

static char *catalogue[100], *batch[PARTS];

SITE static void load_catalogue(void) {
    for (int i = 0; i < 100; i++)
        catalogue[i] = fill(malloc(90000), 90000);
}

SITE static void load_batch(void) {
    for (int i = 0; i < PARTS; i++) {
        batch[i] = malloc(PART);
        fill(batch[i], PART);
        if (i % 20 == 0)
            rest(10);
    }
}

static void drop_batch(void) {
    for (int i = 0; i < PARTS; i++)
        free(batch[i]);
}

int main(int argc, char **argv) {
    double next = 5;
    begin(argc, argv);
    load_catalogue();
    while (going()) {
        if (seconds() >= next) {
            load_batch();
            rest(3000);
            drop_batch();
            next += 10;
        }
        rest(50);
    }
}
