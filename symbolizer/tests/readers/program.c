/* A program whose stacks are known: it prints its modules and the addresses of the calls on two
 * stacks, which the test writes into a log as if they had allocated.
 *
 *   module BIAS BUILD-ID PATH     segment START LEN OFFSET FLAGS     stack PC RETURN-ADDRESS...
 */
#define _GNU_SOURCE
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

static void print_stack(void)
{
    void *frames[64];
    int n = backtrace(frames, 64);
    /* Frame 0 of a dump is a PC inside the allocation function. */
    printf("stack %#lx", (unsigned long)&malloc + 1);
    for (int i = 1; i < n; i++)
        printf(" %#lx", (unsigned long)frames[i]);
    printf("\n");
}

__attribute__((noinline)) void record(void)
{
    print_stack();
    __asm__ volatile("");
}

static inline __attribute__((always_inline)) void inlined_middle(void)
{
    record(); /* the line of the inlined call */
    __asm__ volatile("");
}

__attribute__((noinline)) void allocate(void) /* a user's own: must not be pruned as an allocator */
{
    inlined_middle();
    __asm__ volatile("");
}

__attribute__((noinline)) void other(void)
{
    record();
    __asm__ volatile("");
}

static int print_module(struct dl_phdr_info *info, size_t size, void *data)
{
    char path[PATH_MAX];
    const char *name = info->dlpi_name;
    (void)size, (void)data;
    if (!*name)
        name = realpath("/proc/self/exe", path);
    printf("module %#lx ", (unsigned long)info->dlpi_addr);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_NOTE)
            continue;
        const char *at = (const char *)(info->dlpi_addr + ph->p_vaddr), *end = at + ph->p_memsz;
        while (at + 12 <= end) {
            const ElfW(Nhdr) *note = (const void *)at;
            const unsigned char *id = (const unsigned char *)at + 12 + ((note->n_namesz + 3) & ~3u);
            if (note->n_type == 3 && note->n_namesz == 4) {
                for (unsigned j = 0; j < note->n_descsz; j++)
                    printf("%02x", id[j]);
                break;
            }
            at = (const char *)id + ((note->n_descsz + 3) & ~3u);
        }
    }
    printf(" %s\n", name);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_LOAD)
            printf("segment %#lx %#lx %#lx %u\n", (unsigned long)(info->dlpi_addr + ph->p_vaddr),
                   (unsigned long)ph->p_memsz, (unsigned long)ph->p_offset, ph->p_flags);
    }
    return 0;
}

int main(void)
{
    dl_iterate_phdr(print_module, NULL);
    allocate();
    other();
    return 0;
}
