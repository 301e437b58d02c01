/* Situation: allocations below code that is not the program's: a PLT stub that is bound at its
 * first call (linked with -z lazy), qsort and bsearch of libc calling back, a signal in the middle
 * of the vDSO.
 * A correct profiler shows the program's functions on both sides of the foreign frames.
 * If it is wrong: the first call through a PLT stub shows nothing, libc's frames end the walk, and
 * the vDSO, which is a module without a file, ends it too.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <link.h>
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

void *kept[5];

/* memalign is called at no other place: this call goes through the resolver. */
OWN_FRAME static void first_call_through_plt(void) { kept[0] = memalign(64, 6001); NO_TAIL_CALL(); }
OWN_FRAME static void second_call_through_plt(void) { kept[1] = memalign(64, 6002); NO_TAIL_CALL(); }

OWN_FRAME static int compares_and_allocates(const void *a, const void *b)
{
    if (kept[2] == NULL)
        kept[2] = malloc(6003);
    return *(const int *)a - *(const int *)b;
}

OWN_FRAME static void sorts(void)
{
    int numbers[] = {5, 3, 8, 1, 9, 2};
    qsort(numbers, 6, sizeof numbers[0], compares_and_allocates);
    NO_TAIL_CALL();
}

OWN_FRAME static int searches_and_allocates(const void *a, const void *b)
{
    if (kept[3] == NULL)
        kept[3] = malloc(6004);
    return *(const int *)a - *(const int *)b;
}

OWN_FRAME static void searches(void)
{
    int numbers[] = {1, 2, 3, 5, 8, 9};
    int wanted = 8;
    escapes(bsearch(&wanted, numbers, 6, sizeof numbers[0], searches_and_allocates));
}

/* ---- the vDSO ---- */

static uintptr_t vdso_start, vdso_end;

static int find_vdso(struct dl_phdr_info *module, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    if (module->dlpi_addr != getauxval(AT_SYSINFO_EHDR))
        return 0;
    for (int i = 0; i < module->dlpi_phnum; i++)
        if (module->dlpi_phdr[i].p_type == PT_LOAD) {
            vdso_start = module->dlpi_addr + module->dlpi_phdr[i].p_vaddr;
            vdso_end = vdso_start + module->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

/* Allocates once: at the first tick that interrupts the vDSO's own code. */
OWN_FRAME static void on_tick(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)info;
    uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    if (kept[4] == NULL && pc >= vdso_start && pc < vdso_end)
        kept[4] = escapes(malloc(6005));
}

OWN_FRAME static void reads_the_clock(void)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        for (int i = 0; i < 1000; i++)
            clock_gettime(CLOCK_MONOTONIC, &now);
    } while (*(void *volatile *)&kept[4] == NULL && now.tv_sec - start.tv_sec < 3);
}

OWN_FRAME static void interrupts_the_vdso(void)
{
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO | SA_RESTART};
    struct itimerval every_ms = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    dl_iterate_phdr(find_vdso, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every_ms, NULL);
    reads_the_clock();
    setitimer(ITIMER_REAL, &never, NULL);
}

int main(void)
{
    first_call_through_plt();
    second_call_through_plt();
    sorts();
    searches();
    interrupts_the_vdso();

    printf("stack 6001 first_call_through_plt main\n");
    printf("stack 6002 second_call_through_plt main\n");
    printf("stack 6003 compares_and_allocates ... sorts main\n");
    printf("stack 6004 searches_and_allocates ... searches main\n");
    if (kept[4] != NULL)
        printf("stack 6005 on_tick ... reads_the_clock interrupts_the_vdso main\n");
    else
        printf("skip 6005 no tick hit the vDSO in 3 s\n");
    return 0;
}
