/* Situation: a program changes the first instructions of libc's munmap and madvise, to hear of
 * memory that is given back, as caches of memory registrations do (UCX, libfabric, Open MPI).
 * A correct profiler gives the program's blocks back through these functions.
 * If it is wrong: the cache keeps the registration of memory that has another owner by then; with
 * RDMA that corrupts data.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* musl has none. */
int malloc_trim(size_t) __attribute__((weak));

static char *volatile watched;
static size_t watched_bytes;
static volatile int heard;

static void hear(void *at, size_t size)
{
    char *from = at;
    if (watched != NULL && from < watched + watched_bytes && from + size > watched)
        heard++;
}

static long bare(long number, void *at, size_t size, long what)
{
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "0"(number), "D"(at), "S"(size), "d"(what)
                     : "rcx", "r11", "memory");
    return answer < 0 ? -1 : answer;
}

static int new_munmap(void *at, size_t size)
{
    hear(at, size);
    return (int)bare(SYS_munmap, at, size, 0);
}

static int new_madvise(void *at, size_t size, int advice)
{
    if (advice == MADV_DONTNEED)
        hear(at, size);
    return (int)bare(SYS_madvise, at, size, advice);
}

/* movabs r11, TO; jmp r11 */
static int leads(const char *name, void *to)
{
    unsigned char *code = dlsym(RTLD_DEFAULT, name);
    unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    memcpy(jump + 2, &to, sizeof to);
    uintptr_t page = (uintptr_t)code & ~4095ul;
    if (mprotect((void *)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        return 0;
    memcpy(code, jump, sizeof jump);
    return mprotect((void *)page, 8192, PROT_READ | PROT_EXEC) == 0;
}

static void check(const char *name, size_t size)
{
    heard = 0;
    watched_bytes = size;
    watched = malloc(size);
    memset(watched, 1, size);
    free(watched);
    if (malloc_trim != NULL)
        malloc_trim(0);
    watched = NULL;
    if (heard > 0)
        printf("ok %s\n", name);
    else
        printf("FAIL %s: 0 (expected to hear that it is given back)\n", name);
}

int main(void)
{
    void *keeps = escapes(malloc(100));
    if (!leads("munmap", new_munmap) || !leads("madvise", new_madvise)) {
        printf("skip patches: the code of libc cannot be written to\n");
        return 0;
    }
    check("large", 64 << 20);
    check("middle", 1 << 20);
    free(keeps);
    return 0;
}
