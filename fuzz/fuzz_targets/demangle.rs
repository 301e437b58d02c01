//! Any text as a mangled name: alone, and behind the prefix of each scheme.
#![no_main]

use heapprof_symbolizer::resolve::demangle;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = demangle(text);
    let _ = demangle(&format!("_Z{text}"));
    let _ = demangle(&format!("_R{text}"));
});
