"""Environment: the Python packages, the programs and the checks of `*-counterparts`."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("HEAPPROF_TARGET_DIR", os.path.join(ROOT, "target", "release"))
HEAPPROF = os.path.join(TARGET, "heapprof")
LIBRARY = os.path.join(TARGET, "libheapprof.so")


def enter(script, packages):
    """Runs the script again inside of an environment that has the packages."""
    folder = os.path.join(ROOT, "target", os.path.basename(script))
    python = os.path.join(folder, "bin", "python")
    if os.path.abspath(sys.prefix) == os.path.abspath(folder):
        # Its name begins as settings of the library do, which says so of unknown ones.
        os.environ.pop("HEAPPROF_TARGET_DIR", None)
        return
    installed = os.path.join(folder, "installed")
    wanted = "\n".join(packages)
    if not os.path.exists(installed) or open(installed).read() != wanted:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "--quiet", "install", *packages], check=True)
        with open(installed, "w") as file:
            file.write(wanted)
    os.execv(python, [python, os.path.abspath(script), *sys.argv[1:]])


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def run_cases(cases):
    """Runs (name, function) in order, and ends with status 1 if one fails."""
    failures = 0
    for name, case in cases:
        try:
            case()
        except Exception as error:
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {error}", flush=True)
    sys.exit(1 if failures else 0)
