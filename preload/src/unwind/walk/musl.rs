//! The unwinding of musl's own code, which has no unwind tables.

use heapprof_core::{Epilogue, Frame};
use heapprof_format::WalkEnd;

use super::Walk;
use crate::state::thread::Entered;
use crate::unwind::musl_code;
use crate::unwind::walker::Walker;

impl Walk {
    /// Continues at the caller of a frame in libc. Returns the walk's end if there is no caller.
    #[cold]
    pub(super) fn leave_libc(&mut self, entered: &Entered, walker: &mut Walker) -> Option<WalkEnd> {
        let place = self.place;
        let new_frames = &mut walker.new_frames;
        match musl_code::find_epilogue(place.address, place.returns, self.module_number) {
            Epilogue::Returns(rule) => {
                new_frames.push(self.frame());
                let words = self.stack.words();
                let caller = new_frames
                    .last_mut()
                    .and_then(|frame| frame.unwind(rule, words));
                let Some(caller) = caller else {
                    return Some(WalkEnd::StackUnreadable);
                };
                if caller.address == self.signal_return {
                    // The words of the trampoline's frame are not all noted.
                    new_frames.last_mut().map(Frame::note_more);
                    return self.cross_signal(entered, walker, caller.sp).err();
                }
                if place.returns {
                    walker.rules.insert(place.address, rule);
                }
                self.place = caller;
                None
            }
            Epilogue::Never => {
                new_frames.push(self.frame());
                Some(WalkEnd::Root)
            }
            Epilogue::Unknown => {
                new_frames.push(self.frame());
                Some(WalkEnd::NoRule)
            }
        }
    }
}
