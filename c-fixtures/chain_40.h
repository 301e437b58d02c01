/* Forty functions that call each other, for nofp_chain.c and fp_chain.c.
 *
 * chain_1 calls chain_2 ... calls chain_40, which allocates. Their frames have different sizes and
 * save different registers, so that no two rules are alike. Everything below main is compiled with
 * the including file's flags.
 */
#ifndef CHAIN_40_H
#define CHAIN_40_H

#include "frames.h"

#include <stdio.h>
#include <stdlib.h>

/* Locals that live across the call: some in the frame, two in callee-saved registers. */
#define CHAIN(number, next) \
    OWN_FRAME static void *chain_##number(size_t size) \
    { \
        char frame[8 + 24 * (number)]; \
        size_t before = size + (number); \
        escapes(frame); \
        void *block = next(size); \
        escapes(frame); \
        return before == 0 ? NULL : block; \
    }

CHAIN(40, malloc)    CHAIN(39, chain_40) CHAIN(38, chain_39) CHAIN(37, chain_38) CHAIN(36, chain_37)
CHAIN(35, chain_36)  CHAIN(34, chain_35) CHAIN(33, chain_34) CHAIN(32, chain_33) CHAIN(31, chain_32)
CHAIN(30, chain_31)  CHAIN(29, chain_30) CHAIN(28, chain_29) CHAIN(27, chain_28) CHAIN(26, chain_27)
CHAIN(25, chain_26)  CHAIN(24, chain_25) CHAIN(23, chain_24) CHAIN(22, chain_23) CHAIN(21, chain_22)
CHAIN(20, chain_21)  CHAIN(19, chain_20) CHAIN(18, chain_19) CHAIN(17, chain_18) CHAIN(16, chain_17)
CHAIN(15, chain_16)  CHAIN(14, chain_15) CHAIN(13, chain_14) CHAIN(12, chain_13) CHAIN(11, chain_12)
CHAIN(10, chain_11)  CHAIN(9, chain_10)  CHAIN(8, chain_9)   CHAIN(7, chain_8)   CHAIN(6, chain_7)
CHAIN(5, chain_6)    CHAIN(4, chain_5)   CHAIN(3, chain_4)   CHAIN(2, chain_3)   CHAIN(1, chain_2)

static void print_chain(size_t size)
{
    printf("stack %zu", size);
    for (int number = 40; number >= 1; number--)
        printf(" chain_%d", number);
    printf(" main\n");
}

#endif
