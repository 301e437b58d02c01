//! Any bytes as a function whose entry is patched: a plan or a refusal, and the moved instructions
//! fit. The first bytes are the function's address and how far away the trampoline lies. Seeds are
//! functions with a prologue, a relative operand, a short branch, a call, and a jump.
#![no_main]

use heapprof_core::{EntryPatch, Refusal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u64, i64, &[u8])| {
    let (address, distance, code) = input;
    let Ok(patch) = EntryPatch::plan(code, address) else {
        return;
    };
    let first = patch.at().wrapping_sub(address) as usize;
    assert_eq!(patch.replaced(), &code[first..first + patch.len()]);
    for trampoline in [
        address.wrapping_add_signed(distance),
        address.wrapping_add(1 << 20),
    ] {
        let mut out = [0; EntryPatch::MOST_MOVED];
        match patch.write_moved(trampoline, &mut out) {
            Ok(_) | Err(Refusal::OutOfReach { .. }) => {}
            Err(refusal) => panic!("{refusal}"),
        }
        let _ = patch.jump(trampoline);
        let _ = patch.check_part(code, trampoline);
        let _ = patch.check_other(code, trampoline);
    }
});
