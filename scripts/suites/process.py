"""Process: one run of a test program in a process group of its own, with its end and its output."""

import os
import subprocess
import tempfile
from collections import namedtuple

# verdict: "passed", or how the process ended. output: what it wrote, in text.
Run = namedtuple("Run", "verdict output")


def run(command, folder, environment, timeout, known=None):
    """Runs a command in a folder. `known` names exit statuses other than 0, which is "passed"."""
    # A file, because a pipe would be open as long as a process that the test leaves behind.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(timeout + 60)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Run(verdict_of(status, {0: "passed", **(known or {})}), text)


def verdict_of(status, known):
    if status is None:
        return "out of time"
    return f"signal {-status}" if status < 0 else known.get(status, f"status {status}")
