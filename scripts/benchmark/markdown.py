"""Cells, tables and paragraphs of Markdown."""

import textwrap


def show(value, form="{:.2f}", none="died"):
    return none if value is None else form.format(value)


def mib(kib):
    return None if kib is None else kib / 1024


def table(head, rows, right=True):
    """A table of Markdown. Its first column is text; the others are aligned to the right if
    `right`."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + (" ---: |" if right else " --- |") * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def paragraph(text):
    """A paragraph in lines of 100 columns."""
    return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


def titled(title, head, rows, right=True):
    """A table below its title."""
    return f"{paragraph(title)}\n\n{table(head, rows, right)}"
