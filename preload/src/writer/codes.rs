//! Codes: the functions of interpreters that stacks name, each logged once.
//!
//! A hook names a code object by a hash of its memory. The log has addresses by a hash of what the
//! object says of itself, which are the same in all processes and after a fork.

use heapprof_core::{NumberMap, SentStack, code_of_words};
use heapprof_format::{CODE_LEN, Code, code_start, is_code_address};

/// See the module's text.
#[derive(Default)]
pub(super) struct Codes {
    /// The first address in the log, by that in a lane.
    starts: NumberMap<u64, u64>,
    /// The first addresses of all that are logged.
    logged: NumberMap<u64, ()>,
}

impl Codes {
    /// Takes a code object that came out of a lane. Returns the function, if it is new to the log.
    pub(super) fn take(&mut self, sent: &SentStack) -> Option<Code> {
        let code = code_of_words(&sent.frames)?;
        self.starts.insert(code_start(sent.hash), code.start);
        self.logged.insert(code.start, ()).is_none().then_some(code)
    }

    /// Replaces the addresses of functions, as they are in a lane, by those in the log.
    pub(super) fn replace_addresses(&self, frames: &mut [u64]) {
        for frame in frames.iter_mut().filter(|frame| is_code_address(**frame)) {
            let instruction = *frame % CODE_LEN;
            if let Some(start) = self.starts.get(&(*frame - instruction)) {
                *frame = start + instruction;
            }
        }
    }
}
