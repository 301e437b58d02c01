/* First plug-in of dlopen_cycle.c: two functions, small frames. plugin_b.c has another layout. */
#include "frames.h"

#include <stdlib.h>

OWN_FRAME static void *plugin_a_inner(void)
{
    void *block = malloc(8001);
    NO_TAIL_CALL();
    return block;
}

void *plugin_a_entry(void);

OWN_FRAME void *plugin_a_entry(void)
{
    void *block = plugin_a_inner();
    NO_TAIL_CALL();
    return block;
}
