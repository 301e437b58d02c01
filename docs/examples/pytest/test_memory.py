"""The loads whose memory is limited."""

import sys

LOAD = "import sys; pages = [bytes(64 << 10) for _ in range(int(sys.argv[1]))]"


def test_usual_load(within):
    within("32MiB", sys.executable, "-c", LOAD, "16")


def test_heavy_load(within):
    """Fails: it takes twice as much as it may."""
    within("32MiB", sys.executable, "-c", LOAD, "1024")
