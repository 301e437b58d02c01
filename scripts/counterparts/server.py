"""Server: a running `heapprof serve`, and the profiled programs whose logs it follows."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

from .environment import HEAPPROF, LIBRARY, check

# A program with known numbers. Its arguments: blocks a millisecond that are allocated and freed
# later; MiB that are kept. On SIGUSR1 it allocates a burst of blocks, which are kept.
SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t bursts;
static void *kept[100000];
static int used;

static void on_signal(int number) { (void)number; bursts++; }

__attribute__((noinline)) void *keep_page(void) { return memset(malloc(1000), 1, 1000); }
__attribute__((noinline)) void *keep_burst(void) { return memset(malloc(777), 1, 777); }
__attribute__((noinline)) void *churn(size_t size) { return memset(malloc(size), 1, size); }

int main(int argc, char **argv)
{
    int blocks = argc > 1 ? atoi(argv[1]) : 0, mib = argc > 2 ? atoi(argv[2]) : 0;
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 100; i++)
        kept[used++] = keep_page();
    for (int i = 0; i < mib * 16; i++)
        kept[used++] = churn(65536);
    static void *ring[4096];
    unsigned at = 0, seed = 1;
    for (;;) {
        for (; bursts > 0; bursts--)
            for (int i = 0; i < 50; i++)
                kept[used++] = keep_burst();
        for (int i = 0; i < blocks; i++) {
            seed = seed * 1103515245 + 12345;
            void **slot = &ring[at++ % 4096];
            free(*slot);
            *slot = churn(16 + (seed >> 16) % 4000);
        }
        struct timespec time = {0, 1000000};
        nanosleep(&time, NULL);
    }
}
"""


class Programs:
    """Profiled programs in a folder."""

    def __init__(self, folder):
        self.folder = folder
        self.logs = os.path.join(folder, "logs")
        self.running = []
        os.mkdir(self.logs)
        source = os.path.join(folder, "worker.c")
        with open(source, "w") as file:
            file.write(SOURCE)
        self.program = os.path.join(folder, "worker")
        subprocess.run(["gcc", "-g", "-O1", "-o", self.program, source], check=True)

    def start(self, *arguments, interval=524288):
        environment = dict(os.environ, LD_PRELOAD=LIBRARY, HEAPPROFILE=self.logs + "/",
                           HEAPPROF_SAMPLE_INTERVAL=str(interval), HEAPPROF_CONTROL="1",
                           HEAP_PROFILE_ALLOCATION_INTERVAL="0", HEAP_PROFILE_INUSE_INTERVAL="0")
        program = subprocess.Popen([self.program, *map(str, arguments)], env=environment)
        self.running.append(program)
        return program

    def end(self, program):
        program.terminate()
        program.wait()
        self.running.remove(program)

    def end_all(self):
        for program in list(self.running):
            self.end(program)


class Server:
    """`heapprof serve`, on a port that is free."""

    TOKEN = "token-of-serve-counterparts"

    def __init__(self, *sources):
        environment = dict(os.environ, HEAPPROF_SERVE_TOKEN=self.TOKEN)
        self.process = subprocess.Popen([HEAPPROF, "serve", "--listen", "127.0.0.1:0", *sources],
                                        stderr=subprocess.PIPE, text=True, env=environment)
        said = self.process.stderr.readline()
        found = re.search(r"http://([0-9.:]+)/", said)
        check(found, f"no address: {said}")
        self.address = found[1]
        self.url = "http://" + self.address

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read()

    def processes(self):
        return json.loads(self.get("/processes"))["processes"]

    def until(self, what, is_so, seconds=30):
        until = time.time() + seconds
        while True:
            processes = self.processes()
            if is_so(processes):
                return processes
            check(time.time() < until, f"waited in vain: {what}: {processes}")
            time.sleep(0.2)

    def running(self, number):
        """Waits until so many processes run and have blocks in use."""
        is_running = lambda it: it["state"] == "running" and it["in_use_bytes"] > 0  # noqa: E731
        return self.until(f"{number} running", lambda all: sum(map(is_running, all)) == number)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, field="VmRSS"):
        """Returns bytes, of a field of /proc/PID/status."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(rf"^{field}:\s+(\d+) kB", file.read(), re.MULTILINE)[1]) * 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(timeout=20) == 0, "serve did not end cleanly")
        self.process.stderr.close()


class World:
    """A folder with programs and a server on their logs; all end with it."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.programs = Programs(self.folder.name)
        self.server = None
        return self

    def serve(self, *sources):
        self.server = Server(*(sources or [self.programs.logs]))
        return self.server

    def __exit__(self, kind, *_):
        self.programs.end_all()
        if self.server:
            if kind:
                self.server.process.kill()
            else:
                self.server.end()
        self.folder.cleanup()
