/* Situation: code that the program wrote into anonymous memory calls malloc: once with a frame
 * pointer; for half a second through ten pieces of such code that call one another, and through
 * code that is entered with a return address that no call left, as interpreters do; with rbp as a
 * general register (0, an unmapped address, one of words on the stack that look like a frame), once
 * in pages that may be executed but not read. Some of the code is removed, and data put in its
 * place.
 * A correct profiler shows the callers of the first three kinds (of the second and third after a
 * while), and ends at the others with a reason.
 * If it is wrong: it looks for an unwind table where there is no file, reads the unreadable code,
 * follows rbp out of the stack, or takes other data for a caller.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char with_frame_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push rbp; mov rbp, rsi; call rdi; pop rbp; ret */
static const unsigned char with_rbp_general[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};

/* push rbp; mov rbp, rsp; call the next piece; pop rbp; ret */
static const unsigned char passes_on[] = {0x55, 0x48, 0x89, 0xe5, 0xe8, 3, 0, 0, 0, 0x5d, 0xc3, 0xcc};

/* push rbp; mov rbp, rsp; lea rax, [back]; push rax; jmp on; back: pop rbp; ret; on: push rbp; mov
 * rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char without_call[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 0x05, 3, 0, 0, 0, 0x50, 0xeb, 2,
                                             0x5d, 0xc3, 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};

enum { PIECES = 10 };

typedef void code(void (*work)(void), uint64_t rbp);

static code *write_code(const unsigned char *bytes, size_t size, int protection)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, bytes, size);
    mprotect(page, PAGE, protection);
    code *entry;
    *(void **)&entry = page;
    return entry;
}

OWN_FRAME static void allocates_1(void) { escapes(malloc(32001)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_2(void) { escapes(malloc(32002)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_3(void) { escapes(malloc(32003)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_4(void) { escapes(malloc(32004)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_5(void) { escapes(malloc(32005)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_6(void) { escapes(malloc(32006)); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_7(void) { escapes(malloc(32007)); NO_TAIL_CALL(); }

/* Nine pieces that pass on, and one that calls its argument. */
static code *write_pieces(void)
{
    unsigned char bytes[(PIECES - 1) * sizeof passes_on + sizeof with_frame_pointer];
    for (size_t i = 0; i < PIECES - 1; i++)
        memcpy(bytes + i * sizeof passes_on, passes_on, sizeof passes_on);
    memcpy(bytes + (PIECES - 1) * sizeof passes_on, with_frame_pointer, sizeof with_frame_pointer);
    return write_code(bytes, sizeof bytes, PROT_READ | PROT_EXEC);
}

OWN_FRAME static void runs(code *entry, void (*work)(void), uint64_t rbp)
{
    entry(work, rbp);
    NO_TAIL_CALL();
}

int main(void)
{
    code *framed = write_code(with_frame_pointer, sizeof with_frame_pointer, PROT_READ | PROT_EXEC);
    code *general = write_code(with_rbp_general, sizeof with_rbp_general, PROT_READ | PROT_EXEC);
    code *unreadable = write_code(with_rbp_general, sizeof with_rbp_general, PROT_EXEC);
    static const uint64_t values[] = {0, 8, 0xdead0000dead0000, 0x7fffffffe000, UINT64_MAX - 7};
    for (int round = 0; round < 3; round++)
        runs(framed, allocates_1, 0);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        runs(general, allocates_2, values[i]);
        runs(unreadable, allocates_3, values[i]);
    }
    code *pieces = write_pieces();
    code *interpreter = write_code(without_call, sizeof without_call, PROT_READ | PROT_EXEC);
    for (int round = 0; round < 10; round++) {
        runs(pieces, allocates_4, 0);
        runs(interpreter, allocates_6, 0);
        usleep(50000);
    }
    /* Data that look like a frame, and its caller: words in place of removed code. */
    void *gone = *(void **)&interpreter;
    volatile uint64_t lookalike[4] = {(uint64_t)&lookalike[2], (uint64_t)gone + 64, 0, 0};
    mprotect((void *)((uint64_t)lookalike & -PAGE), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    mmap(gone, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (int round = 0; round < 40; round++) {
        runs(general, allocates_7, (uint64_t)lookalike);
        usleep(50000);
    }
    /* Words behind bytes that look like a call: in the heap, in the program's data, and in a stack
     * that is executable. */
    static uint64_t data[8];
    uint64_t *heap = malloc(64);
    memset(heap, 0xe8, 64);
    lookalike[1] = (uint64_t)(heap + 4);
    runs(general, allocates_5, (uint64_t)lookalike);
    lookalike[1] = (uint64_t)(data + 4);
    runs(general, allocates_5, (uint64_t)lookalike);
    lookalike[1] = (uint64_t)(lookalike + 3);
    runs(general, allocates_5, (uint64_t)lookalike);
    printf("stack 32001 allocates_1 ... runs main\n");
    printf("count 32001 3 3\n");
    printf("stack 32002 allocates_2 ...\n");
    printf("count 32002 5 5\n");
    printf("stack 32003 allocates_3 ...\n");
    printf("count 32003 5 5\n");
    printf("stack 32004 allocates_4 ...\n");
    printf("count 32004 10 10\n");
    printf("stack 32005 allocates_5 ...\n");
    printf("count 32005 3 3\n");
    printf("stack 32006 allocates_6 ...\n");
    printf("count 32006 10 10\n");
    printf("stack 32007 allocates_7 ...\n");
    printf("count 32007 40 40\n");
    return 0;
}
