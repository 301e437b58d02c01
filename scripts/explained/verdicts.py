"""Verdicts: what `heapprof explain` says of the sites of a program, beside the labels of its source.

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
    """Compares one document of `heapprof explain` with the labels, and adds the result to the tally."""
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


def is_at(found_at, site, sites):
    return found_at == site or (site == ANY and found_at not in sites)


def site_of(names, sites):
    """The innermost labelled function of a finding's stack, or the finding's own function."""
    names = [bare(name) for name in names]
    return next((name for name in names if name in sites), names[0] if names else "?")


def bare(name):
    """A function's name without its scopes, parameters, template arguments and clone suffix."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"\(.*|\s*\[.*", "", name)
    while re.search(r"<[^<>]*>", name):
        name = re.sub(r"(::)?<[^<>]*>", "", name)
    return name.split("::")[-1].split(" ")[-1].split(".")[0]
