"""The parts of a measurement. Each takes the runner and the options, and adds to the results."""

import glob
import os
import re
import shutil
import subprocess
import time

from .contestants import BY_NAME, Contestant
from .goals import single_goals
from .logs import info_numbers, log_keeper
from .places import HEAPPROF, OURS, own
from .runner import clean_environment, progress


# The part "sampling": all workloads, contestants that sample, and the allocators alone.

def part_sampling(runner, options, results):
    contestants = [c for c in options.contestants if not c.exact]
    rounds = results["sampling"] = {workload.name: [] for workload in options.workloads}
    for round_ in range(max(options.rounds, options.most_rounds)):
        for workload in options.workloads:
            if round_ < options.rounds:
                goes_on = [c for c in contestants if c.takes_part(round_)]
            else:
                undecided = undecided_goals(rounds[workload.name], workload.kind == "real")
                if not undecided:
                    continue
                goes_on = [c for c in contestants if c.name in {"ours-512K", *undecided}]
            last = options.rounds if round_ < options.rounds else f"at most {options.most_rounds}"
            progress(f"sampling, round {round_ + 1} of {last}: {workload.name}")
            keepers = {}
            if round_ == 0:
                keepers["ours-512K"] = log_keeper(results.setdefault("sampled_logs", {}).setdefault(workload.name, {}))
            rounds[workload.name].append(one_round(runner, workload, goes_on, keepers))
        if round_ < options.rounds:
            options.between()


def one_round(runner, workload, contestants, keepers):
    if workload.kind == "real":
        return mirrored(runner, workload, contestants, keepers)
    run = lambda *together: runner.side_by_side(together, workload.argv(workload.n), workload.name, workload.variables, keepers=keepers,
                                                one_processor=workload.threads == 1)
    closest, ours, peers = ([c for c in contestants if c.group == group] for group in ("closest", "ours", "peers"))
    got = run(*closest)
    reference = got.get("je")
    if ours and reference:
        # Beside our jemalloc once more, whose two runs relate the two groups.
        again = run(BY_NAME["je"], *ours)
        for contestant in ours if again["je"] else []:
            result = again[contestant.name]
            if result:
                result.update((what, result[what] * reference[what] / again["je"][what]) for what in ("cpu", "wall"))
            got[contestant.name] = result
    got.update(run(*peers))
    return got


def mirrored(runner, workload, contestants, keepers):
    """Runs contestants one after the other, those that are compared closely twice and mirrored, so
    that a drift of the machine cancels out. This is for real programs: side by side, what is done
    by the clock would be done as many times as often as there are contestants. And the client of a
    server cannot take turns."""
    closest = [c for c in contestants if c.base == "je" or c.name == "glibc"]
    order = closest + closest[::-1] + [c for c in contestants if c not in closest]
    run = lambda contestant, keep=None: runner.run(contestant, workload.argv(workload.n), workload.name, workload.variables, keep=keep)
    # The first run finds caches and clock as another program left them. It does not count.
    run(order[0])
    got = {}
    for contestant in order:
        name = contestant.name
        result = run(contestant, keepers.get(name) if name not in got else None)
        if result and got.get(name):
            result = {key: (result[key] + got[name][key]) / 2 for key in result}
        got[name] = result
    return got


def undecided_goals(rounds, is_real):
    """Returns the contestants besides heapprof at 512 KiB that need more rounds: a goal for single
    workloads is nearer to its limit than two standard errors, so it is undecided."""
    near = [single for single in single_goals(rounds, is_real) if single.error is not None and abs(single.excess) < 2 * single.error]
    return set().union(*(single.bases for single in near))


# The part "exact": all workloads, fewer operations, contestants that record every allocation.

def part_exact(runner, options, results):
    exact = [c for c in options.contestants if c.exact]
    bases = [BY_NAME[name] for name in dict.fromkeys(c.base for c in exact)]
    # Factors, not per cents: fewer rounds will do.
    for round_ in range(1 if options.quick else min(options.rounds, 3)):
        for workload in options.workloads:
            progress(f"exact, round {round_ + 1}: {workload.name}")
            got = {}
            for contestant in bases + exact:
                keep = None
                if contestant.name == "ours-1" and round_ == 0:
                    keep = log_keeper(results.setdefault("exact_logs", {}).setdefault(workload.name, {}))
                got[contestant.name] = runner.run(contestant, workload.argv(workload.exact_n), "exact: " + workload.name,
                                                  workload.variables, keep=keep)
            results.setdefault("exact", {}).setdefault(workload.name, []).append(got)


# The part "pairs": nanoseconds that recording adds to a malloc+free pair.

# Name, program and its arguments after N, threads, pairs for share 1, and whether --quick has it
# (in the last one heaptrack takes a quarter of a minute to die).
PAIRS = [
    ("depth 1", ["pair", "%N", "0", "1"], 1, 600_000, True),
    ("depth 10", ["pair", "%N", "0", "10"], 1, 600_000, True),
    ("depth 40", ["pair", "%N", "0", "40"], 1, 500_000, True),
    ("depth 10, 1000 stacks", ["pair", "%N", "0", "10", "1000"], 1, 400_000, False),
    ("depth 40, 1000 stacks", ["pair", "%N", "0", "40", "1000"], 1, 300_000, True),
    ("depth 40, 1000 stacks through 8192 functions", ["cold", "%N", "40"], 1, 120_000, False),
    ("2 threads, depth 1", ["pair", "%N", "0", "1", "1", "2"], 2, 300_000, True),
    ("2 threads, depth 10", ["pair", "%N", "0", "10", "1", "2"], 2, 300_000, True),
    ("2 threads, depth 40", ["pair", "%N", "0", "40", "1", "2"], 2, 250_000, True),
    ("2 threads, depth 40, 1000 stacks", ["pair", "%N", "0", "40", "1000", "2"], 2, 150_000, False),
]
# Allocators alone need more pairs for the same precision.
BASE_SHARE = 4


def part_pairs(runner, options, results):
    exact = [c for c in options.contestants if c.exact]
    bases = [BY_NAME[name] for name in dict.fromkeys(c.base for c in exact)]
    for round_ in range(options.rounds):
        for name, command, threads, pairs, is_quick in PAIRS:
            if options.quick and not is_quick:
                continue
            progress(f"pairs, round {round_ + 1} of {options.rounds}: {name}")
            got = {}
            for contestant in bases + exact:
                if not contestant.takes_part(round_):
                    continue
                n = int(pairs * (contestant.share if contestant.exact else BASE_SHARE))
                few = n // 5
                run = lambda count, keep=None: runner.run(
                    contestant, [own(command[0])] + [word.replace("%N", str(count)) for word in command[1:]], "pairs: " + name, keep=keep)
                keep = None
                if contestant.name == "ours-1" and round_ == 0:
                    keep = log_keeper(results.setdefault("pair_logs", {}).setdefault(name, {"pairs": n * threads}))
                long, short = run(n, keep), run(few)
                if long and short:
                    # The difference of two runs: it is without start and end, which cost the same
                    # in both.
                    each = lambda what: (long[what] - short[what]) * 1000 / ((n - few) * threads)
                    got[contestant.name] = {"cpu": each("cpu"), "wall": each("wall") * threads, "rss": long["rss"], "out": long["out"] / (n * threads),
                                            "long": long["cpu"], "short": short["cpu"], "pairs": (n - few) * threads}
                else:
                    got[contestant.name] = None
            results.setdefault("pairs", {}).setdefault(name, []).append(got)


def part_start(runner, options, results):
    """A program that does nothing, many times."""
    for round_ in range(options.rounds if options.quick else max(options.rounds, 10)):
        progress(f"start-up, round {round_ + 1}")
        plain = [c for c in options.contestants if not c.wrapper]
        got = runner.side_by_side(plain, ["/bin/true"], "start", repeat=20, one_processor=True)
        got.update((c.name, runner.run(c, ["/bin/true"], "start", repeat=3)) for c in options.contestants if c.wrapper)
        results.setdefault("start", []).append(got)


def part_idle(runner, options, results):
    """How often the library's thread wakes up in a process that does nothing."""
    fixture = own("idle")
    results["idle"] = {}
    for label, interval in (("nothing sampled", 1 << 40), ("every allocation recorded, then idle", 1)):
        progress(f"idle: {label}")
        environment = dict(clean_environment(), LD_PRELOAD=OURS, HEAPPROF_SAMPLE_INTERVAL=str(interval))
        directory = os.path.join(runner.work, "idle")
        os.makedirs(directory, exist_ok=True)
        process = subprocess.Popen([fixture, "4"], env=environment, cwd=directory, stdout=subprocess.DEVNULL)
        # The first second belongs to what happened before.
        time.sleep(1)
        before = switches(process.pid)
        time.sleep(2)
        after = switches(process.pid)
        process.wait()
        results["idle"][label] = {"threads": len(after), "first_second": sum(before.values()),
                                  "wakeups": sum(after.values()) - sum(before.values()), "seconds": 2}
        shutil.rmtree(directory)


def switches(pid):
    """Voluntary context switches of each thread but the main one."""
    counts = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        if int(task) != pid:
            with open(f"/proc/{pid}/task/{task}/status") as file:
                counts[task] = int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", file.read())[1])
    return counts


def part_replay(runner, options, results):
    """Measures how fast the offline program reads a log, and in how much memory. There are more
    looks between rounds and parts."""
    for _ in range(2):
        look_at_replay(runner, options, results)


def look_at_replay(runner, options, results):
    """Reads a short and a long log some times. The fastest of all looks counts: other work of the
    machine only makes a look slower."""
    looks = results.setdefault("replay", [])
    for place, pairs in enumerate([400_000, 2_000_000] if options.quick else [1_000_000, 5_000_000]):
        progress(f"replay of {pairs} pairs")
        log = os.path.join(runner.work, f"replay-{pairs}.heaplog")
        if not os.path.exists(log):
            keep = lambda directory, result: shutil.copy(*glob.glob(directory + "/*.heaplog"), log)
            runner.run(BY_NAME["ours-1"], [own("pair"), str(pairs), "0", "10", "1000"], "replay's log", keep=keep)
        plain = Contestant("heapprof top", None)
        run = lambda *words: runner.side_by_side([plain], [HEAPPROF, *words], "replay", one_processor=True)[plain.name]
        reads, empty = [run("top", log) for _ in range(5)], [run("--version") for _ in range(2)]
        if not (all(reads) and all(empty)):
            continue
        if place == len(looks):
            numbers = info_numbers(log)
            events = numbers["samples"] + numbers["frees"]
            looks.append({"events": events, "lost": numbers["lost"], "bytes": os.path.getsize(log), "reads": [], "empty": []})
        got = looks[place]
        got["reads"] += [read["cpu"] for read in reads]
        got["empty"] += [read["cpu"] for read in empty]
        got.update(cpu=min(got["reads"]) - min(got["empty"]), rss=max(got.get("rss", 0), *(read["rss"] for read in reads)))


PARTS = {"sampling": part_sampling, "exact": part_exact, "pairs": part_pairs, "start": part_start, "idle": part_idle, "replay": part_replay}
