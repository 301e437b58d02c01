"""The goals, and what was measured of each."""

import math

from .markdown import show
from .ratios import added, fastest_added, fastest_start, geometric_mean, more_resident, ratio, standard_error, start_values

# A contestant, its base, a title, the limit of the geometric mean of the ratios of CPU time.
MEAN_GOALS = [
    ("ours-512K", "je", "512 KiB against the same jemalloc", 1.00),
    ("ours-4K", "je", "4 KiB against the same jemalloc", 1.15),
    ("ours-512K", "glibc", "512 KiB against glibc", 0.85),
]
# The limit of the ratio of CPU time of one workload, against jemalloc and against glibc.
WORST = 1.03
# An own workload in which jemalloc without hooks takes longer than glibc may take as much longer as
# jemalloc does, plus this.
BESIDE_JEMALLOC = 0.03
# The limit of what recording every allocation costs, as a part of what it costs heaptrack.
OF_HEAPTRACK = 0.25

NO_WORKLOAD = f"512 KiB against the same jemalloc, no workload above {WORST:.2f}"
NO_REAL_PROGRAM = f"512 KiB against glibc, no real program above {WORST:.2f}"
NO_OWN_WORKLOAD = (f"512 KiB against glibc, no own workload above {WORST:.2f}"
                   f" or, if that is more, what jemalloc without hooks takes + {BESIDE_JEMALLOC:.2f}")


class SingleGoal:
    """A goal that holds for each single workload: the ratio of heapprof at 512 KiB to a base has a
    limit. `limit_error` is the standard error of the limit, if the limit is measured, too. `bases`
    are the contestants whose further rounds make the error of the comparison smaller."""

    def __init__(self, title, rounds, base, limit=WORST, limit_error=0.0, bases=()):
        self.title, self.limit, self.bases = title, limit, {base, *bases}
        # None: not measured.
        self.ratio = ratio(rounds, "ours-512K", base)
        error = standard_error(rounds, "ours-512K", base)
        # None: too few rounds.
        self.error = None if error is None else math.hypot(error, limit_error)

    @property
    def excess(self):
        """How far the ratio is above its limit. Not above zero: the goal is met."""
        return self.ratio - self.limit

    @property
    def allowed(self):
        """The limit in words, if it is another one than the title's."""
        return "" if self.limit == WORST else f", {self.limit:.3f} allowed"


def single_goals(rounds, is_real):
    """The goals of one workload; `is_real`: of a real program, not of a loop of ours."""
    yield SingleGoal(NO_WORKLOAD, rounds, "je")
    if is_real:
        yield SingleGoal(NO_REAL_PROGRAM, rounds, "glibc")
        return
    jemalloc = ratio(rounds, "je", "glibc")
    if jemalloc is None or jemalloc + BESIDE_JEMALLOC <= WORST:
        yield SingleGoal(NO_OWN_WORKLOAD, rounds, "glibc")
    else:
        error = standard_error(rounds, "je", "glibc") or 0.0
        yield SingleGoal(NO_OWN_WORKLOAD, rounds, "glibc", jemalloc + BESIDE_JEMALLOC, error, ["je"])


def measured_singles(data, real):
    """For each title of a goal for single workloads: by workload, what was measured of it."""
    singles = {}
    for workload, rounds in data.items():
        for single in single_goals(rounds, workload in real):
            if single.ratio is not None:
                singles.setdefault(single.title, {})[workload] = single
    return singles


def goals(results):
    """For each goal: its title, what was measured, and True if it is met, False if it is not, None
    if it was not measured."""
    def goal(name, value, limit, form="{:.3f}", detail=""):
        if value is None:
            return name, "not measured", None
        return name, form.format(value) + (f" ({detail})" if detail else ""), value <= limit

    if results.get("sampling"):
        data = results["sampling"]
        for name, base, title, limit in MEAN_GOALS:
            mean = geometric_mean(ratio(rounds, name, base) for rounds in data.values())
            yield goal(f"{title}, geometric mean <= {limit:.2f}", mean, limit)
        for title, each in measured_singles(data, results["real"]).items():
            worst = max(each, key=lambda workload: each[workload].excess)
            beyond = [f"{workload} {single.ratio:.3f}" + show(single.error, " ± {:.3f}", "") + single.allowed
                      for workload, single in each.items() if single.excess > 0]
            yield title, f"{each[worst].ratio:.3f} ({'; '.join(beyond) or worst + each[worst].allowed})", not beyond
        tight = next((ratio(rounds, "ours-512K", "je") for workload, rounds in data.items() if workload.startswith("pair, 64 bytes")), None)
        yield goal("512 KiB, malloc+free pair in a loop <= 1.05", tight, 1.05)
        over = {}
        for workload, rounds in data.items():
            more = more_resident(rounds, "ours-512K", "je", 1.01)
            if more is not None:
                over[workload] = more / 1024
        if over:
            worst = max(over, key=over.get)
            yield goal("peak RSS at 512 KiB <= jemalloc's + 6 MiB + 1 %", over[worst], 6, "{:.1f} MiB above jemalloc's + 1 %", worst)
    if results.get("pairs"):
        pairs = {case: (fastest_added(results, "ours-1", case), added(results, "ours-1", case)) for case in results["pairs"]}

        def absolute(case, limit):
            fastest, median = pairs.get(case, (None, None))
            return goal(f"every allocation, {case}: <= {limit} ns", fastest, limit, "{:.0f} ns", show(median, "median {:.0f} ns"))

        def walk(title, limit, far, near, frames, what):
            """The goal of a walk: nanoseconds a frame, from a deep and a shallow chain of calls."""
            ends = zip(pairs.get(far, (None, None)), pairs.get(near, (None, None)), strict=True)
            each = [(deep - shallow) / frames if deep and shallow else None for deep, shallow in ends]
            return goal(title, each[0], limit, "{:.1f} ns", f"{what}; median {show(each[1], '{:.1f} ns')}")

        for case in [case for case in results["pairs"] if "1000" not in case]:
            # Slopes are without heaptrack's start-up, so this is the harder comparison.
            ours, theirs = added(results, "ours-1", case), added(results, "heaptrack", case)
            yield absolute(case, {"1": 240, "10": 270, "40": 360}[case.rsplit(" ", 1)[1]])
            if ours is not None and theirs:
                yield goal(f"every allocation, {case}: <= {OF_HEAPTRACK:.2f} of heaptrack's here", ours / theirs, OF_HEAPTRACK, "{:.2f}",
                           f"{ours:.0f} ns of {theirs:.0f} ns")
        for case in ("depth 40, 1000 stacks", "2 threads, depth 40, 1000 stacks"):
            yield absolute(case, 500)
        yield walk("a walk, warm: <= 8 ns a frame", 8, "depth 40", "depth 10", 30, "depth 40 less depth 10, one stack")
        yield walk("the same with 1000 stacks in random order", 8, "depth 40, 1000 stacks", "depth 10, 1000 stacks", 30, "as above")
        yield walk("a walk, cold: <= 60 ns a frame", 60, "depth 40, 1000 stacks through 8192 functions", "depth 1", 39, "8192 functions, less depth 1")
        logs = {case: log["bytes"] / log["pairs"] for case, log in results.get("pair_logs", {}).items() if log.get("bytes")}
        if logs:
            worst = max(logs, key=logs.get)
            yield goal("log <= 10 bytes per pair", logs[worst], 10, "{:.2f}", worst)
    if results.get("sampled_logs"):
        real = {workload: (log["bytes"] - log["once"]) / log["samples"] for workload, log in results["sampled_logs"].items()
                if log.get("samples") and workload in results["real"]}
        if real:
            worst = max(real, key=real.get)
            yield goal("log <= 64 bytes per sample with its share of stacks, real programs at 512 KiB", real[worst], 64, "{:.0f}",
                       "; ".join(f"{workload} {value:.0f}" for workload, value in real.items()))
    if results.get("exact"):
        over = {}
        for workload, rounds in results["exact"].items():
            more = more_resident(rounds, "ours-1", "je")
            if more is not None and workload not in results["real"]:
                over[workload] = more / 1024 - results["live"].get(workload, 0) * 96 / 2**20
        if over:
            worst = max(over, key=over.get)
            yield goal("peak RSS recording everything <= jemalloc's + 16 MiB + 96 bytes per live block (our own workloads)", over[worst], 16,
                       "{:.1f} MiB above jemalloc's + 96 bytes per live block", worst)
    if results.get("start"):
        median = {what: show(start_values(results, what).get("ours-512K"), "{:.2f}") for what in ("wall", "cpu")}
        yield goal("start-up <= 1.5 ms added", fastest_start(results, "ours-512K"), 1.5, "{:.2f} ms", f"median {median['wall']} ms, CPU {median['cpu']} ms")
    if results.get("idle"):
        got = results["idle"]["nothing sampled"]
        yield goal("idle: no wake-ups when nothing is sampled", got["wakeups"], 0, "{:.0f}",
                   f"{got['threads']} threads of ours, {got['first_second']} wake-ups in the first second of the process")
    if results.get("replay"):
        # The longest log: reading a short log is mostly work that is done once, such as names.
        longest = max(results["replay"], key=lambda got: got["events"])
        rate = longest["events"] / longest["cpu"]
        yield "replay >= 15 million events a second", f"{rate:.1f} ({longest['events']:,} events, names and all)", rate >= 15
        if len(results["replay"]) == 2:
            # The log is mapped. Its pages count as resident until the kernel needs the memory.
            small, large = ({"events": got["events"], "rss": got["rss"] / 1024 - got["bytes"] / 2**20} for got in results["replay"])
            yield ("replay's memory does not grow with events",
                   f"{small['rss']:.1f} MiB for {small['events']:,}, {large['rss']:.1f} MiB for {large['events']:,} (peak RSS less the mapped log)",
                   large["rss"] < 1.25 * small["rss"])
