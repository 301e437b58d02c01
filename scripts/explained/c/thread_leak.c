/*
 * Short threads that leave a context behind: the key has no destructor.
 *
 * expect: leak thread_context; churn|nothing thread_work
 */
#include "../pace.h"
#include <pthread.h>

static pthread_key_t context_key;

SITE static void thread_context(void) {
    char *context = malloc(48000);
    pthread_setspecific(context_key, fill(context, 48000));
}

SITE static void thread_work(void) {
    char *work = fill(malloc(30000), 30000);
    rest(5);
    free(work);
}

static void *run(void *unused) {
    thread_context();
    thread_work();
    return unused;
}

int main(int argc, char **argv) {
    begin(argc, argv);
    pthread_key_create(&context_key, NULL);
    while (going()) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, NULL);
        pthread_join(thread, NULL);
        rest(80);
    }
}
