/*
 * A shop that keeps its orders for ever, and a cache. Recording is stopped from a third of the run
 * to four fifths.
 *
 * expect: leak keep_order; cache|nothing remember
 */
#include "../../../preload/include/heapprof.h"
#include "../pace.h"

enum { PLACES = 2000 };

struct order {
    struct order *next;
    char items[6000];
};

static struct order *orders;
static char *places[PLACES];

SITE static void keep_order(void) {
    struct order *order = fill(malloc(sizeof *order), sizeof *order);
    order->next = orders;
    orders = order;
}

SITE static void remember(unsigned place) {
    free(places[place]);
    places[place] = fill(malloc(8000), 8000);
}

int main(int argc, char **argv) {
    int is_stopped = 0;
    begin(argc, argv);
    for (unsigned place = 0; place < PLACES; place++)
        remember(place);
    while (going()) {
        if (!is_stopped && part() > 0.33 && part() < 0.8) {
            HEAPPROF_STOP();
            is_stopped = 1;
        } else if (is_stopped && part() > 0.8) {
            HEAPPROF_START(NULL);
            is_stopped = 0;
        }
        for (int i = 0; i < 4; i++)
            keep_order();
        for (int i = 0; i < 10; i++)
            remember(chance(PLACES));
        rest(20);
    }
}
