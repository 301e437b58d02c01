/*
 * An image service that loses the picture of 1 MiB of every tenth upload.
 *
 * expect: leak decode_lost; churn decode
 */
#include "../pace.h"

enum { PICTURE = 1 << 20 };

SITE static char *decode(void) {
    char *picture = malloc(PICTURE);
    return fill(picture, PICTURE);
}

SITE static char *decode_lost(void) {
    char *picture = malloc(PICTURE);
    return fill(picture, PICTURE);
}

int main(int argc, char **argv) {
    unsigned long sum = 0;
    begin(argc, argv);
    for (unsigned upload = 1; going(); upload++) {
        char *picture = upload % 10 ? decode() : decode_lost();
        sum += (unsigned long)picture[upload % PICTURE];
        if (upload % 10)
            free(picture);
        rest(100);
    }
    printf("%lu\n", sum);
}
