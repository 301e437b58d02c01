/*
 * A leak that comes with bursts of requests: quiet for seconds, then a hundred at once.
 *
 * expect: leak attach_trailer; churn|nothing read_head
 */
#include "../pace.h"

struct trailer {
    struct trailer *next;
    char text[16000];
};

static struct trailer *trailers;

SITE static char *read_head(void) {
    char *head = malloc(6000);
    return fill(head, 6000);
}

SITE static void attach_trailer(void) {
    struct trailer *trailer = fill(malloc(sizeof *trailer), sizeof *trailer);
    trailer->next = trailers;
    trailers = trailer;
}

int main(int argc, char **argv) {
    double next = 2;
    begin(argc, argv);
    while (going()) {
        if (seconds() > next) {
            for (int i = 0; i < 150; i++) {
                char *head = read_head();
                attach_trailer();
                free(head);
            }
            next += 3 + chance(5);
        }
        rest(50);
    }
}
