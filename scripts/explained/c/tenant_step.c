/*
 * A steady service that a new tenant joins late: memory takes one step, and stays there.
 *
 * expect: nothing add_tenant; cache|nothing renew_session
 */
#include "../pace.h"

enum { SESSIONS = 800, TABLES = 400, TABLE = 60000 };

static char *sessions[SESSIONS], *tables[2][TABLES];

SITE static void add_tenant(int which) {
    for (int i = 0; i < TABLES; i++) {
        tables[which][i] = malloc(TABLE);
        fill(tables[which][i], TABLE);
    }
}

SITE static void renew_session(unsigned which) {
    free(sessions[which]);
    char *session = malloc(20000);
    sessions[which] = fill(session, 20000);
}

int main(int argc, char **argv) {
    int tenants = 0;
    begin(argc, argv);
    for (unsigned i = 0; i < SESSIONS; i++)
        renew_session(i);
    add_tenant(tenants++);
    while (going()) {
        if (tenants == 1 && part() > 0.7)
            add_tenant(tenants++);
        for (int i = 0; i < 4; i++)
            renew_session(chance(SESSIONS));
        rest(50);
    }
}
