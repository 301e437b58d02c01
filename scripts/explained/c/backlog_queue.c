/*
 * A queue that is filled by a third faster than it is emptied.
 *
 * expect: backlog enqueue
 */
#include "../pace.h"

struct job {
    struct job *next;
    char body[16000];
};

static struct job *first, **last = &first;

SITE static void enqueue(void) {
    struct job *job = fill(malloc(sizeof *job), sizeof *job);
    job->next = NULL;
    *last = job;
    last = &job->next;
}

static void finish_one(void) {
    struct job *job = first;
    if (!job || !job->next)
        return;
    first = job->next;
    free(job);
}

int main(int argc, char **argv) {
    begin(argc, argv);
    while (going()) {
        for (int i = 0; i < 8; i++)
            enqueue();
        for (int i = 0; i < 6; i++)
            finish_one();
        rest(60);
    }
}
