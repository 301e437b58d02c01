"""Logs of a run: their size and their contents."""

import glob
import os
import re
import subprocess

from .places import HEAPPROF


def info_numbers(path):
    """Returns the samples, frees and losses that `heapprof info` prints for a log."""
    text = subprocess.run([HEAPPROF, "info", path], capture_output=True, text=True, timeout=120).stdout
    number = lambda pattern: int((re.search(r"([\d,]+)\s+" + pattern, text) or [None, "0"])[1].replace(",", ""))
    section = text.split("Samples and losses", 1)[-1].split("\n\n", 1)[0]
    lines = [line.strip() for line in section.splitlines()]
    lost = [line for line in lines if re.search(r"lost|dropped|missing", line) and "nothing was lost" not in line]
    return {"samples": number("allocations sampled"), "frees": number("frees of sampled blocks"), "lost": lost}


def bytes_once(path):
    """Returns the bytes of records whose number does not depend on that of samples: the start,
    modules, threads, counters, the end. The rest is samples, their stacks, and frames. The format
    is described in format/src/log.rs."""
    with open(path, "rb") as file:
        log = file.read()

    def number(at):
        value = shift = 0
        while True:
            byte = log[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value, at

    samples, once, at = {0, 1}, 0, 8  # kinds of records: the interval in force, stacks
    while at < len(log):
        end = at + 16 + int.from_bytes(log[at + 4:at + 8], "little")
        _, at = number(at + 16)
        while at < end:
            begin, tag = at, log[at]
            at += 1
            if tag & 3 == 3:
                length, at = number(at)
                at += length
                once += at - begin if tag >> 2 not in samples else 0
                continue
            if tag & 3 == 2:
                at += 5
                continue
            if tag & 4:
                _, at = number(at)
            for _ in range((tag >> 3 == 31) + (4 if tag & 3 == 0 else 1)):
                _, at = number(at)
    return once


def log_keeper(into):
    """Returns a function that puts size and contents of a run's logs `into` a dictionary."""
    def keep(directory, result):
        logs = glob.glob(directory + "/*.heaplog")
        numbers = [info_numbers(log) for log in logs]
        into.update(
            bytes=sum(map(os.path.getsize, logs)), once=sum(map(bytes_once, logs)), samples=sum(n["samples"] for n in numbers),
            frees=sum(n["frees"] for n in numbers), lost=[line for n in numbers for line in n["lost"]],
        )
    return keep
