/* Library to be preloaded with others, like libSegFault: it catches SIGSEGV, prints the stack by
 * libgcc's unwinder, and then lets the signal end the program. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void caught(int number)
{
    static const char line[] = "caught\n";
    void *stack[64];
    if (write(1, line, sizeof line - 1) > 0)
        backtrace_symbols_fd(stack, backtrace(stack, 64), 2);
    signal(number, SIG_DFL);
    raise(number);
}

__attribute__((constructor)) static void catches(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = caught;
    sigaction(SIGSEGV, &action, NULL);
}
