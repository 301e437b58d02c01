/* Situation: functions use rbp as an ordinary register, as -fomit-frame-pointer allows. While
 * malloc runs it holds nonsense, zero, an unreadable address, or the address of words that look
 * like a chain of frames.
 * A correct profiler shows the four functions with their callers: it reads rbp only if a rule says
 * so.
 * If it is wrong: the walk stops, faults on the unreadable address, or follows the decoy into
 * `never_called`.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

void *kept[4];

/* Allocates `size` bytes while rbp holds `value`. */
#define ALLOCATES_WITH_RBP(function, size, slot) \
    OWN_FRAME static void function(void *value) \
    { \
        register void *rbp __asm__("rbp") = value; \
        __asm__ volatile("" : "+r"(rbp)); \
        kept[slot] = malloc(size); \
        __asm__ volatile("" : "+r"(rbp)); \
    }

ALLOCATES_WITH_RBP(rbp_is_nonsense, 12001, 0)
ALLOCATES_WITH_RBP(rbp_is_zero, 12002, 1)
ALLOCATES_WITH_RBP(rbp_is_unreadable, 12003, 2)
ALLOCATES_WITH_RBP(rbp_is_decoy, 12004, 3)

OWN_FRAME static void never_called(void) { NO_TAIL_CALL(); }

/* On this thread's stack, in order, with a return address: {saved rbp, return address} twice. */
OWN_FRAME static void builds_decoy(void)
{
    void *decoy[4];
    decoy[0] = &decoy[2];
    decoy[1] = (char *)(void *)never_called + 1;
    decoy[2] = NULL;
    decoy[3] = (char *)(void *)never_called + 1;
    rbp_is_decoy(escapes(decoy));
    NO_TAIL_CALL();
}

int main(void)
{
    rbp_is_nonsense((void *)0xdeadbeefdeadbeef);
    rbp_is_zero(NULL);
    rbp_is_unreadable(mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    builds_decoy();
    printf("stack 12001 rbp_is_nonsense main\n");
    printf("stack 12002 rbp_is_zero main\n");
    printf("stack 12003 rbp_is_unreadable main\n");
    printf("stack 12004 rbp_is_decoy builds_decoy main\n");
    printf("never never_called\n");
    return 0;
}
