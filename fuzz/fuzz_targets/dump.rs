//! Any bytes as a dump: a parsed dump can be written and parsed again, with the same account.
//! Mappings may change: contradictory ones are settled, and a build-id of one is given to others of
//! the same file.
#![no_main]

use heapprof_format::Dump;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(dump) = Dump::parse(bytes) else {
        return;
    };
    let once = rewritten(&dump);
    let twice = rewritten(&once);
    assert_eq!(once.lines, twice.lines);
    assert_eq!(once.symbols, twice.symbols);
});

fn rewritten(dump: &Dump) -> Dump {
    let mut bytes = Vec::new();
    dump.write(&mut bytes);
    Dump::parse(&bytes).expect("what we write, we read")
}
