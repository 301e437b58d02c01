//! Linking: what a preloaded library must ask of the linker.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every symbol is bound before the first instruction of ours runs: a lazy binding inside malloc
    // would enter the loader there, and needs more stack than a thread may have left.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,now");
    // Our own calls to our own functions stay ours, whatever else exports those names.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // Our constructor before those of the program's libraries: what they allocate is the program's, and
    // would be missing.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,initfirst");
    // A known name for tools, and for `heapprof run` to recognise it in LD_PRELOAD.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libheapprof.so");
    // An unmapped allocator is a crash in the next free: never unload.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Code begins at a page: go's pprof (1.19) takes the beginning of its mapping for the segment's, and would find other functions'
    // names for ours.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,separate-code");
    // An arena for which there is no memory: see spare.rs.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_rjem_je_base_new");
    // The end of a thread: see je_threads.rs.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=_rjem_je_tcache_cleanup");
    // Up to glibc 2.33 threads and dlsym are in libraries of their own, which a program may do without, and we not; so, then, may what it loads
    // later, which comes to our dlopen. Since then these are empty, and take the loader 0.06 ms (of 0.9 that we take: by hand, `/bin/true` a hundred times).
    println!(
        "cargo::rustc-cdylib-link-arg=-Wl,--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,--pop-state"
    );
    // Functions that an old libc does not have: see std_system.rs.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap=gettid,--wrap=statx");
}
