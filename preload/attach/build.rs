//! Linker options of the library that is loaded into a running program.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every symbol is bound before the first instruction of the library runs. A lazy binding inside
    // a tapped malloc would enter the loader there.
    link_with("-z,now");
    // Calls within the library stay there.
    link_with("-Bsymbolic");
    link_with("-soname,libheapprof-attach.so");
    // Never unload: a thread may be in its code, and libc has the addresses of its fork handlers.
    link_with("-z,nodelete");
    link_with("-z,separate-code");
    // Functions that an old libc lacks (`os/std_shims.rs`).
    link_with("--wrap=gettid,--wrap=statx");
    // Rust's library maps memory by libc's functions (`os/mapping_shims.rs`).
    link_with("--wrap=mmap,--wrap=mmap64,--wrap=munmap,--wrap=sbrk");
    // And it makes threads (`os/thread_shims.rs`).
    link_with("--wrap=pthread_create");
}

fn link_with(option: &str) {
    println!("cargo::rustc-cdylib-link-arg=-Wl,{option}");
}
