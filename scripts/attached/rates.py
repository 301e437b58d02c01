"""Requests: how many redis answers in a second while heapprof is attached, and otherwise."""

import os
import statistics
import subprocess
import tempfile

from attached.cycles import heapprof
from attached.programs import PROGRAMS

REQUESTS = 200_000


def rate(socket):
    """Requests a second: SET and GET by 50 clients, the geometric mean."""
    done = subprocess.run(["redis-benchmark", "-s", socket, "-n", str(REQUESTS), "-c", "50", "-t", "set,get", "--csv", "-r", "10000", "-d", "200"],
                          capture_output=True, text=True, check=True)
    rates = [float(line.split(",")[1].strip('"')) for line in done.stdout.splitlines() if not line.startswith('"test"')]
    return statistics.geometric_mean(rates)


def compare(rounds):
    """Prints the rates and their ratios. Returns what failed."""
    with tempfile.TemporaryDirectory(prefix="heapprof-attached-") as folder:
        os.chmod(folder, 0o777)
        redis = PROGRAMS["redis"](folder)
        redis.start()
        pairs, failures = [], []
        try:
            rate(redis.socket)
            for number in range(rounds):
                rates = {}
                # The order changes from round to round.
                for is_attached in ((True, False) if number % 2 else (False, True)):
                    if is_attached and heapprof("attach", redis.pid(), "--leave", "-o", os.path.join(folder, f"rate{number}")).returncode != 0:
                        failures.append("redis cannot be attached to")
                        break
                    rates[is_attached] = rate(redis.socket)
                    if is_attached:
                        heapprof("detach", redis.pid())
                if len(rates) == 2:
                    pairs.append((rates[False], rates[True]))
        finally:
            redis.stop()
    if pairs:
        ratios = sorted(attached / alone for alone, attached in pairs)
        alone, attached = (statistics.median(side) for side in zip(*pairs))
        print(f"redis, {len(pairs)} pairs in turns: {alone:,.0f} requests a second alone, {attached:,.0f} attached; "
              f"ratio {statistics.median(ratios):.3f} (from {ratios[0]:.3f} to {ratios[-1]:.3f})")
    return failures
