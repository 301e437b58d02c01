"""libuv's own tests: a unit is a test, run by its name; its helper processes are recorded, too."""

import glob
import os
import re
import subprocess
import tempfile

from . import machine
from .process import run

TITLE = "libuv's own tests"
UNITS = "tests"
UNIT_IS_TEST = True
# Tests share ports.
ALONE = True

SOURCE = os.path.join(machine.SUITES, "libuv1")


def install():
    if program():
        return
    machine.install({"cmake": "/usr/bin/cmake", "gcc": "/usr/bin/gcc", "make": "/usr/bin/make"})
    folder = machine.source("libuv1")
    machine.build([
        ["cmake", "-S", ".", "-B", "build", "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DBUILD_TESTING=ON"],
        ["cmake", "--build", "build", "--parallel", str(os.cpu_count()), "--target", "uv_run_tests"],
    ], folder, "libuv")


def program():
    return next(iter(glob.glob(f"{SOURCE}/*/build/uv_run_tests")), None)


def units():
    if not program():
        return []
    listed = subprocess.run([program(), "--list"], env={"UV_RUN_AS_ROOT": "1"}, capture_output=True, text=True, check=True).stdout
    # A line is a name, and for some tests " (helpers: …)".
    return re.findall(r"^([a-z]\w*)(?: *\(helpers:.*)?$", listed, re.MULTILINE)


def run_unit(test, variables, timeout):
    source = os.path.dirname(os.path.dirname(program()))
    with tempfile.TemporaryDirectory() as folder:
        # Tests write into the current folder, and read fixtures below it.
        os.symlink(f"{source}/test", f"{folder}/test")
        with tempfile.TemporaryDirectory() as logs:
            environment = {"PATH": "/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8", "UV_RUN_AS_ROOT": "1", "HEAPPROFILE": f"{logs}/p", **variables}
            ended = run([program(), test], folder, environment, timeout)
    found = re.search(r"^(not ok|ok) \d+ - \S+( # SKIP)?", ended.output, re.MULTILINE)
    if not found:
        return {test: ended.verdict}
    return {test: "failed" if found[1] == "not ok" else "skipped" if found[2] else "passed"}
