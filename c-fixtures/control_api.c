/* Situation: a program controls its profiler: stops, starts, pauses a thread, changes the interval,
 * marks, dumps.
 * A correct profiler, recording everything, has the numbers of each `count` line. Without the
 * library every call does nothing, and the program runs the same way.
 * If it is wrong: excluded blocks are recorded; a free in a stopped phase is lost (a phantom leak);
 * a thread that slept through a change continues as before; or the program does not link or crashes
 * without the library.
 *
 *   control_api       prints `present 0` without the library, `present 1` with it
 */
#include "../preload/include/heapprof.h"
#include "frames.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FAR = 1 << 30 };

static int failures;
static pthread_barrier_t step;

static void expect(const char *what, long got, long with, long without)
{
    long wanted = HEAPPROF_PRESENT() ? with : without;
    if (got == wanted)
        printf("ok %s\n", what);
    else {
        printf("FAIL %s: %ld (expected %ld)\n", what, got, wanted);
        failures++;
    }
}

OWN_FRAME static void *block_of(size_t size) { return escapes(malloc(size)); }

/* Allocates, in another size, as much as a thread may need to notice a change. */
OWN_FRAME static void allocates_for_a_while(size_t bytes)
{
    for (size_t done = 0; done < bytes; done += 1000)
        free(block_of(1000));
}

/* Each time it comes back, its marks were drawn under older settings. */
OWN_FRAME static void *other_thread(void *unused)
{
    (void)unused;
    free(block_of(1000));
    pthread_barrier_wait(&step); /* 1: it lives */
    pthread_barrier_wait(&step); /* 2: the first thread is paused */
    block_of(22007);
    pthread_barrier_wait(&step); /* 3 */
    pthread_barrier_wait(&step); /* 4: an interval of 1 GiB */
    allocates_for_a_while(8 << 20);
    pthread_barrier_wait(&step); /* 5 */
    pthread_barrier_wait(&step); /* 6: every allocation again */
    allocates_for_a_while(8 << 20);
    block_of(22011);
    pthread_barrier_wait(&step); /* 7 */
    pthread_barrier_wait(&step); /* 8: stopped */
    allocates_for_a_while(1 << 20);
    block_of(22012);
    pthread_barrier_wait(&step); /* 9 */
    pthread_barrier_wait(&step); /* 10: started */
    allocates_for_a_while(64 << 10);
    block_of(22013);
    return NULL;
}

int main(void)
{
    printf("present %d\n", HEAPPROF_PRESENT());
    expect("runs", HEAPPROF_RUNNING(), 1, 0);
    expect("interval", (long)HEAPPROF_INTERVAL(), 1, 0);
    expect("mark", HEAPPROF_MARK("begin"), 0, -1);

    block_of(22001);
    void *freed_while_stopped = block_of(22003);
    HEAPPROF_STOP();
    HEAPPROF_STOP();
    expect("does not run", HEAPPROF_RUNNING(), 0, 0);
    expect("no interval", (long)HEAPPROF_INTERVAL(), 0, 0);
    free(escapes(freed_while_stopped));
    for (int i = 0; i < 100; i++)
        block_of(22002);
    free(escapes(realloc(block_of(22002), 22014)));
    HEAPPROF_START(NULL);
    expect("runs again", HEAPPROF_RUNNING(), 1, 0);
    block_of(22004);

    pthread_barrier_init(&step, NULL, 2);
    pthread_t other;
    if (pthread_create(&other, NULL, other_thread, NULL) != 0)
        return 2;
    pthread_barrier_wait(&step); /* 1 */
    HEAPPROF_THREAD_PAUSE();
    block_of(22005);
    HEAPPROF_THREAD_PAUSE();
    HEAPPROF_THREAD_RESUME();
    block_of(22005);
    expect("runs although a thread is paused", HEAPPROF_RUNNING(), 1, 0);
    pthread_barrier_wait(&step); /* 2 */
    pthread_barrier_wait(&step); /* 3 */
    HEAPPROF_THREAD_RESUME();
    HEAPPROF_THREAD_RESUME(); /* an extra resume does nothing */
    block_of(22008);
    HEAPPROF_THREAD_PAUSE();
    block_of(22005);
    HEAPPROF_THREAD_RESUME();

    expect("interval of 0", HEAPPROF_SET_INTERVAL(0), -1, -1);
    expect("interval of 2^41", HEAPPROF_SET_INTERVAL((size_t)1 << 41), -1, -1);
    expect("interval of 1 GiB", HEAPPROF_SET_INTERVAL(FAR), 0, -1);
    expect("interval in force", (long)HEAPPROF_INTERVAL(), FAR, 0);
    pthread_barrier_wait(&step); /* 4 */
    pthread_barrier_wait(&step); /* 5 */
    expect("interval of 1", HEAPPROF_SET_INTERVAL(1), 0, -1);
    block_of(22010);
    pthread_barrier_wait(&step); /* 6 */
    pthread_barrier_wait(&step); /* 7 */
    HEAPPROF_STOP();
    pthread_barrier_wait(&step); /* 8 */
    pthread_barrier_wait(&step); /* 9 */

    char *profile = HEAPPROF_PROFILE();
    expect("a profile while stopped", profile != NULL && strncmp(profile, "heap profile:", 13) == 0, 1, 0);
    expect("it holds our stacks", profile != NULL && strstr(profile, "\nMAPPED_LIBRARIES:") != NULL, 1, 0);
    free(profile);
    HEAPPROF_START("");
    pthread_barrier_wait(&step); /* 10 */
    pthread_join(other, NULL);
    expect("second mark", HEAPPROF_MARK("end"), 0, -1);
    HEAPPROF_DUMP("as asked");

    static const int counts[][3] = {
        {22001, 1, 1}, {22002, 0, 0}, {22003, 1, 0}, {22004, 1, 1}, {22005, 0, 0}, {22007, 1, 1}, {22008, 1, 1},
        {22010, 1, 1}, {22011, 1, 1}, {22012, 0, 0}, {22013, 1, 1}, {22014, 0, 0},
    };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        printf("count %d %d %d\n", counts[i][0], counts[i][1], counts[i][2]);
    return failures != 0;
}
