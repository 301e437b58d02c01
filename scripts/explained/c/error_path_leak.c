/*
 * A server that forgets to free a report when a request fails: one request of a hundred.
 *
 * expect: leak describe_error; churn read_body
 */
#include "../pace.h"

struct report {
    int code;
    char text[40000];
};

SITE static char *read_body(size_t size) {
    char *body = malloc(size);
    return fill(body, size);
}

SITE static struct report *describe_error(int code) {
    struct report *report = fill(malloc(sizeof *report), sizeof *report);
    report->code = code;
    return report;
}

static int handle(void) {
    size_t size = 10000 + chance(20000);
    char *body = read_body(size);
    if (chance(100) == 0) {
        int code = describe_error(500)->code;
        free(body);
        return code;
    }
    free(body);
    return 200;
}

int main(int argc, char **argv) {
    int failed = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 25; i++)
            failed += handle() != 200;
        rest(50);
    }
    printf("%d failed\n", failed);
}
