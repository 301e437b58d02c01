//! Linking: what a preloaded library must ask of the linker.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every symbol is bound before the first instruction of ours runs: a lazy binding inside malloc
    // would enter the loader there, and needs more stack than a thread may have left.
    link_with("-z,now");
    // Our own calls to our own functions stay ours, whatever else exports those names.
    link_with("-Bsymbolic");
    // Our constructor before those of the program's libraries: what they allocate is the program's, and
    // would be missing. (musl's loader does not know the flag, and begins with what is preloaded.)
    link_with("-z,initfirst");
    // A known name for tools, and for `heapprof run` to recognise it in LD_PRELOAD.
    link_with("-soname,libheapprof.so");
    // An unmapped allocator is a crash in the next free: never unload.
    link_with("-z,nodelete");
    // Code begins at a page: go's pprof (1.19) takes the beginning of its mapping for the segment's, and would find other functions'
    // names for ours.
    link_with("-z,separate-code");
    // An arena for which there is no memory: see allocator/spare_arena.rs.
    link_with("--wrap=_rjem_je_base_new");
    // The end of a thread: see allocator/tcache_policy.rs.
    link_with("--wrap=_rjem_je_tcache_cleanup");
    match env::var("CARGO_CFG_TARGET_ENV").as_deref() {
        Ok("musl") => over_musl(),
        _ => over_glibc(),
    }
}

fn link_with(option: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
}

fn over_glibc() {
    // Up to glibc 2.33 threads and dlsym are in libraries of their own, which a program may do without, and we not; so, then, may what it loads
    // later, which comes to our dlopen. Since then these are empty, and take the loader 0.06 ms (of 0.9 that we take: by hand, `/bin/true` a hundred times).
    link_with("--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,--pop-state");
    // Functions that an old libc does not have: see os/std_shims.rs.
    link_with("--wrap=gettid,--wrap=statx");
}

fn over_musl() {
    // Rust's library imports it weakly: see os/std_shims.rs.
    link_with("--wrap=gettid");
    // musl's compiler does not ask for one by itself.
    link_with("--build-id");
    // jemalloc's handlers of forks go past the exported function of that name: see host/atfork/musl.rs.
    link_with("--wrap=pthread_atfork");
    // An image of musl's need not have libgcc_s.so.1, which Rust's library unwinds with. What Rust brings for programs that are linked
    // statically takes its place: a script of that name for the linker, found before all others.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let unwinder = library_folder().join("self-contained/libunwind.a");
    assert!(unwinder.exists(), "no {}", unwinder.display());
    let script = format!("INPUT(\"{}\")\n", unwinder.display());
    fs::write(out.join("libgcc_s.so"), script).expect("the build's own folder");
    println!("cargo::rustc-link-search=native={}", out.display());
}

/// Where Rust's library for the target is.
fn library_folder() -> PathBuf {
    let compiler = env::var_os("RUSTC").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    let output = Command::new(compiler)
        .args(["--print", "target-libdir", "--target", &target])
        .output()
        .expect("the compiler runs");
    let folder = String::from_utf8(output.stdout).expect("a path");
    Path::new(folder.trim()).to_owned()
}
