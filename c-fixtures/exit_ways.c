/* Situation: a process that has allocated ends in one of many ways.
 * A correct profiler has the block of 17001 bytes in its log after every way, and the exit status
 * is that of plain glibc. (For sigkill the last 100 ms must be quiet: the program sleeps 300 ms
 * first.)
 * If it is wrong: a log without its end; a changed status; a process that hangs at exit, or never
 * ends because a thread of the profiler is still there (thread_exit and its like); or a process
 * that ends without the output of atexit's functions.
 *
 *   exit_ways return|exit|_exit|exit_group|quick_exit|abort|sigterm|sigkill|thread_exit|thrd_exit
 *   exit_ways cancel|bare_exit
 *
 * Status: return 0, exit 3, _exit 4, quick_exit 5, exit_group (the system call) 7. It is 0 for
 * thread_exit, thrd_exit and cancel, by each of which main ends before the last thread. bare_exit
 * (the system call) is the same, without a call of exit. The others die of their signal.
 */
#define _GNU_SOURCE
#include "frames.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#if __has_include(<threads.h>)
#include <threads.h>
#else
#define thrd_exit(status) pthread_exit(NULL) /* glibc before 2.28 */
#endif
#include <time.h>
#include <unistd.h>

void *kept[2];

OWN_FRAME static void allocates(void) { kept[0] = malloc(17001); NO_TAIL_CALL(); }
OWN_FRAME static void allocates_after_main(void) { kept[1] = malloc(17002); NO_TAIL_CALL(); }

static void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

OWN_FRAME static void *last_thread(void *unused)
{
    (void)unused;
    sleep_ms(200); /* main has ended by now */
    allocates_after_main();
    return NULL;
}

static void at_exit(void) { printf("ok at_exit\n"); /* stays in the buffer until exit writes it */ }

/* main ends; the process goes on with another thread, and ends with it. */
static void leave_main_to_thread(const char *way)
{
    pthread_t thread;
    atexit(at_exit);
    pthread_create(&thread, NULL, last_thread, NULL);
    pthread_detach(thread);
    printf("stack 17002 allocates_after_main last_thread ...\n");
    fflush(stdout);
    if (strcmp(way, "thrd_exit") == 0)
        thrd_exit(6);
    if (strcmp(way, "cancel") == 0) {
        pthread_cancel(pthread_self());
        pthread_testcancel();
    }
    if (strcmp(way, "bare_exit") == 0)
        syscall(SYS_exit, 0);
    pthread_exit(NULL);
}

static void leave_by(const char *way)
{
    if (strcmp(way, "exit") == 0)
        exit(3);
    if (strcmp(way, "_exit") == 0)
        _exit(4);
    if (strcmp(way, "exit_group") == 0)
        syscall(SYS_exit_group, 7);
    if (strcmp(way, "quick_exit") == 0)
        quick_exit(5);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "sigterm") == 0)
        raise(SIGTERM);
    if (strcmp(way, "sigkill") == 0) {
        sleep_ms(300);
        raise(SIGKILL);
    }
    if (strcmp(way, "thread_exit") == 0 || strcmp(way, "thrd_exit") == 0 || strcmp(way, "cancel") == 0 ||
        strcmp(way, "bare_exit") == 0)
        leave_main_to_thread(way);
}

int main(int argc, char **argv)
{
    const char *way = argc > 1 ? argv[1] : "return";
    allocates();
    printf("pid %d\n", (int)getpid());
    printf("stack 17001 allocates main\n");
    fflush(stdout);
    leave_by(way);
    return strcmp(way, "return") == 0 ? 0 : 2;
}
