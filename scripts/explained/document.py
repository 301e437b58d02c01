"""Document: the tables of precision and recall in `docs/explain.md`."""

import os
import subprocess
import sys

from .programs import ROOT
from .verdicts import VERDICTS

DOCUMENT = ROOT / "docs/explain.md"
BEGIN = "<!-- scripts/explain-collection --write: begin -->\n"
END = "<!-- scripts/explain-collection --write: end -->\n"


def tables(tallies, seconds):
    """A table for each half that has programs."""
    git = ["git", "-C", ROOT, "log", "-1", "--format=%h"]
    version = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    text = f"Measured at {version} by `scripts/explain-collection`: {seconds} s at 512 KiB, on {os.cpu_count()} cores.\n"
    for half, tally in tallies.items():
        if tally.programs:
            text += f"\n### {half.capitalize()}: {tally.programs} programs\n\n{table(tally)}"
    return text


def table(tally):
    lines = ["| verdict | expected | found | right | precision | recall |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for verdict in VERDICTS:
        lines.append(row(verdict, tally.expected[verdict], tally.found[verdict], tally.right[verdict]))
    lines.append(row("all", *(sum(counts.values()) for counts in (tally.expected, tally.found, tally.right))))
    leaks = f"Programs without a leak: {tally.without_leak}; with a leak reported: {len(tally.false_leaks)}."
    return "\n".join(lines) + f"\n\n{leaks}\n"


def row(verdict, expected, found, right):
    return f"| {verdict} | {expected} | {found} | {right} | {share(right, found)} | {share(right, expected)} |"


def share(part, whole):
    return f"{part / whole:.2f}" if whole else ""


def write(made):
    """Replaces the tables in the document."""
    text = DOCUMENT.read_text() if DOCUMENT.exists() else ""
    if BEGIN not in text or END not in text:
        sys.exit(f"explain-collection: {DOCUMENT} has no lines {BEGIN.strip()} and {END.strip()}; add them where the tables belong")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}")
