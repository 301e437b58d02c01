/* Situation: a signal handler allocates, on the interrupted function's own stack and on an
 * alternate one.
 * A correct profiler shows the handler, and below it the interrupted function, and its callers.
 * If it is wrong: the walk ends at the signal trampoline; or it refuses to leave the alternate
 * stack; or it subtracts one from the interrupted PC, which is no return address. Then a function
 * interrupted in its very first instruction shows as its neighbour.
 *
 * The handlers only ever interrupt code that is not allocating.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { PAGE = 4096, ALTERNATE_STACK = 64 * 1024 };

void *kept[6];
static char *guard_page;
static volatile sig_atomic_t alarm_came;

static void handle(int signal, void (*handler)(int), int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(signal, &action, NULL);
}

OWN_FRAME static void on_usr1(int signal) { (void)signal; kept[0] = escapes(malloc(5001)); }
OWN_FRAME static void on_usr2(int signal) { (void)signal; kept[1] = escapes(malloc(5002)); }

OWN_FRAME static void raises_usr1(void)
{
    raise(SIGUSR1);
    NO_TAIL_CALL();
}

OWN_FRAME static void kills_itself_with_usr2(void)
{
    kill(getpid(), SIGUSR2);
    NO_TAIL_CALL();
}

/* Handles a fault: opens the page, so that the interrupted instruction succeeds the next time. */
OWN_FRAME static void on_first_segv(int signal)
{
    (void)signal;
    kept[2] = escapes(malloc(5003));
    mprotect(guard_page, PAGE, PROT_READ | PROT_WRITE);
}

OWN_FRAME static void on_second_segv(int signal)
{
    (void)signal;
    kept[3] = escapes(malloc(5004));
    mprotect(guard_page, PAGE, PROT_READ | PROT_WRITE);
}

OWN_FRAME static void touches_guard_page(void)
{
    *(volatile char *)guard_page = 1;
    NO_TAIL_CALL();
}

/* Two neighbours without padding between them; the second one faults in its first instruction. */
__asm__(".pushsection .text\n"
        ".type innocent_neighbour, @function\n"
        "innocent_neighbour:\n"
        "  .cfi_startproc\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size innocent_neighbour, .-innocent_neighbour\n"
        ".type faults_in_first_instruction, @function\n"
        "faults_in_first_instruction:\n"
        "  .cfi_startproc\n"
        "  movb $1, (%rdi)\n"
        "  ret\n"
        "  .cfi_endproc\n"
        ".size faults_in_first_instruction, .-faults_in_first_instruction\n"
        ".popsection\n");
void faults_in_first_instruction(char *page);

OWN_FRAME static void calls_faulting_function(void)
{
    faults_in_first_instruction(guard_page);
    NO_TAIL_CALL();
}

OWN_FRAME static void on_alarm(int signal)
{
    (void)signal;
    kept[4] = escapes(malloc(5005));
    alarm_came = 1;
}

OWN_FRAME static void spins_until_alarm(void)
{
    while (!alarm_came)
        ;
    NO_TAIL_CALL();
}

/* A handler interrupted by another signal: two signal frames in one stack. */
OWN_FRAME static void on_inner(int signal) { (void)signal; kept[5] = escapes(malloc(5006)); }

OWN_FRAME static void on_outer(int signal)
{
    (void)signal;
    raise(SIGUSR2);
    NO_TAIL_CALL();
}

OWN_FRAME static void raises_nested(void)
{
    raise(SIGUSR1);
    NO_TAIL_CALL();
}

int main(void)
{
    static char alternate_stack[ALTERNATE_STACK];
    stack_t alternate = {.ss_sp = alternate_stack, .ss_size = ALTERNATE_STACK};
    sigaltstack(&alternate, NULL);
    guard_page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    handle(SIGUSR1, on_usr1, 0);
    raises_usr1();
    handle(SIGUSR2, on_usr2, SA_ONSTACK);
    kills_itself_with_usr2();

    handle(SIGSEGV, on_first_segv, SA_ONSTACK);
    touches_guard_page();
    handle(SIGSEGV, on_second_segv, SA_ONSTACK);
    mprotect(guard_page, PAGE, PROT_NONE);
    calls_faulting_function();

    handle(SIGALRM, on_alarm, 0);
    struct itimerval soon = {.it_value = {.tv_usec = 5000}};
    setitimer(ITIMER_REAL, &soon, NULL);
    spins_until_alarm();

    handle(SIGUSR1, on_outer, 0);
    handle(SIGUSR2, on_inner, SA_ONSTACK);
    raises_nested();

    printf("stack 5001 on_usr1 ... raises_usr1 main\n");
    printf("stack 5002 on_usr2 ... kills_itself_with_usr2 main\n");
    printf("stack 5003 on_first_segv ... touches_guard_page main\n");
    printf("stack 5004 on_second_segv ... faults_in_first_instruction calls_faulting_function main\n");
    printf("stack 5005 on_alarm ... spins_until_alarm main\n");
    printf("stack 5006 on_inner ... on_outer ... raises_nested main\n");
    return 0;
}
