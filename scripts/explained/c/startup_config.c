/*
 * A daemon that reads its rules at the start, and serves small requests from them.
 *
 * expect: one-time read_rules; nothing answer
 */
#include "../pace.h"

enum { RULES = 5000 };

static char *rules[RULES];

SITE static void read_rules(void) {
    for (int i = 0; i < RULES; i++) {
        size_t size = 1000 + chance(10000);
        rules[i] = fill(malloc(size), size);
    }
}

SITE static unsigned answer(unsigned rule) {
    char *reply = fill(malloc(600), 600);
    unsigned length = (unsigned)rules[rule][0] + (unsigned)reply[1];
    free(reply);
    return length;
}

int main(int argc, char **argv) {
    unsigned long sum = 0;
    begin(argc, argv);
    read_rules();
    while (going()) {
        sum += answer(chance(RULES));
        rest(50);
    }
    printf("%lu\n", sum);
}
