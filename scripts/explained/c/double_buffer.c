/*
 * A renderer: while one frame is shown, the next is made; then the old frame goes.
 *
 * expect: churn|cache|periodic|nothing new_frame; one-time load_textures
 */
#include "../pace.h"

enum { FRAME = 4 << 20 };

static char *textures[8];

SITE static void load_textures(void) {
    for (int i = 0; i < 8; i++)
        textures[i] = fill(malloc(2 << 20), 2 << 20);
}

SITE static char *new_frame(void) {
    char *frame = malloc(FRAME);
    return fill(frame, FRAME);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    load_textures();
    char *shown = new_frame();
    while (going()) {
        char *next = new_frame();
        rest(100);
        free(shown);
        shown = next;
        rest(50);
    }
}
