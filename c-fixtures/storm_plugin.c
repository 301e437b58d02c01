/* Plug-in with an unwind table of some hundred kilobytes, for dlopen_storm.c: copying it takes a
 * while. */
#include "frames.h"

int storm_0(volatile int *p);
OWN_FRAME int storm_0(volatile int *p) { return *p; }

__asm__(".text\n"
        ".rept 8000\n"
        ".cfi_startproc\n sub $24, %rsp\n .cfi_adjust_cfa_offset 24\n nop\n add $24, %rsp\n .cfi_adjust_cfa_offset -24\n ret\n .cfi_endproc\n"
        ".endr\n");
