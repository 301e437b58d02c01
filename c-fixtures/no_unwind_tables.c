/* Situation: one object file (no_unwind_tables_hidden.c) was compiled without unwind tables and
 * without frame pointers, as hand-written assembly and some vendors' libraries are. Its functions
 * stand in the middle.
 * A correct profiler shows the frames up to the function without a rule, stops or continues
 * correctly, and counts why.
 * If it is wrong: the table entry of the function before is applied to a PC beyond its end, and the
 * stack goes on with functions that were never called. Addresses of `never_on_the_stack` lie in the
 * caller's frame as bait for that, and for any search of the stack for plausible words.
 */
#include "frames.h"

#include <stdio.h>
#include <stdlib.h>

void *hidden_calls(void *(*callback)(void));
void *hidden_allocates(void);

void *kept[3];

OWN_FRAME static void never_on_the_stack(void) { NO_TAIL_CALL(); }

OWN_FRAME static void *called_by_hidden(void)
{
    void *block = malloc(11001);
    NO_TAIL_CALL();
    return block;
}

OWN_FRAME static void calls_hidden(void)
{
    char frame[200];
    void (*volatile decoys[16])(void);
    for (int i = 0; i < 16; i++)
        decoys[i] = never_on_the_stack;
    escapes(frame);
    kept[0] = hidden_calls(called_by_hidden);
    escapes((void *)decoys);
    kept[1] = hidden_allocates();
    escapes((void *)decoys);
}

OWN_FRAME static void allocates_normally(void)
{
    kept[2] = malloc(11003);
    NO_TAIL_CALL();
}

int main(void)
{
    calls_hidden();
    allocates_normally();
    printf("stack 11001 called_by_hidden hidden_calls ...\n");
    printf("stack 11002 hidden_allocates ...\n");
    printf("stack 11003 allocates_normally main\n");
    printf("never never_on_the_stack\n");
    return 0;
}
