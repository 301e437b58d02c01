"""The workloads. Our own programs are in bench-workloads, each described at the head of its file;
data.py writes the input of the real programs."""

from .places import own


class Workload:
    """A program and its arguments. `%N` in the arguments becomes the number of operations: `n`, or
    `exact_n` for contestants that record every allocation. With `n` a run takes about 0.3 s, of
    which start-up (which has a goal of its own) is half a per cent. `live` is the number of blocks
    that are live at once, if it is known and matters. `threads` is the number of threads that
    allocate."""

    def __init__(self, name, command, n, exact_n, quick=False, live=0, threads=1, kind="own", variables=()):
        self.name, self.command, self.n, self.exact_n = name, command, n, exact_n
        self.quick, self.live, self.threads, self.kind, self.variables = quick, live, threads, kind, list(variables)

    def argv(self, n):
        return [word.replace("%N", str(n)) for word in self.command]


def workloads(data):
    """All of them; real programs work on files in `data`, which `prepare_data` writes."""
    return [
        Workload("pair, 64 bytes", [own("pair"), "%N", "64"], 50_000_000, 500_000, quick=True),
        Workload("pair, mixed sizes", [own("pair"), "%N", "0"], 40_000_000, 500_000),
        Workload("pair, mixed, depth 10", [own("pair"), "%N", "0", "10"], 15_000_000, 500_000),
        Workload("pair, mixed, depth 40", [own("pair"), "%N", "0", "40"], 4_000_000, 300_000),
        Workload("pair, mixed, depth 40, 1000 stacks", [own("pair"), "%N", "0", "40", "1000"], 2_500_000, 200_000, quick=True),
        Workload("pair, 64 bytes, 2 threads", [own("pair"), "%N", "64", "1", "1", "2"], 25_000_000, 250_000, quick=True, threads=2),
        Workload("pair, mixed, depth 10, 2 threads", [own("pair"), "%N", "0", "10", "1", "2"], 8_000_000, 250_000, threads=2),
        Workload("calloc, mixed sizes", [own("ways"), "calloc", "%N"], 30_000_000, 500_000),
        Workload("aligned to 64, mixed sizes", [own("ways"), "aligned", "%N"], 25_000_000, 500_000),
        Workload("realloc of nothing, mixed sizes", [own("ways"), "nothing", "%N"], 40_000_000, 500_000),
        Workload("live set, 10,000 small", [own("live"), "%N", "10000"], 20_000_000, 300_000, live=10_000),
        Workload("live set, 200,000 small", [own("live"), "%N", "200000"], 7_000_000, 600_000, quick=True, live=190_000),
        Workload("live set, 10,000 up to 4 KiB", [own("live"), "%N", "10000", "4096"], 7_000_000, 300_000, live=10_000),
        Workload("live set, 200 of 4 to 32 KiB", [own("live"), "%N", "200", "32768", "4096"], 7_000_000, 300_000, live=200),
        Workload("live set, 1,000,000 up to 1 KiB", [own("live"), "%N", "1000000", "1024"], 3_000_000, 600_000, live=450_000),
        Workload("freed by another thread", [own("cross"), "%N"], 15_000_000, 300_000, quick=True, threads=2),
        Workload("realloc growth, in place", [own("grow"), "%N", "16", "1"], 15_000_000, 300_000, quick=True),
        Workload("realloc growth, moving", [own("grow"), "%N", "512", "32"], 3_000_000, 300_000),
        Workload("large blocks, 64 KiB to 1 MiB", [own("large"), "%N", "1024"], 500_000, 10_000, quick=True),
        Workload("large blocks, 64 KiB to 16 MiB", [own("large"), "%N", "16384"], 100_000, 3_000),
        Workload("short threads", [own("threads"), "%N", "100"], 5_000, 2_000, quick=True, threads=2),
        Workload("C++ strings", [own("containers"), "%N", "strings"], 16_000, 1_000),
        Workload("C++ containers", [own("containers"), "%N", "maps"], 7_000, 600, quick=True),
        Workload("Rust collections", [own("collections"), "%N"], 8_000, 600, quick=True),
        Workload("python3", ["/usr/bin/python3", "-I", "-S", f"{data}/work.py", "%N"], 6, 1, quick=True, kind="real",
                 variables=["PYTHONMALLOC=malloc", "PYTHONHASHSEED=0"]),
        Workload("sqlite3", ["/usr/bin/sqlite3", ":memory:", f".read {data}/work-%N.sql"], 50, 3, kind="real"),
        Workload("redis", ["redis", "%N"], 80_000, 10_000, quick=True, kind="real"),
        Workload("gcc -O1", [f"{data}/cc1", "-quiet", "-O1", f"{data}/work-%N.c", "-o", "/dev/null"], 150, 40, quick=True, kind="real"),
        Workload("git", ["/usr/bin/git", "-C", f"{data}/repo", "pack-objects", "-q", "--all", "--no-reuse-delta", "--no-reuse-object",
                         "--threads=1", "--window=%N", f"{data}/pack"], 20, 2, kind="real"),
        Workload("perl", ["/usr/bin/perl", f"{data}/work.pl", "%N"], 30, 1, kind="real"),
    ]
