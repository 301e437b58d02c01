/* Situation: a block is allocated 40 calls deep in code compiled without frame pointers, as most
 * code is.
 * A correct profiler shows all 40 functions in order, then main: it follows .eh_frame.
 * If it is wrong: an unwinder that follows rbp shows one or two functions, or jumps into main's
 * caller.
 */
#include "chain_40.h"

void *kept;

int main(void)
{
    kept = chain_1(4001);
    print_chain(4001);
    return 0;
}
