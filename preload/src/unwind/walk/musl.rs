//! Through musl's own code, which has no unwind tables.

use heapprof_core::{Epilogue, Frame};
use heapprof_format::WalkEnd;

use super::Step;
use crate::state::thread::Entered;
use crate::unwind::musl_code;
use crate::unwind::walker::Walker;

impl Step {
    /// Goes on to the caller of a frame of libc's. The walk's end, if there is none.
    #[cold]
    pub(super) fn leave_libc(&mut self, entered: &Entered, walker: &mut Walker) -> Option<WalkEnd> {
        let place = self.place;
        let fresh = &mut walker.fresh;
        match musl_code::way_out(place.address, place.returns, self.module_number) {
            Epilogue::Returns(rule) => {
                fresh.push(self.frame());
                let words = self.stack.words();
                let caller = fresh.last_mut().and_then(|frame| frame.unwind(rule, words));
                let Some(caller) = caller else {
                    return Some(WalkEnd::StackUnreadable);
                };
                if caller.address == self.signal_return {
                    // The trampoline's frame: its words are not all noted.
                    fresh.last_mut().map(Frame::note_more);
                    return self.cross_signal(entered, walker, caller.sp).err();
                }
                if place.returns {
                    walker.rules.insert(place.address, rule);
                }
                self.place = caller;
                None
            }
            Epilogue::Never => {
                fresh.push(self.frame());
                Some(WalkEnd::Root)
            }
            Epilogue::Unknown => {
                fresh.push(self.frame());
                Some(WalkEnd::NoRule)
            }
        }
    }
}
