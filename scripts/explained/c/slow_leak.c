/*
 * A proxy with much traffic that loses a record for one request of a thousand.
 *
 * expect: leak note_client; churn take_buffer
 */
#include "../pace.h"

struct client {
    struct client *next;
    char address[48000];
};

static struct client *noted;

SITE static char *take_buffer(size_t size) {
    char *buffer = malloc(size);
    return fill(buffer, size);
}

SITE static void note_client(void) {
    struct client *client = fill(malloc(sizeof *client), sizeof *client);
    client->next = noted;
    noted = client;
}

int main(int argc, char **argv) {
    unsigned long requests = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 75; i++) {
            char *in = take_buffer(16000 + chance(32000));
            char *out = take_buffer(8000);
            if (++requests % 1000 == 0)
                note_client();
            free(in);
            free(out);
        }
        rest(50);
    }
}
