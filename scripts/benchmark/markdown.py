"""Cells and tables of Markdown."""


def show(value, form="{:.2f}", none="died"):
    return none if value is None else form.format(value)


def mib(kib):
    return None if kib is None else kib / 1024


def table(head, rows, right=True):
    """A table of Markdown; the first column is text, the others stand at the right unless they are text too."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + (" ---: |" if right else " --- |") * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])
