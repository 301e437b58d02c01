//! Any bytes as an input of the program: a log, a dump, a bundle, a profile of gperftools, jemalloc
//! or pprof.
#![no_main]

use heapprof_symbolizer::Input;
use heapprof_symbolizer::Symbols;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::search_addresses;
use libfuzzer_sys::fuzz_target;
use std::io;
use std::path::PathBuf;
use std::sync::LazyLock;

static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| PathBuf::from(format!("/dev/shm/heapprof-fuzz-input.{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    let _ = std::fs::remove_file(&*FILE);
    if std::fs::write(&*FILE, bytes).is_err() {
        return;
    }
    let Ok(profile) = Input::open(&FILE).and_then(|input| input.read(|_| ())) else {
        return;
    };
    let _ = search_addresses(bytes, &[0, 0x1000, u64::MAX], |_| ());
    // An input that was read can be written, in a form with text and in one with numbers.
    let symbols = Symbols::none(&profile);
    for format in [Format::Symbolized, Format::Pprof] {
        let _ = format.write(&profile, &symbols, &Options::default(), &mut io::sink());
    }
});
