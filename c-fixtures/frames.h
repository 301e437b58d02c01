/* Attributes that keep a function's frame on the stack, so that a fixture can promise a call chain.
 *
 * An optimiser may inline, clone, merge, split or tail-call a function, and may delete a malloc
 * whose block is never used. Each of these would make a fixture's promise untrue although the
 * profiler is right.
 */
#ifndef FRAMES_H
#define FRAMES_H

/* A function with one body, one name and its own frame: not inlined, not cloned, not merged with a
 * twin. */
#if !defined(__GNUC__) || __GNUC__ >= 8
#define OWN_FRAME __attribute__((noipa))
#else
#define OWN_FRAME __attribute__((noinline, noclone, no_icf))
#endif

/* A function that has no frame anywhere, at any optimisation level. */
#define NO_FRAME static inline __attribute__((always_inline))

/* After a call in last position: the call returns here, so it cannot become a jump. */
#define NO_TAIL_CALL() __asm__ volatile("" ::: "memory")

/* Makes the compiler believe that the block is read: the allocation stays. */
static inline __attribute__((always_inline)) void *escapes(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

#endif
