"""Where things are: the project's, what is built for measuring, and the peers'."""

import os

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SCRIPTS)
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
BENCH = os.path.join(TARGET, "bench")
DOCUMENT = os.path.join(ROOT, "docs", "performance.md")
MULTIARCH = "/usr/lib/x86_64-linux-gnu"

# Debian packages, and the file of each that is measured.
PEERS = {
    "libjemalloc2": f"{MULTIARCH}/libjemalloc.so.2",
    "libgoogle-perftools4": f"{MULTIARCH}/libtcmalloc.so.4",
    "heaptrack": "/usr/bin/heaptrack",
}

OURS = os.path.join(BENCH, "libheapprof.so")
JE = os.path.join(BENCH, "libbaseline.so")
HEAPPROF = os.path.join(BENCH, "heapprof")
DEBIAN_JE = PEERS["libjemalloc2"]
TC = PEERS["libgoogle-perftools4"]
HEAPTRACK = PEERS["heaptrack"]


def own(program):
    return os.path.join(BENCH, program)
