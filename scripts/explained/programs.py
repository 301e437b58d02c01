"""Programs: the sources of the collection, and how each is built, run and explained."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
LIBRARY = TARGET / "release/libheapprof.so"
BUILT = TARGET / "explained/bin"
LOGS = TARGET / "explained/logs"
INTERVAL = 512 << 10

COMPILERS = {
    ".c": ["gcc", "-g", "-O2", "-fno-optimize-sibling-calls", "-pthread"],
    ".cpp": ["g++", "-std=c++17", "-g", "-O2", "-fno-optimize-sibling-calls", "-pthread"],
    ".rs": ["rustc", "--edition", "2021", "-g", "-O"],
}
INTERPRETERS = {".py": "python3", ".js": "node", ".pl": "perl", ".tcl": "tclsh", ".sh": "bash"}


class Program:
    """One source. `labels` are pairs of verdicts and a site."""

    def __init__(self, source, header, seen):
        self.source = source
        self.name = source.stem if source.suffix in COMPILERS else source.name
        self.name = f"{source.parent.name}/{self.name}"
        self.half = "seen" if self.name in seen else "unseen"
        self.labels = []
        for label in "; ".join(re.findall(r"expect: (.*)", header)).split("; "):
            verdicts, site = label.strip().rsplit(" ", 1)
            self.labels.append((verdicts.split("|"), site))
        self.variables = dict(word.split("=") for word in re.findall(r"env: (\S+=\S+)", header))
        process = re.search(r"program: (\S+)", header)
        self.process = process[1] if process else None
        self.logs = LOGS / self.name

    def built(self):
        return BUILT / self.name

    def build(self):
        """Compiles a source that is newer than its program."""
        compiler = COMPILERS.get(self.source.suffix)
        if compiler is None:
            return
        made = self.built()
        sources = [self.source, FOLDER / "pace.h", FOLDER / "pace.rs"]
        if made.exists() and made.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*compiler, "-o", made, self.source], check=True)

    def missing(self):
        """A command that the program needs and the machine lacks, or None."""
        compiler = COMPILERS.get(self.source.suffix, [INTERPRETERS.get(self.source.suffix)])[0]
        needs = [compiler, self.process or compiler]
        return next((command for command in needs if not shutil.which(command)), None)

    def words(self):
        interpreter = INTERPRETERS.get(self.source.suffix)
        return [real_path(interpreter), self.source] if interpreter else [self.built()]


def real_path(interpreter):
    """An interpreter itself: a version manager's `python3` may be a shell script."""
    return sys.executable if interpreter == "python3" else shutil.which(interpreter)


def collection(half, only):
    seen = set((FOLDER / "seen").read_text().split())
    programs = []
    for source in sorted(FOLDER.glob("*/*")):
        if source.suffix not in COMPILERS and source.suffix not in INTERPRETERS:
            continue
        header = source.read_text().split("\n\n")[0]
        if "expect: " in header:
            programs.append(Program(source, header, seen))
    names = {name for program in programs for name in (program.name, program.name.split("/")[1])}
    missing = set(only or ()) - names
    if missing:
        sys.exit(f"explain-collection: no program {', '.join(sorted(missing))}")
    chosen = [
        program
        for program in programs
        if (half or program.half) == program.half
        and (not only or program.name in only or program.name.split("/")[1] in only)
    ]
    for program in chosen:
        if needed := program.missing():
            print(f"{program.name} is left out: {needed} is not installed")
    return [program for program in chosen if not program.missing()]


def finished(program, seconds, without):
    """Runs a program, with its logs in a folder of their own. Returns what is wrong, or None."""
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **program.variables)
    for name in list(environment):
        if name.startswith(("HEAPPROF", "HEAP_PROFILE")):
            del environment[name]
    if not without:
        shutil.rmtree(program.logs, ignore_errors=True)
        program.logs.mkdir(parents=True)
        environment["LD_PRELOAD"] = str(LIBRARY)
        environment["HEAPPROFILE"] = f"{program.logs}/"
        environment["HEAPPROF_SAMPLE_INTERVAL"] = str(INTERVAL)
    try:
        ended = subprocess.run(
            [*program.words(), str(seconds)], env=environment, timeout=seconds * 2 + 60,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, errors="replace",
        )
    except subprocess.TimeoutExpired:
        return f"{program.name}: does not end"
    if ended.returncode != 0:
        return f"{program.name}: status {ended.returncode}: {ended.stderr.strip()[-300:]}"
    if not without and not log_of(program):
        return f"{program.name}: no log"
    return None


def log_of(program):
    """The log of the program itself: the largest, or the largest of the process that is named."""
    logs = sorted(program.logs.glob("*.heaplog"), key=lambda log: -log.stat().st_size)
    if program.process:
        logs = [log for log in logs if f".{program.process}." in log.name]
    return logs[0] if logs else None


def newest_reader():
    readers = [TARGET / profile / "heapprof" for profile in ("release", "debug")]
    readers = [reader for reader in readers if reader.exists()]
    if not readers:
        sys.exit(f"explain-collection: no heapprof in {TARGET}; build it by cargo build -p heapprof-symbolizer")
    return max(readers, key=lambda reader: reader.stat().st_mtime)


def explained(program, reader):
    """The document of `heapprof explain`, which is kept beside the log."""
    log = log_of(program)
    if log is None:
        sys.exit(f"explain-collection: {program.logs} has no log; leave out --no-run")
    ran = subprocess.run([reader, "explain", "--json", log], capture_output=True, text=True)
    if not ran.stdout.strip():
        sys.exit(f"explain-collection: {log}: {ran.stderr.strip()}")
    (program.logs / "explain.json").write_text(ran.stdout)
    return json.loads(ran.stdout)
