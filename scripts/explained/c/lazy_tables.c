/*
 * Tables that the first request for each language makes, in the first tenth of the run.
 *
 * expect: one-time make_table; churn|nothing answer
 */
#include "../pace.h"

enum { TABLES = 40, SIZE = 700000 };

static char *tables[TABLES];

SITE static void make_table(unsigned which) {
    char *table = malloc(SIZE);
    tables[which] = fill(table, SIZE);
}

SITE static unsigned answer(unsigned which) {
    char *reply = fill(malloc(5000), 5000);
    unsigned length = (unsigned)(reply[which] + tables[which][which]);
    free(reply);
    return length;
}

int main(int argc, char **argv) {
    unsigned long sum = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 2; i++) {
            unsigned which = chance(TABLES);
            if (!tables[which])
                make_table(which);
            sum += answer(which);
        }
        rest(50);
    }
    printf("%lu\n", sum);
}
