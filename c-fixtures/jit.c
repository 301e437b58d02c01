/* Situation: code that the program wrote itself into anonymous memory calls malloc: once with a frame pointer, once with
 * rbp as a general register (0, and an address that is not there), once in pages that may be executed but not read.
 * A correct profiler shows the caller of the first kind and ends at the others with a reason.
 * If it is wrong: it looks for an unwind table where no file is, reads the code that it may not read, or follows rbp out of
 * the stack.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };

/* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
static const unsigned char with_frame_pointer[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
/* push rbp; mov rbp, rsi; call rdi; pop rbp; ret */
static const unsigned char with_rbp_general[] = {0x55, 0x48, 0x89, 0xf5, 0xff, 0xd7, 0x5d, 0xc3};

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
    printf("stack 32001 allocates_1 ... runs main\n");
    printf("count 32001 3 3\n");
    printf("stack 32002 allocates_2 ...\n");
    printf("count 32002 5 5\n");
    printf("stack 32003 allocates_3 ...\n");
    printf("count 32003 5 5\n");
    return 0;
}
