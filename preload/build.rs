//! Linker options of the preloaded library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every symbol is bound before the first instruction of the library runs. A lazy binding inside
    // malloc would enter the loader there, and needs more stack than a thread may have left.
    link_with("-z,now");
    // Calls within the library stay there, whatever else exports those names.
    link_with("-Bsymbolic");
    // The library's constructor runs before those of the program's libraries, whose allocations are
    // the program's and would be missing. (musl's loader does not know the flag, and begins with
    // preloaded libraries.)
    link_with("-z,initfirst");
    // A known name for tools, by which `heapprof run` recognises the library in LD_PRELOAD.
    link_with("-soname,libheapprof.so");
    // Never unload: after an unmapped allocator the next free crashes.
    link_with("-z,nodelete");
    // Code begins at a page: go's pprof (1.19) takes the beginning of the mapping for the
    // segment's, and would find wrong names for functions of the library.
    link_with("-z,separate-code");
    // Serves an arena for which there is no memory (`allocator/spare_arena.rs`).
    link_with("--wrap=_rjem_je_base_new");
    // Handles the end of a thread (`allocator/tcache_policy.rs`).
    link_with("--wrap=_rjem_je_tcache_cleanup");
    // jemalloc's system calls by number go to the kernel, and not through our own export: see
    // allocator/os_shims.rs.
    link_with("--wrap=syscall");
    // The same holds for its mappings, and for those of Rust's library.
    link_with("--wrap=mmap,--wrap=mmap64,--wrap=munmap,--wrap=sbrk");
    // And for the threads of both (`os/thread_shims.rs`).
    link_with("--wrap=pthread_create");
    match env::var("CARGO_CFG_TARGET_ENV").as_deref() {
        Ok("musl") => over_musl(),
        _ => over_glibc(),
    }
}

fn link_with(option: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
}

fn over_glibc() {
    // Up to glibc 2.33, threads and dlsym are in libraries of their own, which a program may lack
    // and this library needs. A library that the program loads later by our dlopen needs them, too.
    // In newer versions these libraries are empty, and cost the loader little.
    link_with("--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,--pop-state");
    // Functions that an old libc lacks (`os/std_shims.rs`).
    link_with("--wrap=gettid,--wrap=statx");
}

fn over_musl() {
    // Rust's library imports it weakly (`os/std_shims.rs`).
    link_with("--wrap=gettid");
    // musl's compiler makes none by default.
    link_with("--build-id");
    // jemalloc's fork handlers bypass the exported function of that name (`host/atfork/musl.rs`).
    link_with("--wrap=pthread_atfork");
    // A system with musl may lack libgcc_s.so.1, by which Rust's library unwinds. Rust's archive
    // for static programs takes its place: the linker finds a script of that name before all
    // others.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let unwinder = library_folder().join("self-contained/libunwind.a");
    assert!(unwinder.exists(), "no {}", unwinder.display());
    let script = format!("INPUT(\"{}\")\n", unwinder.display());
    fs::write(out.join("libgcc_s.so"), script).expect("the build's own folder");
    println!("cargo::rustc-link-search=native={}", out.display());
}

/// Returns the folder of Rust's library for the target.
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
