"""Verdicts: what `heapprof explain` says of the sites of a program, beside its labels.

Each required label is expected once, in the row of its verdict. A verdict of the tool is found once
a site, in its own row. Verdicts that a label permits without requiring them are in no row.
"""

import collections
import re

ALARMS = ["leak", "growing block", "backlog", "burst", "churn"]
VERDICTS = ALARMS + ["periodic", "cache", "one-time"]
ANY = "*"


class Tally:
    """Counts by verdict for one half, and the mistakes in words."""

    def __init__(self):
        self.programs = self.without_leak = 0
        self.expected, self.found, self.right = (collections.Counter() for _ in range(3))
        self.mistakes, self.false_leaks = [], []


def judge(program, document, tally):
    """Compares one document of `heapprof explain` with the labels, and counts the result."""
    tally.programs += 1
    sites = {site for _, site in program.labels}
    found = {(verdict, site_of(names, sites)) for verdict, names in findings(document)}
    for site in sorted(sites):
        labels = [verdicts for verdicts, of in program.labels if of == site]
        here = {verdict for verdict, at in found if is_at(at, site, sites)}
        judge_site(program.name, site, labels, here, tally)
    if ANY not in sites:
        for verdict, at in sorted(found):
            if at not in sites and verdict in ALARMS:
                tally.found[verdict] += 1
                tally.mistakes.append(f"{program.name}: {verdict} at {at}, which has no label")
    if not any("leak" in verdicts for verdicts, _ in program.labels):
        tally.without_leak += 1
        if any(verdict == "leak" for verdict, _ in found):
            tally.false_leaks.append(program.name)


def judge_site(name, site, labels, here, tally):
    permitted = {verdict for verdicts in labels for verdict in verdicts}
    if "nothing" in permitted:
        permitted |= set(VERDICTS) - set(ALARMS)
    for verdicts in labels:
        if "nothing" in verdicts:
            continue
        matches = [verdict for verdict in verdicts if verdict in here]
        verdict = (matches or verdicts)[0]
        tally.expected[verdict] += 1
        if matches:
            tally.found[verdict] += 1
            tally.right[verdict] += 1
        else:
            said = ", ".join(sorted(here)) or "nothing"
            tally.mistakes.append(f"{name}: {'|'.join(verdicts)} at {site} is missed ({said} found)")
    for verdict in sorted(here - permitted):
        if site == ANY and verdict not in ALARMS:
            continue
        tally.found[verdict] += 1
        wanted = "; ".join("|".join(verdicts) for verdicts in labels)
        tally.mistakes.append(f"{name}: {verdict} at {site}, expected {wanted}")


def findings(document):
    """Pairs of a verdict and the functions of its site, innermost first."""
    for finding in document["findings"] + [dict(churn, kind="churn") for churn in document["churn"]]:
        verdict = finding["kind"].replace("_", " ").replace("one time", "one-time")
        if verdict in VERDICTS:
            yield verdict, [finding["function"] or "?"]


def is_at(found_at, site, sites):
    return found_at == site or (site == ANY and found_at not in sites)


def site_of(names, sites):
    """The innermost labelled function of a finding's stack, or the finding's own function."""
    names = [bare(name) for name in names]
    return next((name for name in names if name in sites), names[0] if names else "?")


def bare(name):
    """A function's name without its scopes, parameters, template arguments and clone suffix.

    A closure has the name of the function that it is written in.
    """
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"(::\{+(closure|lambda)[^:]*)+.*$", "", name)
    name = re.sub(r"\(.*|\s*\[.*", "", name)
    while re.search(r"<[^<>]*>", name):
        name = re.sub(r"(::)?<[^<>]*>", "", name)
    return name.split("::")[-1].split(" ")[-1].split(".")[0]


class Planted:
    """A program with one label of each kind."""

    name = "planted"
    labels = [
        (["leak"], "keep"),
        (["cache", "burst"], "store"),
        (["churn", "nothing"], "parse"),
        (["nothing"], "answer"),
        (["one-time"], "load"),
    ]


def self_test():
    """Fails unless right, missed, permitted and wrong verdicts are counted as such."""
    said = [
        ("leak", "app::keep::h0123456789abcdef"), ("burst", "Store<int>::store(int)"), ("cache", "parse"),
        ("backlog", "answer::{{closure}}"), ("cache", "elsewhere"), ("growing block", "elsewhere"),
    ]
    findings = [{"kind": verdict, "function": function} for verdict, function in said]
    document = {"findings": findings, "churn": [{"function": "parse"}]}
    tally = Tally()
    judge(Planted, document, tally)
    assert tally.expected == {"leak": 1, "burst": 1, "one-time": 1}, tally.expected
    assert tally.right == {"leak": 1, "burst": 1}, tally.right
    assert tally.found == {"leak": 1, "burst": 1, "backlog": 1, "growing block": 1}, tally.found
    assert len(tally.mistakes) == 3, tally.mistakes
    assert tally.without_leak == 0 and not tally.false_leaks
    Planted.labels = [(["cache", "nothing"], ANY)]
    judge(Planted, document, tally)
    assert tally.without_leak == 1 and tally.false_leaks == ["planted"], tally.false_leaks
    assert tally.found["churn"] == 1 and tally.expected["cache"] == 0, tally.found
