/*
 * Connections come and go. A connection that ends by a timeout keeps its write buffer.
 *
 * expect: leak open_writer; cache|nothing open_reader
 */
#include "../pace.h"

enum { OPEN = 400 };

struct connection {
    char *reader, *writer;
};

static struct connection connections[OPEN];

SITE static char *open_reader(void) {
    char *buffer = malloc(32000);
    return fill(buffer, 32000);
}

SITE static char *open_writer(void) {
    char *buffer = malloc(16000);
    return fill(buffer, 16000);
}

static void end(struct connection *connection, int by_timeout) {
    free(connection->reader);
    if (!by_timeout)
        free(connection->writer);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 4; i++) {
            struct connection *connection = &connections[chance(OPEN)];
            end(connection, chance(5) == 0);
            connection->reader = open_reader();
            connection->writer = open_writer();
        }
        rest(20);
    }
}
