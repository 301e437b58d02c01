"""Tcl's own tests: a unit is a file of tests; processes that `exec` starts are recorded, too."""

import glob
import os
import re
import tempfile

from . import machine
from .process import run

TITLE = "Tcl's own tests"
UNITS = "files"
UNIT_IS_TEST = False
# Tests of sockets and web servers share ports.
ALONE = True

SOURCE = os.path.join(machine.SUITES, "tcl8.6")


def install():
    if program():
        return
    machine.install({"gcc": "/usr/bin/gcc", "make": "/usr/bin/make", "zlib1g-dev": "/usr/include/zlib.h", "tzdata": "/usr/share/zoneinfo/UTC"})
    folder = os.path.join(machine.source("tcl8.6"), "unix")
    machine.build([["./configure", "--enable-threads"], ["make", f"-j{os.cpu_count()}", "tcltest"]], folder, "Tcl")


def program():
    return next(iter(glob.glob(f"{SOURCE}/*/unix/tcltest")), None)


def units():
    if not program():
        return []
    tests = os.path.join(os.path.dirname(os.path.dirname(program())), "tests")
    return sorted(os.path.basename(path).removesuffix(".test") for path in glob.glob(f"{tests}/*.test"))


def run_unit(file, variables, timeout):
    source = os.path.dirname(os.path.dirname(program()))
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as logs:
        environment = {
            "PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", "TCL_LIBRARY": f"{source}/library", "LD_LIBRARY_PATH": f"{source}/unix",
            # Outside the current folder, because some tests list that folder.
            "HEAPPROFILE": f"{logs}/p", **variables,
        }
        ended = run([program(), f"{source}/tests/{file}.test", "-verbose", "pass skip"], folder, environment, timeout)
    verdicts = {file: ended.verdict}
    for name, verdict in re.findall(r"^(?:\+\+\+\+|====) (\S+) (?:.* )?(PASSED|SKIPPED|FAILED)\b", ended.output, re.MULTILINE):
        # Some files use a name twice: the test passed if both did.
        if verdicts.get(f"{file}: {name}") != "failed":
            verdicts[f"{file}: {name}"] = verdict.lower()
    return verdicts
