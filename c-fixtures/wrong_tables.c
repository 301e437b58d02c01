/* Situation: unwind tables that lie. Each function in assembly here works as any other, and its
 * entry in .eh_frame is false. Some CFAs are far above or below the stack, at the same place, made
 * of an unknown register or unmapped memory, or by a sum that never ends. Some entries have no
 * return address, or the function itself as its own caller, or a malformed rule.
 * A correct profiler shows the function that allocates and the lying one, and ends there with a
 * reason, or later.
 * If it is wrong: it follows the lie out of the stack (SIGSEGV inside malloc, as libgcc and
 * libunwind do), or for ever.
 *
 * With arguments: each is a plug-in (a copy of plugin_b.so with damaged tables), which is loaded,
 * called and unloaded.
 */
#include "frames.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* A function that calls its argument, with `lie` in its table behind the point where its frame is
 * made. */
#define LIAR(name, lie)                                                                                                \
    void name(void (*work)(void));                                                                                     \
    __asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n"                        \
            "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbp, -16\n" lie "\ncall *%rdi\n"                         \
            "pop %rbp\nret\n.cfi_endproc\n.size " #name ", . - " #name "\n");

LIAR(cfa_far_above, ".cfi_def_cfa_offset 0x7ffffff0")
LIAR(cfa_above, ".cfi_def_cfa_offset 0x100000")
LIAR(cfa_far_below, ".cfi_def_cfa rsp, -0x7ffffff0")
LIAR(cfa_below, ".cfi_def_cfa rsp, -64")
LIAR(cfa_at_the_same_place, ".cfi_def_cfa rsp, 0")
LIAR(cfa_askew, ".cfi_def_cfa_offset 13")
LIAR(cfa_of_another_register, ".cfi_def_cfa r12, 8")
LIAR(cfa_of_no_register, ".cfi_def_cfa 99, 8")
/* DW_CFA_def_cfa_expression: DW_OP_const8u 0xdead0000dead0000, DW_OP_deref */
LIAR(cfa_in_bad_memory, ".cfi_escape 0x0f, 10, 0x0e, 0, 0, 0xad, 0xde, 0, 0, 0xad, 0xde, 0x06")
/* DW_OP_const8u 0xfffffffffffffff8 */
LIAR(cfa_at_the_end_of_memory, ".cfi_escape 0x0f, 9, 0x0e, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff")
/* DW_OP_lit0 */
LIAR(cfa_zero, ".cfi_escape 0x0f, 1, 0x30")
/* DW_OP_drop on an empty stack; an operation that does not exist */
LIAR(cfa_of_nothing, ".cfi_escape 0x0f, 1, 0x13")
LIAR(cfa_no_operation, ".cfi_escape 0x0f, 1, 0xff")
/* twenty times DW_OP_dup */
LIAR(cfa_full_stack, ".cfi_escape 0x0f, 21, 0x30, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12,"
                     "0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12")
/* DW_OP_skip, to itself; DW_OP_lit1 and DW_OP_bra back to it; a value, and DW_OP_bra over a number
 * whose bytes, entered by that jump, are a jump back to themselves */
LIAR(cfa_never, ".cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff")
LIAR(cfa_never_after_all, ".cfi_escape 0x0f, 4, 0x31, 0x28, 0xfc, 0xff")
LIAR(cfa_never_in_a_number, ".cfi_escape 0x0f, 9, 0x31, 0x28, 1, 0, 0x0c, 0x2f, 0xfd, 0xff, 0")
/* The same for rbp and the return address. */
LIAR(rbp_never, ".cfi_escape 0x10, 6, 3, 0x2f, 0xfd, 0xff")
LIAR(caller_never, ".cfi_escape 0x16, 16, 3, 0x2f, 0xfd, 0xff")
/* A jump forwards, over DW_OP_lit0 to DW_OP_breg7 16, is as good as any: no lie at all. */
LIAR(cfa_after_a_jump, ".cfi_escape 0x0f, 6, 0x2f, 1, 0, 0x30, 0x77, 16")
LIAR(caller_undefined, ".cfi_undefined rip")
LIAR(caller_unchanged, ".cfi_same_value rip")
LIAR(caller_far_away, ".cfi_offset rip, -0x10000000")
LIAR(caller_in_register, ".cfi_register rip, r13")
/* DW_CFA_expression for the return address: DW_OP_const8u 0x10; DW_CFA_val_expression:
 * DW_OP_const8u all ones */
LIAR(caller_in_bad_memory, ".cfi_escape 0x10, 16, 9, 0x0e, 0x10, 0, 0, 0, 0, 0, 0, 0")
LIAR(caller_is_nonsense, ".cfi_escape 0x16, 16, 9, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f")
/* DW_CFA_val_expression for the return address: DW_OP_breg16 0: its own. The CFA rises by a word
 * each time, or not at all. */
LIAR(caller_is_itself, ".cfi_escape 0x16, 16, 2, 0x80, 0")
LIAR(caller_is_itself_for_ever, ".cfi_def_cfa rsp, 0\n.cfi_escape 0x16, 16, 2, 0x80, 0")
LIAR(rbp_far_away, ".cfi_offset rbp, -0x40000000\n.cfi_def_cfa rbp, 16")
/* DW_CFA_remember_state sixty times; DW_CFA_restore_state without one */
LIAR(too_much_remembered, ".rept 60\n.cfi_escape 0x0a\n.endr")
LIAR(nothing_remembered, ".cfi_escape 0x0b, 0x0b, 0x0b")
/* rules for sixty registers */
LIAR(many_registers, ".altmacro\n.macro one_register n\n.cfi_escape 0x05, \\n, 4\n.endm\n.set at, 32\n.rept 60\n"
                     "one_register %at\n.set at, at + 1\n.endr\n.noaltmacro\n.purgem one_register")

static const struct {
    const char *name;
    void (*function)(void (*work)(void));
} liars[] = {
#define ENTRY(name) {#name, name}
    ENTRY(cfa_far_above),       ENTRY(cfa_above),           ENTRY(cfa_far_below),
    ENTRY(cfa_below),           ENTRY(cfa_at_the_same_place), ENTRY(cfa_askew),
    ENTRY(cfa_of_another_register), ENTRY(cfa_of_no_register), ENTRY(cfa_in_bad_memory),
    ENTRY(cfa_at_the_end_of_memory), ENTRY(cfa_zero),       ENTRY(cfa_of_nothing),
    ENTRY(cfa_no_operation),    ENTRY(cfa_full_stack),
    ENTRY(cfa_never),           ENTRY(cfa_never_after_all), ENTRY(cfa_never_in_a_number),
    ENTRY(rbp_never),           ENTRY(caller_never),        ENTRY(cfa_after_a_jump),
    ENTRY(caller_undefined),    ENTRY(caller_unchanged),    ENTRY(caller_far_away),
    ENTRY(caller_in_register),  ENTRY(caller_in_bad_memory), ENTRY(caller_is_nonsense),
    ENTRY(caller_is_itself),    ENTRY(caller_is_itself_for_ever), ENTRY(rbp_far_away),
    ENTRY(too_much_remembered), ENTRY(nothing_remembered),
    ENTRY(many_registers),
};

enum { LIARS = sizeof liars / sizeof *liars, FIRST_SIZE = 31000, ROUNDS = 3 };

static int current;

OWN_FRAME static void allocates_under_liar(void)
{
    escapes(malloc((size_t)(FIRST_SIZE + current)));
    NO_TAIL_CALL();
}

/* Three times: the first walk makes the rules, the others use them. */
OWN_FRAME static void runs_all(void)
{
    for (int round = 0; round < ROUNDS; round++)
        for (current = 0; current < LIARS; current++)
            liars[current].function(allocates_under_liar);
}

OWN_FRAME static int loads(const char *file)
{
    void *plugin = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "wrong_tables: %s\n", dlerror());
        return 0;
    }
    void *(*allocates)(void);
    *(void **)&allocates = dlsym(plugin, "plugin_b_entry");
    for (int round = 0; round < ROUNDS; round++)
        escapes(allocates());
    dlclose(plugin);
    return 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!loads(argv[i]))
            return 2;
    if (argc > 1) {
        printf("stack 8002 plugin_b_inner ...\n");
        printf("count 8002 %d %d\n", ROUNDS * (argc - 1), ROUNDS * (argc - 1));
        return 0;
    }
    runs_all();
    for (int i = 0; i < LIARS; i++) {
        printf("stack %d allocates_under_liar %s ...\n", FIRST_SIZE + i, liars[i].name);
        printf("count %d %d %d\n", FIRST_SIZE + i, ROUNDS, ROUNDS);
    }
    return 0;
}
