"""Archives: allocators from crates' sources, compiled as a C program would link them."""

import json
import os
import subprocess


def sources(folder):
    """Returns the folders of the crates that the manifest in `folder` names, by crate."""
    metadata = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--all-features"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return {it["name"]: os.path.dirname(it["manifest_path"]) for it in json.loads(metadata)["packages"]}


def compiled(output, source, flags):
    """Compiles a file, unless it is there. Returns the object file."""
    if not os.path.exists(output):
        os.makedirs(os.path.dirname(output), exist_ok=True)
        compiler = "gcc" if source.endswith(".c") else "g++"
        subprocess.run([compiler, "-O3", "-g1", "-DNDEBUG", "-fPIC", "-ftls-model=initial-exec", *flags, "-c", source, "-o", output], check=True)
    return output


def mimalloc(crates, folder, version, prefix):
    """Compiles mimalloc. Without a prefix, it defines the usual names, too."""
    root = os.path.join(crates["libmimalloc-sys"], "c_src", "mimalloc", version)
    flags = ["-I", os.path.join(root, "include"), *([] if prefix else ["-DMI_MALLOC_OVERRIDE"])]
    output = os.path.join(folder, f"mimalloc-{version}{'-prefixed' if prefix else ''}.o")
    return compiled(output, os.path.join(root, "src", "static.c"), flags)


def snmalloc(crates, folder):
    """Compiles snmalloc under the usual names."""
    root = os.path.join(crates["snmalloc-sys"], "snmalloc", "src")
    flags = ["-std=c++20", "-mcx16", "-fno-exceptions", "-fno-rtti", "-DSNMALLOC_USE_WAIT_ON_ADDRESS=0", "-I", root]
    return compiled(os.path.join(folder, "snmalloc.o"), os.path.join(root, "snmalloc", "override", "malloc.cc"), flags)


def every(crates, folder, jemalloc):
    """Compiles all. Returns pairs of a prefix and a file. `jemalloc` is the crate's archive."""
    pairs = [("", snmalloc(crates, folder)), ("_rjem_", jemalloc)]
    for version in ("v2", "v3"):
        pairs += [(prefix, mimalloc(crates, folder, version, prefix)) for prefix in ("", "mi_")]
    return pairs
