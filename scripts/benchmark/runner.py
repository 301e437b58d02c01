"""A run: one program, under one contestant or several, and its costs."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from .places import BENCH, own

RUN_SECONDS = 60
# The MiB of address space for each process of heaptrack. Its helper grows with distinct (size,
# stack) pairs until the machine has no memory left.
HEAPTRACK_MIB = 6144


def clean_environment():
    """Returns an environment without the user's variables that a contestant reads."""
    return {
        "PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": BENCH,
        "GIT_CONFIG_NOSYSTEM": "1", "TMPDIR": tempfile.gettempdir(),
    }


class Runner:
    def __init__(self, work):
        self.work = work
        self.socket = os.path.join(work, "redis.sock")
        self.dead = {}
        self.runs = 0

    def run(self, contestant, argv, label, variables=(), repeat=1, keep=None):
        """Runs `repeat` times and returns the mean {cpu, wall (us), rss (KiB), out (bytes)}. None:
        it died, now or before.

        `keep` is called with the folder of output files before it is removed.
        """
        keepers = {contestant.name: keep} if keep else {}
        return self.side_by_side([contestant], argv, label, variables, repeat, keepers)[contestant.name]

    def side_by_side(self, contestants, argv, label, variables=(), repeat=1, keepers={}, one_processor=False):
        """Runs several contestants, which take turns, and returns the same for each name. On one
        processor if asked for. See measure.c."""
        results = {contestant.name: None for contestant in contestants}
        running = [contestant for contestant in contestants if (contestant.name, label) not in self.dead]
        if not running:
            return results
        report = os.path.join(self.work, "report")
        measure, directories = [own("measure"), report, str(repeat), str(RUN_SECONDS), "one" if one_processor else "all"], []
        for contestant in running:
            self.runs += 1
            directory = os.path.join(self.work, f"run{self.runs}")
            os.mkdir(directory)
            environment, wrapper = contestant.run(directory)
            limit = HEAPTRACK_MIB if wrapper else 0
            measure += [":::"] * bool(directories) + [str(limit), directory, *environment, *variables, "--", *wrapper]
            measure += argv if argv[0] != "redis" else self.redis_server(directory)
            directories.append(directory)
        if os.path.exists(report):
            os.unlink(report)
        try:
            if argv[0] == "redis":
                self.redis(measure, int(argv[1]))
            else:
                subprocess.run(measure, env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, check=True)
            with open(report) as file:
                lines = [[int(word) for word in line.split()] for line in file]
            for contestant, directory, (status, cpu, wall, rss) in zip(running, directories, lines, strict=True):
                if status != 0:
                    self.died(contestant, label, "out of time" if status == 124 else f"exit status {status}")
                    continue
                files = [os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names]
                result = {"cpu": cpu / repeat, "wall": wall / repeat, "rss": rss, "out": sum(map(os.path.getsize, files))}
                if contestant.name in keepers:
                    keepers[contestant.name](directory, result)
                results[contestant.name] = result
        except (OSError, subprocess.SubprocessError) as error:
            for contestant in running:
                self.died(contestant, label, error)
        finally:
            # Files of many short runs stay until the end. Behind deleted files, ext4 passes over
            # their inodes one by one, up to a fifth of a millisecond of the next run's system time.
            if repeat == 1:
                for directory in directories:
                    shutil.rmtree(directory, ignore_errors=True)
        return results

    def died(self, contestant, label, how):
        print(f"\nbench: {contestant.name} died on {label}: {how}", file=sys.stderr)
        self.dead[(contestant.name, label)] = str(how)

    def redis_server(self, directory):
        return ["/usr/bin/redis-server", "--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no", "--dir", directory]

    def redis(self, measure, requests):
        """The server is measured; the client runs without any library."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL, "env": clean_environment()}
        server = subprocess.Popen(measure, **quiet)
        try:
            for _ in range(200):
                if os.path.exists(self.socket) or server.poll() is not None:
                    break
                time.sleep(0.01)
            subprocess.run(["/usr/bin/redis-benchmark", "-s", self.socket, "-n", str(requests), "-c", "20", "-P", "16", "-d", "100", "-r", "10000",
                            "-t", "set,get,lpush,lpop,hset", "-q"], timeout=RUN_SECONDS, check=True, **quiet)
            subprocess.run(["/usr/bin/redis-cli", "-s", self.socket, "shutdown", "nosave"], timeout=RUN_SECONDS, **quiet)
            server.wait(timeout=RUN_SECONDS)
        finally:
            # measure passes no signal on; its limit ends a server that did not shut down.
            server.wait()
            if os.path.exists(self.socket):
                os.unlink(self.socket)


_said = None


def progress(text):
    """Says what is being done now. To a file: a line for each round."""
    global _said
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr)
        return
    round_ = text.partition(":")[0]
    if round_ and round_ != _said:
        print(f"bench: {round_}", file=sys.stderr, flush=True)
    _said = round_
