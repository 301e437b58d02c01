/* Part of no_unwind_tables.c that is compiled with -fno-asynchronous-unwind-tables
 * -fno-unwind-tables -fomit-frame-pointer: these functions are in no .eh_frame. Their frames are
 * large, so that a guessed rule fails. */
#include "frames.h"

#include <stdlib.h>

void *hidden_calls(void *(*callback)(void));
void *hidden_allocates(void);

OWN_FRAME void *hidden_calls(void *(*callback)(void))
{
    char frame[312];
    escapes(frame);
    void *block = callback();
    escapes(frame);
    return block;
}

OWN_FRAME void *hidden_allocates(void)
{
    char frame[120];
    escapes(frame);
    void *block = malloc(11002);
    escapes(frame);
    return block;
}
