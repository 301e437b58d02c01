/*
 * A cache of small answers, of 8 MiB in all, in which one is replaced at random with each request.
 * At an interval of 512 KiB, some sixteen samples of it are in use.
 *
 * expect: cache remember; one-time load_dictionary
 */
#include "../pace.h"

enum { ANSWERS = 32768, WORDS = 4000 };

static char *answers[ANSWERS], *words[WORDS];

SITE static char *remember(void) {
    size_t size = 128 + chance(257);
    return fill(malloc(size), size);
}

SITE static void load_dictionary(void) {
    for (int i = 0; i < WORDS; i++)
        words[i] = fill(malloc(4000), 4000);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    load_dictionary();
    for (int i = 0; i < ANSWERS; i++)
        answers[i] = remember();
    while (going()) {
        for (int i = 0; i < 1500; i++) {
            unsigned place = chance(ANSWERS);
            free(answers[place]);
            answers[place] = remember();
        }
        rest(20);
    }
}
