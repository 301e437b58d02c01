"""stress-ng: a unit is a stressor, one instance for a second with `--verify`.

A stressor passes if stress-ng ends with 0 and reports no failure. It is skipped if the kernel or
the machine does not have what it needs.
"""

import os
import tempfile

from . import machine
from .process import run

TITLE = "stress-ng's stressors"
UNITS = "tests"
UNIT_IS_TEST = True
ALONE = False

STRESS_NG = "/usr/bin/stress-ng"
SECONDS = 1

# Memory, processes, threads, signals, filters of system calls, descriptors, and programs of many
# small blocks. Not here: stressors of devices, networks and processor instructions. Nor stressors
# that as root may change the machine (cpu-online, klog, opcode, procfs, reboot, swap, syscall,
# sysinval, umount), that fill its disk (fallocate, forkheavy, resources), or that share a port
# (sock, udp).
STRESSORS = """
malloc memcpy memfd memrate memthrash mergesort qsort heapsort radixsort shellsort bsearch hsearch lsearch tsearch tree skiplist
judy list str wcs zlib hash sparsematrix matrix-3d randlist fp
mmap mmapaddr mmapfixed mmapfork mmapmany mremap munmap madvise mprotect mincore mlock mlockmany msync msyncmany remap pkey
brk bigheap stack stackmmap vm vm-addr vm-rw vm-segv vm-splice userfaultfd shm shm-sysv tlb-shootdown bad-altstack secretmem
fork vfork vforkmany clone spawn exec exit-group daemon zombie wait session rmap kill
pthread mutex sem sem-sysv futex context switch membarrier rseq race-sched schedpolicy affinity longjmp funccall funcret
signal sigabrt sigchld sigfd sigfpe sigio signest sigpending sigpipe sigq sigrt sigsegv sigsuspend sigtrap alarm itimer timer
timerfd hrtimers nanosleep
seccomp usersyscall enosys sysbadaddr personality chroot unshare landlock ptrace pidfd kcmp get set env
dynlib vdso getrandom priv-instr fault
aio aiol io-uring epoll poll eventfd inotify fanotify pipe ring-pipe fifo sockpair sockfd sendfile splice tee dup close
fcntl open pty mq msg key
""".split()


def install():
    machine.install({"stress-ng": STRESS_NG})


def units():
    return STRESSORS if os.path.exists(STRESS_NG) else []


def run_unit(stressor, variables, timeout):
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(f"{folder}/logs")
        os.mkdir(f"{folder}/tmp")
        environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", "HEAPPROFILE": f"{folder}/logs/p", **variables}
        command = [STRESS_NG, f"--{stressor}", "1", "--verify", "--timeout", str(SECONDS), "--temp-path", f"{folder}/tmp", "--metrics"]
        # 3: no resources; 4: not on this machine.
        ended = run(command, folder, environment, timeout, {2: "failed", 3: "skipped", 4: "skipped"})
    return {stressor: verdict_of(ended)}


def verdict_of(ended):
    if "will be skipped" in ended.output or "No stress workers invoked" in ended.output or "skipped stressor" in ended.output:
        return "skipped"
    return "failed" if ended.verdict == "passed" and "stress-ng: fail:" in ended.output else ended.verdict
