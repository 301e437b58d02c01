"""Document: the tables of `docs/suites.md`, one for a suite."""

import os
import re
import subprocess

from .machine import ROOT

DOCUMENT = os.path.join(ROOT, "docs", "suites.md")
BEGIN, END = "<!-- scripts/real-suites --write: begin -->\n", "<!-- scripts/real-suites --write: end -->\n"


def tables(reports, seconds):
    """{title: text}"""
    version = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%h"], capture_output=True, text=True).stdout.strip()
    measured = f"Measured at {version} by `scripts/real-suites`, on {os.cpu_count()} cores"
    return {report["title"]: table(report, f"{measured} in {duration(seconds[report['title']])}.") for report in reports}


def duration(seconds):
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} seconds"


def table(report, measured):
    suite = report["suite"]
    lines = [f"### {report['title']}: {report['units']} {suite.UNITS}", "", measured, "",
             "| | passed | skipped | failed | verdicts that differ |", "| --- | ---: | ---: | ---: | ---: |"]
    for way, counts in report["counts"].items():
        differ = "" if way == "without" else str(len(report["different"].get(way, [])))
        lines.append(f"| {way} | {counts['passed']} | {counts['skipped']} | {counts['failed']} | {differ} |")
    listed = [f"- {kind}, {way}: {test}" for kind in ("different", "unsteady") for way, tests in report[kind].items() for test in tests]
    return "\n".join(lines + ([""] + listed if listed else []))


def write(made):
    """Replaces the tables of the suites that ran; the others stay."""
    with open(DOCUMENT) as file:
        before, rest = file.read().split(BEGIN)
    old, after = rest.split(END)
    kept = {section.removeprefix("### ").split(": ")[0]: section.strip() for section in re.split(r"^(?=### )", old, flags=re.MULTILINE) if section.startswith("### ")}
    with open(DOCUMENT, "w") as file:
        file.write(before + BEGIN + "\n" + "\n\n".join({**kept, **made}.values()) + "\n\n" + END + after)
