/* Situation: a process is killed after it has made a segment of System V shared memory, and before
 * it has marked the segment for removal. A filter of system calls that it has from its parent
 * stands for the killer.
 * A correct profiler leaves nothing for good: the next profiled process removes what is left over.
 * If it is wrong: each such process leaves a segment. The kernel has few, and in the end no process
 * of the machine gets one.
 *
 *   killed_at_removal LIBRARY PROGRAM [ARGS]     starts PROGRAM with LIBRARY, behind the filter
 */
#include "frames.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPC_RMID, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 3 || setenv("LD_PRELOAD", argv[1], 1) != 0)
        return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("killed_at_removal");
        return 2;
    }
    execv(argv[2], argv + 2);
    return 2;
}
