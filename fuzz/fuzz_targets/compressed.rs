//! Any bytes as a compressed file, and a compressed file with some bytes changed: what is unpacked
//! is within its bound, and the standard decoder agrees where a file is whole.
#![no_main]

use heapprof_symbolizer::{pack, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    unpacked(bytes);
    // The first bytes say where others are changed; the rest is a log.
    let Some((changes, log)) = bytes.split_at_checked(4) else {
        return;
    };
    let log = [&heapprof_format::FILE_HEADER[..], log].concat();
    let mut packed = Vec::new();
    pack(&log, &mut packed, |_| {}).expect("a vector takes all");
    assert!(unpacked(&packed) == Some((log, true)));
    for change in changes.chunks_exact(2) {
        let at = usize::from(change[0]) * packed.len() / 256;
        packed[at] ^= change[1];
    }
    unpacked(&packed);
});

/// The content of a compressed file, and whether it is whole.
fn unpacked(bytes: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut out = Vec::new();
    let unpacked = unpack(bytes, &mut out, |_| {}).ok()?;
    assert!(unpacked.length == out.len() as u64);
    assert!(out.len() <= bytes.len() * 1024 + (16 << 20));
    Some((out, unpacked.damage.is_none()))
}
