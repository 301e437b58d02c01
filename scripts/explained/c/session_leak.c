/*
 * A server that keeps the session of every visitor, and frees what a request needs.
 *
 * expect: leak keep_session; one-time load_config; churn|nothing read_request
 */
#include "../pace.h"

struct session {
    struct session *next;
    char state[3000];
};

static struct session *sessions;
static char *config[200];

SITE static void load_config(void) {
    for (int i = 0; i < 200; i++)
        config[i] = fill(malloc(20000), 20000);
}

SITE static char *read_request(size_t size) {
    char *request = malloc(size);
    return fill(request, size);
}

SITE static void keep_session(void) {
    struct session *session = fill(malloc(sizeof *session), sizeof *session);
    session->next = sessions;
    sessions = session;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    load_config();
    while (going()) {
        for (int i = 0; i < 10; i++) {
            char *request = read_request(1000 + chance(6000));
            keep_session();
            free(request);
        }
        rest(50);
    }
}
