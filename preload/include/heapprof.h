/* heapprof.h: how a program speaks with the heap profiler that it runs under, if it runs under one.
 *
 * The functions live in libheapprof.so, which is preloaded and not linked. They are weak here, so a
 * program that calls them builds, links and runs without the library. Their addresses are then
 * null: ask HEAPPROF_HAS(function) before a call, or use the HEAPPROF_... macros below, which do
 * nothing without the library.
 *
 *     #include "heapprof.h"
 *     ...
 *     HEAPPROF_MARK("requests begin");          // heapprof top --from "requests begin" ...
 *
 * Functions with gperftools' names have gperftools' types, so <gperftools/heap-profiler.h> may be
 * included as well. All of them may be called from any thread at any time, but not from a signal
 * handler, where they may do nothing.
 *
 * Code that is compiled with -fno-pie and linked with -no-pie finds no library: the linker decides
 * then that there is none. Compiled with -fPIE or -fPIC, which is the default nearly everywhere, it
 * does, however it is linked.
 */
#ifndef HEAPPROF_H
#define HEAPPROF_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEAPPROF_WEAK __attribute__((weak))

/* -- gperftools' names -- */

/* Starts recording where it is stopped (HEAPPROF_START=paused, HeapProfilerStop). Dumps then go
 * to <prefix>.0001.heap, ... and are written on gperftools' occasions, unless HEAPPROFILE said
 * where or the program did and has not stopped since. NULL or "": nothing is said about dumps. */
void HeapProfilerStart(const char *prefix) HEAPPROF_WEAK;

/* Stops recording: no new samples. Unlike gperftools' it forgets nothing: frees of recorded
 * blocks are still recorded, dumps can be asked for, and HeapProfilerStart goes on in the same
 * log. */
void HeapProfilerStop(void) HEAPPROF_WEAK;

/* Writes a dump and returns when it is written. Without HEAPPROFILE and without a prefix it lies
 * beside the log. */
void HeapProfilerDump(const char *reason) HEAPPROF_WEAK;

/* 1 while samples are taken, else 0. */
int IsHeapProfilerRunning(void) HEAPPROF_WEAK;

/* The text of a dump, to be freed with free(); an empty one when there is nothing to tell; NULL
 * without memory. */
char *GetHeapProfile(void) HEAPPROF_WEAK;

/* -- heapprof's own names -- */

/* 1. */
int heapprof_is_present(void) HEAPPROF_WEAK;

/* Changes the mean sampling interval: bytes between samples, 1 for every allocation. This thread
 * follows at once, others within 4 MiB that they allocate; estimates stay unbiased, as each
 * sample keeps the interval it was taken under. 0, or -1: not from 1 to 2^40, or nothing can be
 * recorded. */
int heapprof_set_interval(size_t bytes) HEAPPROF_WEAK;

/* The mean sampling interval in force, in bytes; 0 while nothing is recorded. */
size_t heapprof_interval(void) HEAPPROF_WEAK;

/* Names this moment in the log, for --at, --from and --to. 0, or -1: it could not be recorded. */
int heapprof_mark(const char *name) HEAPPROF_WEAK;

/* Leaves out what this thread allocates, until it is resumed as often as it was paused. Its frees
 * are recorded. */
void heapprof_thread_pause(void) HEAPPROF_WEAK;
void heapprof_thread_resume(void) HEAPPROF_WEAK;

/* -- labels --
 *
 * A label says what this thread works on, for `heapprof top --by label:tenant` and --where
 * tenant=acme. Blocks that the thread allocates between a push and its pop are under the label. If
 * labels have one key, the one that was pushed last counts. A label is of one thread.
 *
 * Keys and values are copied, up to 256 bytes; NULL is the empty string. A key has 1,000 values at
 * most (HEAPPROF_LABEL_VALUES); all others are recorded as "(other)". So a value is a tenant or a
 * kind of request, and not the number of a request. */
void heapprof_label_push(const char *key, const char *value) HEAPPROF_WEAK;

/* Takes back the label that this thread pushed last. */
void heapprof_label_pop(void) HEAPPROF_WEAK;

/* -- blocks of a pool --
 *
 * A pool cuts blocks out of memory that it has from malloc or mmap. These functions report its
 * blocks, which are sampled as those of malloc are and have stacks of their own. The memory of a
 * pool that is from malloc is then in the profile twice: once as the pool's, and once as its
 * blocks. To leave out the first, pause the thread (heapprof_thread_pause) around the pool's own
 * calls. */

/* The pool has given out size bytes at ptr. If it gave out that address before, the earlier block
 * has ended: a pool may take back all of its blocks at once, without a report. */
void heapprof_alloc(void *ptr, size_t size) HEAPPROF_WEAK;

/* The pool takes back the block at ptr. Call it before the pool can give the memory out again. */
void heapprof_free(void *ptr) HEAPPROF_WEAK;

/* The pool has resized the block at old to size bytes, now at new_ptr. Call it before the pool can
 * give the old memory out again. A null new_ptr changes nothing. */
void heapprof_realloc(void *old, void *new_ptr, size_t size) HEAPPROF_WEAK;

#ifdef __cplusplus
}
#endif

/* Whether the library has that function. The address is taken from where the loader puts it. */
#define HEAPPROF_HAS(function) ((function) != 0)

/* The same calls, and nothing without the library. */
#define HEAPPROF_PRESENT() (HEAPPROF_HAS(heapprof_is_present) ? heapprof_is_present() : 0)
#define HEAPPROF_START(prefix) (HEAPPROF_HAS(HeapProfilerStart) ? HeapProfilerStart(prefix) : (void)0)
#define HEAPPROF_STOP() (HEAPPROF_HAS(HeapProfilerStop) ? HeapProfilerStop() : (void)0)
#define HEAPPROF_DUMP(reason) (HEAPPROF_HAS(HeapProfilerDump) ? HeapProfilerDump(reason) : (void)0)
#define HEAPPROF_RUNNING() (HEAPPROF_HAS(IsHeapProfilerRunning) ? IsHeapProfilerRunning() : 0)
#define HEAPPROF_PROFILE() (HEAPPROF_HAS(GetHeapProfile) ? GetHeapProfile() : (char *)0)
#define HEAPPROF_SET_INTERVAL(bytes) (HEAPPROF_HAS(heapprof_set_interval) ? heapprof_set_interval(bytes) : -1)
#define HEAPPROF_INTERVAL() (HEAPPROF_HAS(heapprof_interval) ? heapprof_interval() : (size_t)0)
#define HEAPPROF_MARK(name) (HEAPPROF_HAS(heapprof_mark) ? heapprof_mark(name) : -1)
#define HEAPPROF_THREAD_PAUSE() (HEAPPROF_HAS(heapprof_thread_pause) ? heapprof_thread_pause() : (void)0)
#define HEAPPROF_THREAD_RESUME() (HEAPPROF_HAS(heapprof_thread_resume) ? heapprof_thread_resume() : (void)0)
#define HEAPPROF_LABEL_PUSH(key, value) \
    (HEAPPROF_HAS(heapprof_label_push) ? heapprof_label_push((key), (value)) : (void)0)
#define HEAPPROF_LABEL_POP() (HEAPPROF_HAS(heapprof_label_pop) ? heapprof_label_pop() : (void)0)
#define HEAPPROF_ALLOC(ptr, size) (HEAPPROF_HAS(heapprof_alloc) ? heapprof_alloc((ptr), (size)) : (void)0)
#define HEAPPROF_FREE(ptr) (HEAPPROF_HAS(heapprof_free) ? heapprof_free(ptr) : (void)0)
#define HEAPPROF_REALLOC(old, new_ptr, size) \
    (HEAPPROF_HAS(heapprof_realloc) ? heapprof_realloc((old), (new_ptr), (size)) : (void)0)

#endif
