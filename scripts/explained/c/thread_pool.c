/*
 * A pool of threads that comes for some seconds of work and goes again, with its scratch memory.
 *
 * expect: periodic take_scratch
 */
#include "../pace.h"
#include <pthread.h>

enum { THREADS = 8, SCRATCH = 3 << 20 };

SITE static char *take_scratch(void) {
    char *scratch = malloc(SCRATCH);
    return fill(scratch, SCRATCH);
}

static void *work(void *unused) {
    char *scratch = take_scratch();
    for (int i = 0; i < 40; i++) {
        scratch[chance(SCRATCH)]++;
        rest(100);
    }
    free(scratch);
    return unused;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, work, NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        for (int i = 0; i < 80 && going(); i++)
            rest(50);
    }
}
