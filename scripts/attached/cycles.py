"""Cycles: attach to a program, record it for a moment, detach; again and again, under load."""

import json
import os
import random
import re
import statistics
import subprocess
import threading
import time

from attached.machine import HEAPPROF, size

# Cycles before the first look at memory: the library is loaded, and buffers have grown.
WARM = 5
CLIENTS = 4
LIMIT = 60


class Clients:
    """Threads that ask a program, and check its answers."""

    def __init__(self, program):
        self.answers = self.wrong = 0
        self.first = None
        self.lock = threading.Lock()
        self.is_over = False
        self.threads = [threading.Thread(target=self.ask, args=(program, number)) for number in range(program.clients or CLIENTS)]
        for thread in self.threads:
            thread.start()

    def ask(self, program, number):
        randoms, client = random.Random(number), None
        while not self.is_over:
            try:
                client = client or program.client()
                told = client(randoms.randrange(50_000))
            except Exception as error:  # a client that fails is a finding, whatever it is
                told, client = f"{type(error).__name__}: {error}", None
            if self.is_over:
                break
            with self.lock:
                if told is True:
                    self.answers += 1
                else:
                    self.wrong += 1
                    self.first = self.first or told
            if told is not True:
                time.sleep(0.1)
            elif program.pause:
                time.sleep(program.pause)

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()


def heapprof(*words):
    return subprocess.run([HEAPPROF, *map(str, words)], capture_output=True, text=True, timeout=LIMIT)


def milliseconds(words, text):
    return [float(number) for number in re.findall(words + r" ([0-9.]+) ms", text)]


def one(pid, number, prefix, seconds):
    """One cycle. Returns what heapprof said, or raises."""
    interval = 1 if number % 10 == 9 else 524288
    begin = ["attach", pid, "-i", interval, "-o", prefix]
    if number % 2 == 0:
        done = [heapprof(*begin, "--for", f"{seconds}s")]
    else:
        done = [heapprof(*begin, "--leave")]
        if done[0].returncode == 0:
            time.sleep(seconds)
            done.append(heapprof("detach", pid))
    said = "".join(it.stderr for it in done)
    if any(it.returncode for it in done):
        raise RuntimeError(said.strip())
    return said


def complete(log):
    """Returns the fault of a log; None: it is complete."""
    done = heapprof("info", "--json", log)
    if done.returncode != 0:
        return done.stderr.strip()
    run = json.loads(done.stdout)["run"]
    return None if run["attached"] and run["ended"] == "heapprof was detached, and the process went on" else f"it ends so: {run['ended']}"


def measure(kind, folder, cycles, seconds):
    """Attaches to a program that often. Returns the row of the table, and what failed."""
    program, failures, said = kind(folder), [], ""
    program.start()
    pid = program.pid()
    clients = Clients(program)
    before = None
    try:
        time.sleep(1)
        for number in range(cycles):
            prefix = os.path.join(folder, f"log{number}")
            try:
                said += one(pid, number, prefix, seconds)
                why = complete(f"{prefix}.heaplog")
                if why:
                    failures.append(f"cycle {number}: {why}")
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failures.append(f"cycle {number}: {error}")
            if not os.path.exists(f"/proc/{pid}/fd"):
                failures.append(f"cycle {number}: the program has ended")
                break
            for name in os.listdir(folder):
                if name.endswith(".heaplog"):
                    os.unlink(os.path.join(folder, name))
            if number + 1 == min(WARM, cycles):
                before = size(pid)
        after = size(pid) if os.path.exists(f"/proc/{pid}/fd") else None
    finally:
        clients.end()
        program.stop()
    if clients.wrong:
        failures.append(f"{clients.wrong} wrong answers; the first: {clients.first}")
    if not clients.answers:
        failures.append("no answers")
    if before and after:
        for what, was, now, more in zip(("descriptors", "threads", "KiB"), before, after, (program.more_descriptors, program.more_threads, program.more_kib)):
            if now > was + more:
                failures.append(f"{now} {what} instead of {was}")
    borrowed = milliseconds("before for", said)
    ends = milliseconds("detached from process [0-9]+; its threads were stopped for", said)
    begins = [float(number) for number in re.findall(r"threads were stopped for ([0-9.]+) ms, and one", said)]
    threads = re.findall(r"its ([0-9]+) threads", said)
    both = lambda numbers: f"{statistics.median(numbers):.1f} ms (most {max(numbers):.1f})" if numbers else "-"
    resident = f"{before[2]:,} → {after[2]:,}" if before and after else "-"
    return [cycles, f"{clients.answers:,}", clients.wrong, threads[-1] if threads else "-", both(begins), both(ends), both(borrowed), resident], failures
