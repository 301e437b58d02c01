"""The contestants: ways to run a program, with an allocator or a recorder."""

import os

from .places import DEBIAN_JE, HEAPTRACK, JE, OURS, TC


class Contestant:
    """A way to run a program: variables, a command in front, and what it is compared with.

    `base` is the same allocator without recording. `exact`: the contestant records every
    allocation. So it runs on fewer operations (for the pairs, on this `share`), and is compared
    with `base` on as many.
    """

    def __init__(self, name, base, library=None, variables=(), wrapper=(), exact=False, share=1.0, needs=None):
        self.name, self.base, self.library = name, base, library
        self.variables, self.wrapper = list(variables), list(wrapper)
        self.exact, self.share, self.needs = exact, share, needs

    @property
    def group(self):
        """The group that runs side by side: contestants that the goals compare to a hundredth, our
        other libraries, and peers."""
        if self.name in ("glibc", "je", "ours-512K"):
            return "closest"
        return "ours" if self.library in (OURS, JE) else "peers"

    def takes_part(self, round_):
        """Contestants without a goal take part in the first three rounds only."""
        return round_ < 3 or self.group == "closest" or self.name in ("ours-4K", "ours-1", "heaptrack")

    def there(self):
        return all(path is None or os.path.exists(path) for path in (self.library, self.needs))

    def run(self, directory):
        """Variables and command prefix, for a run whose files go to `directory`."""
        fill = lambda text: text.replace("DIR", directory)
        variables = [fill(variable) for variable in self.variables]
        if self.library:
            variables.append("LD_PRELOAD=" + self.library)
        return variables, [fill(word) for word in self.wrapper]


def debian_je(lg_sample):
    return [f"MALLOC_CONF=prof:true,prof_final:true,lg_prof_sample:{lg_sample},prof_prefix:DIR/jeprof"]


CONTESTANTS = [
    Contestant("glibc", "glibc"),
    Contestant("je", "je", JE),
    Contestant("je-own", "je", JE, ["_RJEM_MALLOC_CONF=oversize_threshold:8388608"]),
    Contestant("ours-512K", "je", OURS, ["HEAPPROF_SAMPLE_INTERVAL=524288"]),
    Contestant("ours-4K", "je", OURS, ["HEAPPROF_SAMPLE_INTERVAL=4096"]),
    Contestant("ours-off", "je", OURS, ["HEAPPROF_SAMPLE_INTERVAL=0"]),
    Contestant("jemalloc", "jemalloc", DEBIAN_JE),
    Contestant("jemalloc-512K", "jemalloc", DEBIAN_JE, debian_je(19)),
    Contestant("jemalloc-4K", "jemalloc", DEBIAN_JE, debian_je(12)),
    Contestant("tcmalloc", "tcmalloc", TC),
    Contestant("tcmalloc-512K", "tcmalloc", TC, ["TCMALLOC_SAMPLE_PARAMETER=524288"]),
    Contestant("ours-1", "je", OURS, ["HEAPPROF_SAMPLE_INTERVAL=1"], exact=True),
    Contestant("heaptrack", "glibc", wrapper=[HEAPTRACK, "-o", "DIR/heaptrack"], needs=HEAPTRACK, exact=True, share=2.0),
    Contestant("heaptrack-raw", "glibc", wrapper=[HEAPTRACK, "-r", "-o", "DIR/heaptrack"], needs=HEAPTRACK, exact=True, share=0.5),
    Contestant("jemalloc-1", "jemalloc", DEBIAN_JE, debian_je(0), exact=True, share=0.15),
    Contestant("tcmalloc-1", "tcmalloc", TC, ["HEAPPROFILE=DIR/hp"], exact=True, share=0.06),
]
BY_NAME = {contestant.name: contestant for contestant in CONTESTANTS}

# How they are called in tables.
TITLES = {
    "glibc": "glibc",
    "je": "our jemalloc, no hooks",
    "je-own": "the same with jemalloc's own options",
    "ours-512K": "heapprof 512 KiB",
    "ours-4K": "heapprof 4 KiB",
    "ours-off": "heapprof off (0)",
    "ours-1": "heapprof, every allocation",
    "jemalloc": "jemalloc",
    "jemalloc-512K": "jemalloc prof 512 KiB",
    "jemalloc-4K": "jemalloc prof 4 KiB",
    "jemalloc-1": "jemalloc prof, every allocation",
    "tcmalloc": "tcmalloc",
    "tcmalloc-512K": "tcmalloc sampling 512 KiB",
    "tcmalloc-1": "gperftools HEAPPROFILE",
    "heaptrack": "heaptrack",
    "heaptrack-raw": "heaptrack -r",
}
