"""Machine: packages that a suite needs, and sources that it is built from, both from apt.

The lists of source packages are kept in `target/suites`, so the machine's own lists stay as they
are. Sources and builds stay there for the next run.
"""

import glob
import os
import shutil
import subprocess
import sys

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(SCRIPTS)
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
LIBRARY = os.path.join(TARGET, "release", "libheapprof.so")
SUITES = os.path.join(TARGET, "suites")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def install(packages):
    """Installs packages with apt. `packages`: {package: a path of it}."""
    missing = [package for package, path in packages.items() if not os.path.exists(path)]
    if missing and subprocess.run([os.path.join(SCRIPTS, "install-deps"), "packages", *(f"{package}:" for package in missing)]).returncode != 0:
        sys.exit(f"real-suites: cannot install {' '.join(missing)}; leave the suite out with --suites")


def source(package):
    """Unpacks Debian's source of a package into `target/suites`, and returns its folder."""
    folder = os.path.join(SUITES, package)
    unpacked = unpacked_in(folder)
    if unpacked:
        return unpacked
    install({"dpkg-dev": "/usr/bin/dpkg-source", "patch": "/usr/bin/patch"})
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(folder, part))
    with open(os.path.join(folder, "sources.list"), "w") as file:
        file.writelines(source_lists())
    apt = ["apt-get", "--quiet=2", "-o", f"Dir::Etc::SourceList={folder}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
    if os.geteuid() == 0:
        # apt's own user may not write into this folder.
        apt += ["-o", "APT::Sandbox::User=root"]
    do(apt + ["update"], folder, f"cannot read the list of source packages for {package}")
    do(apt + ["source", package], folder, f"cannot fetch the source of {package}")
    return unpacked_in(folder) or sys.exit(f"real-suites: apt-get source {package} left no folder in {folder}")


def unpacked_in(folder):
    return next((os.path.dirname(os.path.dirname(path)) for path in glob.glob(f"{folder}/*/debian/control")), None)


def source_lists():
    """Lines of deb-src for each archive of Debian that the machine takes packages from."""
    if not shutil.which("apt-get"):
        sys.exit("real-suites: no apt-get here, so no sources of suites; leave these suites out with --suites")
    command = ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    archives = {line for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines() if line.startswith("Debian ")}
    if not archives:
        sys.exit("real-suites: apt knows no archive of Debian, so no sources of suites; run apt-get update, or leave these suites out with --suites")
    signed = f"[signed-by={KEYRING}] " if os.path.exists(KEYRING) else ""
    # apt takes equal versions from the first archive. Some mirrors of security updates have no
    # sources.
    return [f"deb-src {signed}{archive.removeprefix('Debian ')}\n" for archive in sorted(archives, key=lambda archive: ("security" in archive, archive))]


def build(commands, folder, what):
    for command in commands:
        do(command, folder, f"cannot build {what}")


def do(command, folder, failure):
    """Runs a step in silence, without the library; if it fails, shows its last lines and ends."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    ended = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if ended.returncode != 0:
        print("\n".join(ended.stdout.splitlines()[-20:]), file=sys.stderr)
        sys.exit(f"real-suites: {failure} (`{' '.join(command)}`); leave the suite out with --suites")
