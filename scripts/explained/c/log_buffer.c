/*
 * A log that is kept in memory and only appended to; its buffer doubles.
 *
 * expect: growing block log_line
 */
#include "../pace.h"

static char *text;
static size_t used, room;

SITE static void log_line(const char *line) {
    size_t size = strlen(line);
    if (used + size > room) {
        char *larger = malloc(room * 2 + 4096);
        memcpy(larger, text, used);
        free(text);
        text = larger;
        room = room * 2 + 4096;
    }
    memcpy(text + used, line, size);
    used += size;
}

int main(int argc, char **argv) {
    char line[200];
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 250; i++) {
            snprintf(line, sizeof line, "%.3f request %u of client %u took %u ms: no answer from the "
                     "backend, trying the next one\n", seconds(), i, chance(1000), chance(500));
            log_line(line);
        }
        rest(50);
    }
    printf("%zu\n", used);
}
