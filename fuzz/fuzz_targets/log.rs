//! Any bytes as a log: every record is read and folded, damage is skipped, nothing panics or loops.
#![no_main]

use heapprof_core::{Estimate, Ledger, SizeClass};
use heapprof_format::{FILE_HEADER, ReadErrorKind, Reader, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As they are, and behind a good header, so that the fuzzer need not find it.
    walk(bytes);
    let log = [&FILE_HEADER[..], bytes].concat();
    walk(&log);
    // And as segments of a rotated log, one behind the other.
    walk(&[&log[..], &[0; 3], &log].concat());
});

fn walk(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else {
        return;
    };
    let mut ledger = Ledger::new();
    let mut offset = 0;
    loop {
        match reader.next_record() {
            Ok(Some(Record::Alloc(alloc))) => {
                ledger.alloc(alloc.id, alloc.stack, alloc.size, alloc.interval);
            }
            Ok(Some(Record::Free(free))) => {
                ledger.free(free.id);
            }
            Ok(Some(Record::Passed(passed))) => {
                let freed = Estimate::from_bits(passed.sums.samples, passed.sums.fixed);
                ledger.passed(passed.stack, SizeClass(passed.class), &freed);
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) if error.kind == ReadErrorKind::NotContinued => {
                // The error named the start of another log; this one ends there.
                assert!(matches!(reader.next_record(), Ok(None)), "it went on");
                return;
            }
            Err(error) => {
                assert!(error.offset >= offset, "the reader went backwards");
                offset = error.offset;
                if reader.skip_damage().is_none() && !reader.enter_cut_frame() {
                    return;
                }
            }
        }
    }
}
