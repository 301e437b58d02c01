/* Situation: a program takes the lowest free descriptor number by dup2, again and again. Meanwhile
 * threads begin, about which a profiler may read something under /proc, and write down their
 * allocations.
 * A correct profiler opens nothing under the program's numbers meanwhile.
 * If it is wrong: dup2 answers EBUSY, or another reader takes the data that wait in the program's
 * socket.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void *work(void *nothing)
{
    for (int i = 0; i < 10; i++) free(malloc(100));
    return nothing;
}

int main(void)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) return 2;
    int mine = fcntl(pair[0], F_DUPFD, 500), other = fcntl(pair[1], F_DUPFD, 500);
    close(pair[0]);
    close(pair[1]);
    if (write(other, "kept", 4) != 4) return 2;
    int busy = 0;
    for (int round = 0; round < 2000; round++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0) return 2;
        for (int i = 0; i < 1000; i++) {
            if (dup2(mine, pair[0]) == pair[0])
                close(pair[0]);
            else
                busy++;
        }
        pthread_join(thread, NULL);
    }
    char got[4];
    ssize_t length = recv(mine, got, sizeof got, MSG_DONTWAIT);
    printf("%s\n", length == 4 ? "ok kept" : "FAILED kept: somebody has read what was sent to the program");
    if (busy == 0)
        printf("ok free\n");
    else
        printf("FAILED free: a free number could not be taken %d times\n", busy);
    return length == 4 && busy == 0 ? 0 : 1;
}
