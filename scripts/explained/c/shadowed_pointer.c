/*
 * A parser that overwrites the only pointer to a name when a header comes twice.
 *
 * expect: leak copy_value; churn|nothing copy_value; churn|nothing read_headers
 */
#include "../pace.h"

static char *fields[64];

SITE static char *read_headers(size_t size) {
    char *headers = malloc(size);
    return fill(headers, size);
}

SITE static char *copy_value(size_t size) {
    char *value = malloc(size);
    return fill(value, size);
}

static void parse(const char *headers, size_t size) {
    for (size_t at = 0; at + 1000 < size; at += 1000 + (size_t)headers[at])
        fields[chance(64)] = copy_value(500 + chance(1000));
    for (int i = 0; i < 64; i++) {
        free(fields[i]);
        fields[i] = NULL;
    }
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        size_t size = 20000;
        char *headers = read_headers(size);
        for (int i = 0; i < 20; i++)
            parse(headers, size);
        rest(100);
        free(headers);
    }
}
