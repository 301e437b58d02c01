/* Second plug-in of dlopen_cycle.c: three functions, large frames. If plugin_a.c's rules are
 * applied to its addresses, the walk goes wrong. */
#include "frames.h"

#include <stdlib.h>

OWN_FRAME static void *plugin_b_inner(void)
{
    char frame[232];
    escapes(frame);
    void *block = malloc(8002);
    escapes(frame);
    return block;
}

OWN_FRAME static void *plugin_b_middle(void)
{
    char frame[424];
    escapes(frame);
    void *block = plugin_b_inner();
    escapes(frame);
    return block;
}

void *plugin_b_entry(void);

OWN_FRAME void *plugin_b_entry(void)
{
    char frame[136];
    escapes(frame);
    void *block = plugin_b_middle();
    escapes(frame);
    return block;
}
