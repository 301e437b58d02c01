/*
 * A server that is being emptied: it begins with all its sessions, and they leave.
 *
 * expect: one-time|nothing restore_session; churn|nothing answer
 */
#include "../pace.h"

enum { SESSIONS = 3000, SIZE = 20000 };

static char *sessions[SESSIONS];

SITE static void restore_session(int which) {
    char *session = malloc(SIZE);
    sessions[which] = fill(session, SIZE);
}

SITE static int answer(void) {
    char *reply = fill(malloc(20000), 20000);
    int length = reply[5];
    free(reply);
    return length;
}

int main(int argc, char **argv) {
    unsigned long sum = 0;
    int left = SESSIONS;
    begin(argc, argv);
    for (int i = 0; i < SESSIONS; i++)
        restore_session(i);
    while (going()) {
        while (left > 0 && left > SESSIONS * (1 - part()))
            free(sessions[--left]);
        sum += (unsigned long)answer();
        rest(50);
    }
    printf("%lu\n", sum);
}
