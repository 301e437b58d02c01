/*
 * A service with a steady cache and small reports. One large report takes a fifth of the run.
 *
 * expect: burst add_row; cache look_up; one-time load_customers
 */
#include "../pace.h"

enum { ROWS = 3000, FEW = 100, ROW = 16000, CUSTOMERS = 500, PLACES = 600 };

static char *rows[ROWS], *customers[CUSTOMERS], *places[PLACES];
static int row_count;

SITE static void add_row(void) {
    rows[row_count++] = fill(malloc(ROW), ROW);
}

static void drop_rows(void) {
    while (row_count > 0)
        free(rows[--row_count]);
}

SITE static void look_up(void) {
    unsigned place = chance(PLACES);
    free(places[place]);
    places[place] = fill(malloc(20000), 20000);
}

SITE static void load_customers(void) {
    for (int i = 0; i < CUSTOMERS; i++)
        customers[i] = fill(malloc(9000), 9000);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    load_customers();
    for (int tick = 0; going(); tick++) {
        int is_large = part() > 0.6 && part() < 0.8;
        for (int i = 0; i < 8; i++)
            look_up();
        for (int i = 0; i < (is_large ? 100 : 1) && row_count < (is_large ? ROWS : FEW); i++)
            add_row();
        if (!is_large && tick % 100 == 0)
            drop_rows();
        rest(20);
    }
}
