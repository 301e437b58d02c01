/* Situation: the same 40 calls as in nofp_chain.c, compiled with frame pointers.
 * A correct profiler shows the same list: its rules must also work if rbp gives the CFA.
 * If it is wrong: rbp is not restored between frames, and the list ends or repeats in the middle.
 */
#include "chain_40.h"

void *kept;

int main(void)
{
    kept = chain_1(4002);
    print_chain(4002);
    return 0;
}
