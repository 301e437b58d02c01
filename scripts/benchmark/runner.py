"""Running: one program, one contestant, and what it took."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from .places import BENCH, own

RUN_SECONDS = 60
# heaptrack's helper grows with distinct (size, stack) pairs until the machine has no memory left: each of its
# processes may have so many MiB of address space.
HEAPTRACK_MIB = 6144


def clean_environment():
    """Of the user's variables none that any contestant reads."""
    return {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": BENCH,
        "GIT_CONFIG_NOSYSTEM": "1", "TMPDIR": tempfile.gettempdir(),
    }


class Runner:
    def __init__(self, work):
        self.work = work
        self.dead = {}
        self.runs = 0

    def run(self, contestant, argv, label, variables=(), repeat=1, keep=None, stdin=None):
        """Runs `repeat` times and returns the mean {cpu, wall (us), rss (KiB), out (bytes)}, or None: died, now or before.

        `keep` is called with the folder of output files before it is removed.
        """
        key = (contestant.name, label)
        if key in self.dead:
            return None
        self.runs += 1
        directory = os.path.join(self.work, f"run{self.runs}")
        os.mkdir(directory)
        report = os.path.join(self.work, "report")
        environment, wrapper = contestant.run(directory)
        environment += variables
        limit = HEAPTRACK_MIB if wrapper else 0
        measure = [own("measure"), report, str(repeat), str(RUN_SECONDS), str(limit), *environment, "--", *wrapper]
        if os.path.exists(report):
            os.unlink(report)
        try:
            if argv[0] == "redis":
                self.redis(measure, int(argv[1]), directory)
            else:
                subprocess.run(measure + argv, cwd=directory, env=clean_environment(), stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            with open(report) as file:
                status, cpu, wall, rss = (int(word) for word in file.read().split())
            if status != 0:
                raise RuntimeError("out of time" if status == 124 else f"exit status {status}")
            files = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names]
            result = {"cpu": cpu / repeat, "wall": wall / repeat, "rss": rss, "out": sum(map(os.path.getsize, files))}
            if keep:
                keep(directory, result)
            return result
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"\nbench: {contestant.name} died on {label}: {error}", file=sys.stderr)
            self.dead[key] = str(error)
            return None
        finally:
            # What many short runs left stays until the end: where files were just deleted, ext4 passes over their inodes one by
            # one, up to a fifth of a millisecond of the system time of whoever makes the next.
            if repeat == 1:
                shutil.rmtree(directory, ignore_errors=True)

    def redis(self, measure, requests, directory):
        """The server is measured; the client runs without any library."""
        socket = os.path.join(self.work, "redis.sock")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, "env": clean_environment()}
        server = subprocess.Popen(
            measure + ["/usr/bin/redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", directory],
            cwd=directory, **quiet)
        try:
            for _ in range(200):
                if os.path.exists(socket) or server.poll() is not None:
                    break
                time.sleep(0.01)
            subprocess.run(["/usr/bin/redis-benchmark", "-s", socket, "-n", str(requests), "-c", "20", "-P", "16", "-d", "100", "-r", "10000",
                            "-t", "set,get,lpush,lpop,hset", "-q"], timeout=RUN_SECONDS, check=True, **quiet)
            subprocess.run(["/usr/bin/redis-cli", "-s", socket, "shutdown", "nosave"], timeout=RUN_SECONDS, **quiet)
            server.wait(timeout=RUN_SECONDS)
        finally:
            # measure passes no signal on; its alarm ends a server that nobody could ask to go.
            server.wait()
            if os.path.exists(socket):
                os.unlink(socket)


_said = None


def progress(text):
    """What is being done now. To a file: a line for each round."""
    global _said
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr)
        return
    round_ = text.partition(":")[0]
    if round_ and round_ != _said:
        print(f"bench: {round_}", file=sys.stderr, flush=True)
    _said = round_
