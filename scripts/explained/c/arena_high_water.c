/*
 * A pool that takes chunks until its high-water mark, and keeps them for all requests to come.
 *
 * expect: one-time|nothing take_chunk
 */
#include "../pace.h"

enum { CHUNKS = 180, CHUNK = 256 << 10 };

static char *chunks[CHUNKS];
static int taken;

SITE static void take_chunk(void) {
    char *chunk = malloc(CHUNK);
    chunks[taken++] = fill(chunk, CHUNK);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        int wanted = (int)(seconds() * 25) + (int)chance(6);
        while (taken < wanted && taken < CHUNKS)
            take_chunk();
        memset(chunks[chance((unsigned)taken + !taken)], 3, taken ? CHUNK : 0);
        rest(40);
    }
}
