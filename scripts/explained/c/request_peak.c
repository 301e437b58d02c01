/*
 * A server with few requests at once, and in the middle of the run with very many for a while.
 *
 * expect: burst open_request; churn|nothing open_request
 */
#include "../pace.h"

enum { MOST = 2000, SIZE = 40000 };

static char *requests[MOST];
static int open_count;

SITE static void open_request(void) {
    char *request = malloc(SIZE);
    requests[open_count++] = fill(request, SIZE);
}

static void close_request(void) {
    free(requests[--open_count]);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        int wanted = part() > 0.48 && part() < 0.54 ? MOST - 100 : 100;
        wanted += (int)chance(50);
        for (int i = 0; i < 150 && open_count < wanted; i++)
            open_request();
        for (int i = 0; i < 150 && open_count > wanted; i++)
            close_request();
        rest(50);
    }
}
