"""World: a recorded program, the page of its log, and a browser that shows the page."""

import glob
import json
import os
import subprocess
import tempfile

from counterparts.environment import HEAPPROF, LIBRARY, ROOT, TARGET, check

FOLDER = os.path.join(ROOT, "target", "report-page")
PICTURES = os.path.join(FOLDER, "pictures")
LONG_PATH = "/home/someone/projects/of-the-department/server/requests-and-sessions/source"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")


def heapprof(*words):
    out = subprocess.run([HEAPPROF, *words], capture_output=True, text=True, timeout=300)
    check(out.returncode == 0, f"heapprof {' '.join(words)}: {out.stderr}")
    return out.stdout


class World:
    """The program's log and page, made once, in a folder of their own."""

    def __init__(self, playwright):
        self.folder = tempfile.TemporaryDirectory()
        sources = os.path.join(ROOT, "scripts", "page")
        self.program = os.path.join(self.folder.name, "server")
        # A path that is too long for the table, wherever the sources are.
        mapped = f"-ffile-prefix-map={sources}={LONG_PATH}"
        subprocess.run(["g++", "-std=c++17", "-O1", "-g", "-pthread", mapped, "-o", self.program,
                        os.path.join(sources, "program.cpp")], check=True)
        self.log, self.page_file = self.recorded("server")
        self.browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.faults = []
        self.pages = []

    def recorded(self, name, **settings):
        """Returns the log of a run of the program, without older segments, and its page."""
        log, page = (os.path.join(self.folder.name, f"{name}.{end}") for end in ("heaplog", "html"))
        environment = dict(os.environ, LD_PRELOAD=LIBRARY, HEAPPROFILE=os.path.join(self.folder.name, name),
                           HEAP_PROFILE_ALLOCATION_INTERVAL="0", HEAP_PROFILE_INUSE_INTERVAL="0")
        environment.update({"HEAPPROF_SAMPLE_INTERVAL": "4096", "HEAPPROF_MEMORY_INTERVAL_MS": "200", **settings})
        subprocess.run([self.program, "3000"], env=environment, check=True, timeout=600)
        # Those of a log that rotated.
        for segment in glob.glob(os.path.join(self.folder.name, f"{name}.*.heaplog")):
            os.remove(segment)
        heapprof("report", log, "-o", page)
        return log, page

    def json(self, command, *words):
        return json.loads(heapprof(command, "--json", *words, self.log))

    def page(self, scheme="light", width=1280, height=900, file=None, fragment=""):
        """Opens the page in a window of its own. All that goes wrong in it is kept."""
        context = self.browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", lambda said: self.faults.append(said.text) if said.type == "error" else None)
        page.goto(f"file://{file or self.page_file}{fragment}")
        page.wait_for_selector("#timeline path")
        self.pages.append(context)
        return page

    def close_pages(self):
        for context in self.pages:
            context.close()
        self.pages = []

    def close(self):
        self.browser.close()
        self.folder.cleanup()


def picture(page, name, **options):
    os.makedirs(PICTURES, exist_ok=True)
    page.screenshot(path=os.path.join(PICTURES, f"{name}.png"), **options)


__all__ = ["FOLDER", "PICTURES", "TARGET", "World", "heapprof", "picture"]
