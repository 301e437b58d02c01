"""The machine: what has to be there before anything is measured, and what it is."""

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import time

from .places import BENCH, PEERS, ROOT, SCRIPTS, TARGET


def install_missing():
    missing = [package for package, path in PEERS.items() if not os.path.exists(path)]
    for package, path in (("redis-server", "/usr/bin/redis-server"), ("redis-tools", "/usr/bin/redis-benchmark"), ("sqlite3", "/usr/bin/sqlite3"),
                          ("git", "/usr/bin/git"), ("perl", "/usr/bin/perl"), ("gcc", "/usr/bin/gcc"), ("g++", "/usr/bin/g++"), ("make", "/usr/bin/make")):
        if not os.path.exists(path):
            missing.append(package)
    if not missing:
        return
    if not shutil.which("apt-get"):
        print(f"bench: no apt-get; left out: {' '.join(missing)}", file=sys.stderr)
        return
    print(f"bench: installing {' '.join(missing)}", file=sys.stderr)
    root = [] if os.geteuid() == 0 else ["sudo"]
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = root + ["apt-get", "install", "--quiet=2", "--yes", "--no-install-recommends"] + missing
    if subprocess.run(install, env=environment, stdout=subprocess.DEVNULL).returncode != 0:
        subprocess.run(root + ["apt-get", "update", "--quiet=2"], env=environment, stdout=subprocess.DEVNULL)
        subprocess.run(install, env=environment, stdout=subprocess.DEVNULL)


QUIET = {"stdout": subprocess.DEVNULL, "check": True}
COMPILED = ("libheapprof.so", "heapprof")


def compile_ours():
    subprocess.run(["cargo", "build", "--release", "--quiet", "--package", "heapprof-preload", "--package", "heapprof-symbolizer"], cwd=ROOT, **QUIET)


def older_than_sources():
    """Says in words which file is missing or older than the sources; None: no file. The tables name
    the commit of the sources."""
    for name, crates in zip(COMPILED, (("preload", "core", "format"), ("symbolizer", "core", "format")), strict=True):
        path = os.path.join(TARGET, "release", name)
        if not os.path.exists(path):
            return f"there is no {path}"
        sources = [os.path.join(folder, file) for crate in crates for folder, _, files in os.walk(os.path.join(ROOT, crate, "src")) for file in files]
        newest = max(sources, key=os.path.getmtime)
        if os.path.getmtime(path) < os.path.getmtime(newest):
            return f"{path} is older than {newest}"
    return None


def build():
    """Builds the workloads, and copies the library and the program. So a build meanwhile does not
    change what is measured."""
    os.makedirs(BENCH, exist_ok=True)
    for path in COMPILED:
        # Not over the old file: a process may have it mapped.
        shutil.copy2(os.path.join(TARGET, "release", path), os.path.join(BENCH, path + ".new"))
        os.replace(os.path.join(BENCH, path + ".new"), os.path.join(BENCH, path))
    archives = glob.glob(f"{TARGET}/release/build/tikv-jemalloc-sys-*/out/lib/libjemalloc_pic.a")
    newest = max(archives, key=os.path.getmtime)
    subprocess.run(["make", "-s", "-C", f"{SCRIPTS}/bench-workloads", f"OUT={BENCH}"], **QUIET)
    subprocess.run(["make", "-s", "-C", f"{SCRIPTS}/bench-baseline", f"OUT={BENCH}", f"JEMALLOC={newest}"], **QUIET)
    subprocess.run(["make", "-s", "-C", f"{ROOT}/c-fixtures", f"OUT={BENCH}", f"{BENCH}/idle"], **QUIET)


def first_line(*command):
    try:
        run = subprocess.run(command, capture_output=True, text=True)
        return (run.stdout or run.stderr).splitlines()[0].strip()
    except (OSError, IndexError):
        return "?"


def package_version(package):
    return first_line("dpkg-query", "--show", "--showformat=${Version}\n", package)


def commit():
    """Returns the commit of the working tree, with a + if the library's sources differ from it."""
    git = lambda *words: subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    head = git("rev-parse", "--short", "HEAD")
    if head.returncode != 0:
        return "of no commit"
    return head.stdout.strip() + ("+" if git("diff", "--quiet", "HEAD", "--", "preload", "core", "format").returncode else "")


def describe_machine():
    with open("/proc/cpuinfo") as file:
        cpu = re.search(r"model name\s*:\s*(.*)", file.read())
    with open("/proc/meminfo") as file:
        memory = int(re.search(r"MemTotal:\s*(\d+)", file.read())[1]) / 2**20
    system = "Linux"
    if os.path.exists("/etc/os-release"):
        with open("/etc/os-release") as file:
            system = (re.search(r'PRETTY_NAME="(.*)"', file.read()) or [None, system])[1]
    versions = [f"heapprof {commit()}", f"Debian's jemalloc {package_version('libjemalloc2')}", f"gperftools {package_version('libgoogle-perftools4')}",
                f"heaptrack {package_version('heaptrack')}", first_line("gcc", "--version"), first_line("rustc", "--version"),
                f"redis {package_version('redis-server')}", f"sqlite3 {package_version('sqlite3')}", first_line("/usr/bin/python3", "--version"),
                f"perl {package_version('perl')}", first_line("/usr/bin/git", "--version")]
    return {"cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(), "memory": f"{memory:.0f} GiB", "system": system,
            "kernel": platform.release(), "libc": " ".join(platform.libc_ver()), "versions": "; ".join(versions),
            "date": time.strftime("%Y-%m-%d"), "load_before": f"{os.getloadavg()[0]:.1f}"}
