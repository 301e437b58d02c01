/* Situation: memory is allocated and freed while a thread ends: in destructors of C++ thread_local
 * objects; in destructors of pthread keys that set themselves again until libc gives up; and in
 * destructors that run after the allocator's own, because their keys are newer. Another thread
 * frees the blocks that a destructor keeps.
 * A correct profiler records these as any other.
 * If it is wrong: its own thread-local state is used after its destruction, or made again for each
 * such call and kept.
 */
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 50, ROUNDS = 4 }; /* PTHREAD_DESTRUCTOR_ITERATIONS is 4 */

static pthread_key_t keys[3];
static void *kept_by_cxx[THREADS], *kept_by_key[THREADS];

OWN_FRAME static void allocates_in_key(size_t thread)
{
    free(kept_by_key[thread]);
    kept_by_key[thread] = malloc(35002);
    NO_TAIL_CALL();
}

extern "C" OWN_FRAME void key_destructor(void *number)
{
    allocates_in_key((size_t)number - 1);
    pthread_setspecific(keys[0], number); /* again, until libc gives up */
}

extern "C" void other_destructor(void *block)
{
    free(block);
    free(escapes(malloc(35003)));
}

struct Guard {
    size_t thread = 0;
    OWN_FRAME ~Guard()
    {
        kept_by_cxx[thread] = escapes(malloc(35001));
        free(escapes(calloc(3, 1000)));
        NO_TAIL_CALL();
    }
};

static thread_local Guard guard;

extern "C" void *ending_thread(void *number)
{
    guard.thread = (size_t)number - 1;
    pthread_setspecific(keys[0], number);
    pthread_setspecific(keys[1], malloc(35004));
    pthread_setspecific(keys[2], malloc(35004));
    return NULL;
}

int main()
{
    pthread_key_create(&keys[0], key_destructor);
    pthread_key_create(&keys[1], other_destructor);
    free(escapes(malloc(1))); /* an allocator with a key of its own has it now */
    pthread_key_create(&keys[2], other_destructor);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, ending_thread, (void *)(i + 1)) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i += 2) {
        free(kept_by_cxx[i]);
        free(kept_by_key[i]);
    }
    printf("stack 35001 Guard::~Guard ...\n");
    printf("count 35001 %d %d\n", THREADS, THREADS / 2);
    printf("stack 35002 allocates_in_key key_destructor ...\n");
    printf("count 35002 %d %d\n", THREADS * ROUNDS, THREADS / 2);
    printf("count 35003 %d 0\n", THREADS * 2);
    printf("count 35004 %d 0\n", THREADS * 2);
    return 0;
}
