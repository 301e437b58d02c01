"""A fixture that runs a command under heapprof, with a limit for its memory."""

import subprocess

import pytest

ABOVE, CANNOT_JUDGE = 3, 4


@pytest.fixture
def within(tmp_path):
    """within("8MiB", command, ...) fails if the command takes more at its peak."""

    def run(limit, *command):
        log = tmp_path / "memory"
        options = ["-q", "-i", "1", "-o", log, "-m", "peak", "--fail-above", limit]
        done = subprocess.run(["heapprof", "run", *options, "--", *command], stderr=subprocess.PIPE, text=True)
        if done.returncode == ABOVE:
            top = subprocess.run(["heapprof", "top", "--at", "peak", "-n", "5", f"{log}.heaplog"], stdout=subprocess.PIPE, text=True)
            pytest.fail(done.stderr + top.stdout, pytrace=False)
        if done.returncode == CANNOT_JUDGE:
            pytest.fail(done.stderr, pytrace=False)
        assert done.returncode == 0, done.stderr

    return run
