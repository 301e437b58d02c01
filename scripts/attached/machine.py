"""Machine: where the build is, packages from apt, and what the kernel tells of a process."""

import os
import subprocess
import sys

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SCRIPTS)
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
HEAPPROF = os.path.join(TARGET, "release", "heapprof")
FIXTURES = os.path.join(TARGET, "fixtures")


def install(packages):
    """Installs packages with apt. `packages`: {package: a path of it}."""
    missing = [package for package, path in packages.items() if not os.path.exists(path)]
    if missing and subprocess.run([os.path.join(SCRIPTS, "install-deps"), "packages", *(f"{package}:" for package in missing)]).returncode != 0:
        print(f"attach-suites: cannot install {' '.join(missing)}", file=sys.stderr)


def size(pid):
    """The descriptors, threads and resident KiB of a process."""
    with open(f"/proc/{pid}/status") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), resident


def children(pid):
    """The children of a process's main thread."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def port_of(pid):
    """The port on which a process listens; None: not yet."""
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            pass
    for family in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{family}") as file:
            for line in file.readlines()[1:]:
                words = line.split()
                if words[3] == "0A" and f"socket:[{words[9]}]" in links:
                    return int(words[1].split(":")[1], 16)
    return None
