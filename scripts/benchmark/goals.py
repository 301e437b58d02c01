"""The goals, and what was measured of each."""

from .markdown import show
from .ratios import added, fastest_added, fastest_start, geometric_mean, more_resident, ratio, standard_error, start_values

# contestant, what it is compared with, how that is called, the limits of the geometric mean of ratios of CPU time and of each
SAMPLING_GOALS = [
    ("ours-512K", "je", "512 KiB against the same jemalloc", 1.01, 1.03),
    ("ours-4K", "je", "4 KiB against the same jemalloc", 1.15, None),
    ("ours-512K", "glibc", "512 KiB against glibc", 0.90, 1.10),
]


def goals(results):
    """(goal, what was measured, met: True, False or None: not measured) for each line of the issue."""
    def goal(name, value, limit, form="{:.3f}", detail=""):
        if value is None:
            return name, "not measured", None
        return name, form.format(value) + (f" ({detail})" if detail else ""), value <= limit

    if results.get("sampling"):
        data = results["sampling"]
        for name, base, title, mean_limit, worst_limit in SAMPLING_GOALS:
            each = {workload: ratio(rounds, name, base) for workload, rounds in data.items()}
            each = {workload: value for workload, value in each.items() if value}
            yield goal(f"{title}, geometric mean <= {mean_limit:.2f}", geometric_mean(each.values()), mean_limit)
            if worst_limit and each:
                worst = max(each, key=each.get)
                beyond = [f"{workload} {value:.3f}" + show(standard_error(data[workload], name, base), " ± {:.3f}", "")
                          for workload, value in each.items() if value > worst_limit]
                yield goal(f"{title}, no workload above {worst_limit:.2f}", each[worst], worst_limit, detail="; ".join(beyond) or worst)
            if base == "je" and name == "ours-512K":
                tight = next((each[w] for w in each if w.startswith("pair, 64 bytes")), None)
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
            """What more frames take, by frame: of the fastest, and of the medians."""
            ends = zip(pairs.get(far, (None, None)), pairs.get(near, (None, None)), strict=True)
            each = [(deep - shallow) / frames if deep and shallow else None for deep, shallow in ends]
            return goal(title, each[0], limit, "{:.1f} ns", f"{what}; median {show(each[1], '{:.1f} ns')}")

        for case in [case for case in results["pairs"] if "1000" not in case]:
            # A third of what heaptrack cost where the goal was set, its start-up spread over the pairs; and of what it
            # costs here, without its start-up, which is the harder of the two.
            ours, theirs = added(results, "ours-1", case), added(results, "heaptrack", case)
            yield absolute(case, {"1": 240, "10": 270, "40": 360}[case.rsplit(" ", 1)[1]])
            if ours is not None and theirs:
                yield goal(f"every allocation, {case}: <= 1/3 of heaptrack's here", ours / theirs, 1 / 3, "{:.2f}", f"{ours:.0f} ns of {theirs:.0f} ns")
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
        # The longest log: of a short one, most is what is done once, the names of functions before all.
        longest = max(results["replay"], key=lambda got: got["events"])
        rate = longest["events"] / longest["cpu"]
        yield "replay >= 15 million events a second", f"{rate:.1f} ({longest['events']:,} events, names and all)", rate >= 15
        if len(results["replay"]) == 2:
            # The log is mapped, and its pages count as resident while the kernel has nothing better to do with them.
            small, large = ({"events": got["events"], "rss": got["rss"] / 1024 - got["bytes"] / 2**20} for got in results["replay"])
            yield ("replay's memory does not grow with events",
                   f"{small['rss']:.1f} MiB for {small['events']:,}, {large['rss']:.1f} MiB for {large['events']:,} (peak RSS less the mapped log)",
                   large["rss"] < 1.25 * small["rss"])
