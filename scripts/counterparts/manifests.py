"""Manifests: the examples of a document, checked by the schemas of their readers."""

import os
import re
import subprocess
import tempfile

from .environment import HEAPPROF, ROOT, check


def blocks_of(document):
    """Returns (kind, text) of the code blocks of a document."""
    with open(os.path.join(ROOT, "docs", document)) as file:
        return re.findall(r"```(yaml|ini|river)\n(.*?)```", file.read(), re.DOTALL)


def check_units(units):
    """Units of systemd, by name: all of them together, as one needs another."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in units.items():
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "w") as file:
                # The program and the user of the example are not on this machine.
                file.write(text.replace("/usr/bin/heapprof", HEAPPROF).replace("User=server", "User=root"))
        out = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True,
                             env=dict(os.environ, SYSTEMD_UNIT_PATH=folder + ":"))
        said = [line for line in out.stderr.splitlines() if "heapprof" in line]
        check(out.returncode == 0 and not said, out.stderr)


def check_kubernetes(document):
    """An object by Kubernetes' schema. Returns the arguments of its containers of heapprof."""
    import kubernetes_validate

    kubernetes_validate.validate(document, "1.33", strict=True)
    spec = document.get("spec", {})
    spec = spec.get("template", {}).get("spec", spec)
    containers = spec.get("initContainers", []) + spec.get("containers", [])
    return [it["args"] for it in containers if it.get("command") == ["heapprof"]]
