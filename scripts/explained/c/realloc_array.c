/*
 * A table of measurements in one array that realloc makes larger by the same step each time.
 *
 * expect: growing block add_rows; churn|nothing read_rows
 */
#include "../pace.h"

static char *rows;
static size_t used, room;

SITE static char *read_rows(size_t size) {
    char *input = malloc(size);
    return fill(input, size);
}

SITE static void add_rows(const char *input, size_t size) {
    if (used + size > room) {
        room = used + size + 400000;
        rows = realloc(rows, room);
    }
    memcpy(rows + used, input, size);
    used += size;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        size_t size = 20000 + chance(40000);
        char *input = read_rows(size);
        add_rows(input, size);
        rest(20);
        free(input);
        rest(60);
    }
    printf("%zu\n", used);
}
