/*
 * A service that is steady until somebody turns tracing on, at half of the run.
 *
 * expect: leak trace_event; cache|nothing renew_connection
 */
#include "../pace.h"

enum { CONNECTIONS = 300 };

struct event {
    struct event *next;
    char text[4000];
};

static char *connections[CONNECTIONS];
static struct event *events;

SITE static void renew_connection(unsigned which) {
    free(connections[which]);
    char *connection = malloc(64000);
    connections[which] = fill(connection, 64000);
}

SITE static void trace_event(void) {
    struct event *event = fill(malloc(sizeof *event), sizeof *event);
    event->next = events;
    events = event;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        renew_connection(i);
    while (going()) {
        renew_connection(chance(CONNECTIONS));
        if (part() > 0.5)
            for (int i = 0; i < 8; i++)
                trace_event();
        rest(40);
    }
}
