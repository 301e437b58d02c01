"""Comparison: the verdicts of a suite without the library, and with it in two ways.

A test counts as different only if it always has one verdict without the library and never with it.
A difference that does not repeat is unsteady.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor

from .machine import LIBRARY


def ways_with(allocator):
    """{name: variables}. The others are compared with the first."""
    preloaded = {"LD_PRELOAD": LIBRARY}
    if allocator != "jemalloc":
        preloaded["HEAPPROF_ALLOCATOR"] = allocator
    return {"without": {}, "sampled": preloaded, "every allocation": {**preloaded, "HEAPPROF_SAMPLE_INTERVAL": "1"}}


def compare(suite, units, timeout, jobs, allocator):
    """Runs the units in all ways; the result is a report, which `document` writes as a table."""
    ways = ways_with(allocator)
    title = suite.TITLE if allocator == "jemalloc" else f"{suite.TITLE}, over each program's own allocator"
    print(f"{title}: {len(units)} to run, in {len(ways)} ways", file=sys.stderr)
    begun = time.monotonic()
    results = run_all(suite, units, timeout, 1 if suite.ALONE else jobs, ways)
    different, unsteady = differences(suite, units, results, timeout, ways)
    counts = {way: count(suite, units, results, way) for way in ways}
    print(f"{title}: {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return {"suite": suite, "title": title, "units": len(units), "counts": counts, "different": different, "unsteady": unsteady}


def run_all(suite, units, timeout, jobs, ways):
    """{(unit, way): {test: verdict}}"""
    results = {}
    if hasattr(suite, "run_all"):
        for way, variables in ways.items():
            for test, verdict in suite.run_all(units, variables, timeout).items():
                results[test, way] = {test: verdict}
            print(f"  {way}: {sum((unit, way) in results for unit in units)} verdicts", file=sys.stderr)
        return results

    def one(work):
        unit, way = work
        begun = time.monotonic()
        verdicts = suite.run_unit(unit, ways[way], timeout)
        print(f"  {unit}, {way}: {verdicts.get(unit)}, {len(verdicts)} verdicts, {time.monotonic() - begun:.0f} s", file=sys.stderr)
        return work, verdicts

    with ThreadPoolExecutor(jobs) as pool:
        results.update(pool.map(one, [(unit, way) for unit in units for way in ways]))
    return results


def differences(suite, units, results, timeout, ways):
    """Runs units whose verdicts differ twice more in both ways: ({way: [difference]}, unsteady)."""
    plain_way, *others = ways
    different, unsteady = {}, {}
    for unit in units:
        plain = results.get((unit, plain_way), {})
        for way in others:
            there = results.get((unit, way), {})
            odd = {test for test in plain.keys() | there.keys() if plain.get(test) != there.get(test)}
            if not odd:
                continue
            print(f"  {unit}, {way}: {len(odd)} differ; twice more", file=sys.stderr)
            again = [(suite.run_unit(unit, ways[plain_way], timeout), suite.run_unit(unit, ways[way], timeout)) for _ in range(2)]
            for test in sorted(odd):
                without = {plain.get(test)} | {p.get(test) for p, _ in again}
                within = {there.get(test)} | {t.get(test) for _, t in again}
                steady = len(without) == 1 and not without & within
                (different if steady else unsteady).setdefault(way, []).append(f"{test}: without {words(without)}, with {words(within)}")
    return different, unsteady


def words(verdicts):
    return "/".join(sorted(map(str, verdicts)))


def count(suite, units, results, way):
    """Verdicts of one way by kind; an end that is neither counts as failed."""
    verdicts = [verdict for unit in units for test, verdict in results.get((unit, way), {}).items() if test != unit or suite.UNIT_IS_TEST]
    counted = {kind: verdicts.count(kind) for kind in ("passed", "skipped")}
    return {**counted, "failed": len(verdicts) - sum(counted.values())}
