/*
 * A full cache of pages hides a leak of small records beside it.
 *
 * expect: cache cache_page; leak track_request
 */
#include "../pace.h"

enum { SLOTS = 4000, PAGE = 16000 };

struct track {
    struct track *next;
    char path[240];
};

static char *pages[SLOTS];
static struct track *tracks;

SITE static void cache_page(unsigned slot) {
    free(pages[slot]);
    char *page = malloc(PAGE);
    pages[slot] = fill(page, PAGE);
}

SITE static void track_request(void) {
    struct track *track = fill(malloc(sizeof *track), sizeof *track);
    track->next = tracks;
    tracks = track;
}

int main(int argc, char **argv) {
    unsigned next = 0;
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 40; i++)
            cache_page(next++ % SLOTS);
        for (int i = 0; i < 50; i++)
            track_request();
        rest(50);
    }
}
