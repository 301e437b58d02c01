//! Any text as lines of /proc/self/maps.
#![no_main]

use heapprof_format::Mapping;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for line in text.lines() {
        if let Some(mapping) = Mapping::parse(line) {
            assert!(mapping.start <= mapping.end);
        }
    }
});
