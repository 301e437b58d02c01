//! Code made at run time: it has no unwind table, and what makes it mostly keeps frame pointers.
//!
//! A frame pointer leads to a caller. That the register is one, nobody says: in code that uses it for something else it may lead to any word.
//! So a caller is believed if it is code of a module, if it is in memory that is known to be executable (`made_code.rs`), or if what stands
//! before it in memory is a call. The second is known only some time after it was asked for, and the third not of everything: interpreters that
//! are made at run time put return addresses on the stack that stand after none (the JVM's).
//!
//! Shared by all walks. What is remembered is a number each, and belongs to nothing else: a hook that reads what another is writing
//! reads one or the other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use heapprof_core::is_after_call;

use crate::made_code;
use crate::memory::Memory;

/// The longest call instruction of x86-64 without prefixes that nobody writes, in bytes.
const LONGEST_CALL: usize = 7;

/// Return addresses outside all modules that were found to stand after a call. Where the code is taken away and other code put in its
/// place, an address may stay here that is none any more: then a walk that is led astray just there is led one frame further.
static RETURNS: Remembered = Remembered::nothing();

/// Places in such code whose frame pointer led to no caller. They are not asked about again for a while: memory is asked in four system
/// calls, and code without frame pointers would ask in each walk.
static ASTRAY: Remembered = Remembered::nothing();
static ANY_ASTRAY: AtomicBool = AtomicBool::new(false);

/// Whether `address`, to which the frame pointer leads at `from`, is a return address in code made at run time. That memory
/// may be anything, and may be gone.
pub(super) fn is_return(from: u64, address: u64) -> bool {
    if made_code::holds(address) || RETURNS.has(address) {
        return true;
    }
    if ASTRAY.has(from) {
        return false;
    }
    let is_return = stands_after_call(address);
    if is_return {
        RETURNS.keep(address);
    } else {
        ASTRAY.keep(from);
        ANY_ASTRAY.store(true, Ordering::Relaxed);
    }
    is_return
}

/// In the writer, now and then: other code may have come to where walks were led astray.
pub(crate) fn forget_astray() {
    if ANY_ASTRAY.swap(false, Ordering::Relaxed) {
        ASTRAY.forget();
    }
}

/// Asks memory.
#[cold]
fn stands_after_call(address: u64) -> bool {
    let in_page = (address.wrapping_sub(1) & 4095) as usize + 1;
    let memory = Memory::open();
    let mut code = [0; LONGEST_CALL];
    // The page before need not be there: the first call of a piece of code may be short.
    for len in [LONGEST_CALL, in_page.min(LONGEST_CALL)] {
        let code = &mut code[..len];
        if let Some(from) = address.checked_sub(len as u64)
            && memory.fill(from, code)
        {
            return is_after_call(code);
        }
    }
    false
}

/// A thousand addresses, the last at each place, in 8 KiB that are there once they are used.
struct Remembered([AtomicU64; 1 << Remembered::BITS]);

impl Remembered {
    const BITS: u32 = 10;

    const fn nothing() -> Remembered {
        Remembered([const { AtomicU64::new(0) }; 1 << Remembered::BITS])
    }

    /// Where that address is, if anywhere. Fibonacci hashing: neighbours are far from each other.
    fn place(&self, address: u64) -> &AtomicU64 {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> (64 - Remembered::BITS)) as usize]
    }

    /// Not to be asked of 0, where there is no code.
    fn has(&self, address: u64) -> bool {
        self.place(address).load(Ordering::Relaxed) == address
    }

    fn keep(&self, address: u64) {
        self.place(address).store(address, Ordering::Relaxed);
    }

    fn forget(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}
