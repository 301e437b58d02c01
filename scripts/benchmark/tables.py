"""The tables."""

from .contestants import BY_NAME, TITLES
from .goals import goals
from .markdown import mib, paragraph, show, table, titled
from .ratios import added, geometric_mean, median_of, ratio, standard_error, start_values


def ran(results, part, *names):
    """Those of the contestants that took part."""
    there = {name for rounds in results.get(part, {}).values() for got in rounds for name in got}
    return [name for name in names if name in there]


def sampling_tables(results):
    data = results["sampling"]
    for what, title in (("cpu", "CPU time"), ("wall", "Elapsed time")):
        names = [n for n in ran(results, "sampling", "ours-off", "ours-512K", "ours-4K", "jemalloc-512K", "jemalloc-4K", "tcmalloc-512K")
                 if BY_NAME[n].base in ran(results, "sampling", BY_NAME[n].base)]
        rows = []
        for workload, rounds in data.items():
            cells = [show(ratio(rounds, name, BY_NAME[name].base, what), "{:.3f}") for name in names]
            if "ours-512K" in names:
                at = names.index("ours-512K")
                cells[at] += show(standard_error(rounds, "ours-512K", "je", what), " ± {:.3f}", "")
            rows.append([workload] + cells + [str(len(rounds))])
        if what == "wall":
            rows = []
        filler = [""] if what == "cpu" else []
        rows.append(["**geometric mean**"] + [show(geometric_mean(ratio(rounds, n, BY_NAME[n].base, what) for rounds in data.values()), "**{:.3f}**") for n in names] + filler)
        rows.append(["worst"] + [show(max((ratio(rounds, n, BY_NAME[n].base, what) or 0 for rounds in data.values()), default=None), "{:.3f}") for n in names] + filler)
        note = " (± : one standard error of the median)" if what == "cpu" else ""
        yield titled(f"**{title}, sampling against the same allocator without it**{note}",
                     ["workload"] + [TITLES[n] for n in names] + ["rounds"] * len(filler), rows)

    if "glibc" in ran(results, "sampling", "glibc"):
        names = ran(results, "sampling", "je", "je-own", "ours-512K", "jemalloc", "jemalloc-512K", "tcmalloc", "tcmalloc-512K")
        rows = [[workload] + [show(ratio(rounds, n, "glibc")) for n in names] for workload, rounds in data.items()]
        for what, title in (("cpu", "**geometric mean**"), ("wall", "elapsed time, geometric mean"), ("rss", "peak RSS, geometric mean")):
            rows.append([title] + [show(geometric_mean(ratio(rounds, n, "glibc", what) for rounds in data.values())) for n in names])
        yield titled("**CPU time against glibc's malloc**", ["workload"] + [TITLES[n] for n in names], rows)

    if "je" in ran(results, "sampling", "je"):
        names = ran(results, "sampling", "glibc", "je", "je-own", "ours-off", "ours-512K", "ours-4K", "jemalloc", "jemalloc-512K", "jemalloc-4K", "tcmalloc", "tcmalloc-512K")
        rows = [[workload] + [show(mib(median_of(rounds, n, "rss")), "{:.1f}") for n in names] for workload, rounds in data.items()]
        yield titled("**Peak RSS in MiB**", ["workload"] + [TITLES[n] for n in names], rows)


def exact_tables(results):
    data = results["exact"]
    names = ran(results, "exact", "ours-1", "heaptrack", "heaptrack-raw", "jemalloc-1", "tcmalloc-1")
    rows = [[workload] + [show(ratio(rounds, n, BY_NAME[n].base)) for n in names] for workload, rounds in data.items()]
    rows.append(["**geometric mean**"] + [show(geometric_mean(ratio(rounds, n, BY_NAME[n].base) for rounds in data.values()), "**{:.2f}**") for n in names])
    yield titled("**CPU time, recording every allocation against the same allocator without it** (heaptrack against glibc; fewer operations"
                 " than above)", ["workload"] + [TITLES[n] for n in names], rows)
    more = ran(results, "exact", "je") + names
    rows = []
    for workload, rounds in data.items():
        log = results.get("exact_logs", {}).get(workload, {})
        rows.append([workload] + [show(mib(median_of(rounds, n, "rss")), "{:.1f}") for n in more]
                    + [show((median_of(rounds, n, "out") or 0) / 1e6, "{:.2f}") for n in names]
                    + ["; ".join(log.get("lost", [])) or "none"])
    yield titled("**Recording every allocation: peak RSS in MiB of the largest process, and MB written**",
                 ["workload"] + ["RSS: " + TITLES[n] for n in more] + ["MB: " + TITLES[n] for n in names] + ["lost by heapprof"], rows)


def pair_tables(results):
    data = results["pairs"]
    names = ran(results, "pairs", "ours-1", "heaptrack", "heaptrack-raw", "jemalloc-1", "tcmalloc-1")
    for what, title, note in (("cpu", "CPU nanoseconds", "all threads and helper processes"), ("wall", "Elapsed nanoseconds", "per pair of each thread")):
        rows = [[case] + [show(added(results, n, case, what), "{:,.0f}") for n in names] for case in data]
        yield titled(f"**{title} added to a malloc+free pair, recording every allocation** ({note})", ["calls"] + [TITLES[n] for n in names], rows)
    rows = []
    for case, log in results.get("pair_logs", {}).items():
        if log.get("bytes"):
            rounds = data[case]
            rows.append([case, f"{log['bytes'] / log['pairs']:.2f}", f"{log['samples'] / log['pairs']:.1%}", "; ".join(log["lost"]) or "none"]
                        + [show(median_of(rounds, n, "out"), "{:.2f}") for n in names if n != "ours-1"])
    yield titled("**Bytes on disk per malloc+free pair, recording every allocation** (heaptrack's and jemalloc's files hold totals only;"
                 " heaptrack compresses)", ["calls", "heapprof", "pairs in the log", "lost"] + [TITLES[n] for n in names if n != "ours-1"], rows)


def sampled_log_table(results):
    rows = []
    for workload, log in results.get("sampled_logs", {}).items():
        if log.get("samples"):
            rows.append([workload, f"{log['bytes'] / 1000:,.1f}", f"{log['once'] / 1000:,.1f}", f"{log['samples']:,}", f"{(log['bytes'] - log['once']) / log['samples']:.1f}", "; ".join(log["lost"]) or "none"])
    yield titled("**The log at 512 KiB** (\"once\": records whose number does not depend on that of samples: start, modules, threads, counters, end."
                 " The bytes of a sample include its free and its share of stacks and frames)",
                 ["workload", "kB", "of these once", "samples", "bytes per sample", "lost"], rows)


def start_table(results):
    cpu, wall = start_values(results), start_values(results, "wall")
    rows = [[TITLES[name], show(cpu[name], "{:.2f}"), show(wall[name], "{:.2f}")] for name in cpu if name != "glibc"]
    yield titled("**Start-up: milliseconds added to `/bin/true`**", ["contestant", "CPU", "elapsed"], rows)


def other_tables(results):
    rows = []
    for label, got in results.get("idle", {}).items():
        rows.append([f"idle process, {label}", f"{got['threads']} threads of ours, {got['first_second']} wake-ups in the first second and "
                     f"{got['wakeups']} in the {got['seconds']} after it"])
    for got in results.get("replay", []):
        rows.append([f"`heapprof top` of {got['events']:,} events, {got['bytes'] / 1e6:.1f} MB",
                     f"{got['events'] / got['cpu']:.1f} million events a second, peak RSS {got['rss'] / 1024:.1f} MiB with the mapped log"])
    if rows:
        yield titled("**Idle, and reading a log**", ["what", "measured"], rows, right=False)


def render(results):
    machine = results["machine"]
    parts = [f"Machine: {machine['cpu']}, {machine['cores']} cores, {machine['memory']}; {machine['system']}, kernel {machine['kernel']}, {machine['libc']}.",
             f"Versions: {machine['versions']}.",
             f"Date {machine['date']}; {machine['rounds']} rounds; load average {machine['load_before']} before and {machine['load_after']} after"
             f" on {machine['cores']} cores, about one of it our own; {machine['minutes']:.0f} minutes."]
    if machine.get("again"):
        parts.append(f"Taken once more, by themselves: {', '.join(machine['again'])}.")
    text = ["\n\n".join(map(paragraph, parts))]
    verdict = {True: "met", False: "**not met**", None: "-"}
    lines = [[name, value, verdict[met]] for name, value, met in goals(results)]
    if lines:
        text.append("### Goals, and what was measured of each\n\n" + table(["goal", "measured", ""], lines, right=False))
    if results.get("sampling"):
        text += ["### Sampling", *sampling_tables(results), *sampled_log_table(results)]
    if results.get("pairs"):
        text += ["### Recording every allocation", *pair_tables(results)]
    if results.get("exact"):
        text += exact_tables(results)
    if results.get("start"):
        text += ["### Start-up, idling, reading", *start_table(results)]
    text += other_tables(results)
    if results.get("dead"):
        text.append(titled("**Died**", ["contestant", "workload", "how"], sorted(results["dead"]), right=False))
    return "\n\n".join(text) + "\n"
