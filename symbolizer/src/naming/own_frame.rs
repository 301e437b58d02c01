//! Own frame: the frame of a stack to which the blocks of the stack belong.
//!
//! It is the innermost function that an interpreter ran; or else the innermost frame outside of
//! library code; or else the innermost frame.

use crate::model::profile::{CallStack, Place, Profile};

/// The own frame of a stack whose frames are given from the innermost outwards.
#[derive(Debug)]
pub(super) struct OwnFrame<T> {
    interpreted: Option<T>,
    of_program: Option<T>,
    innermost: Option<T>,
}

impl<T: Clone> OwnFrame<T> {
    pub(super) fn new() -> OwnFrame<T> {
        OwnFrame {
            interpreted: None,
            of_program: None,
            innermost: None,
        }
    }

    /// Adds the next frame: one of those of the place at that depth.
    pub(super) fn add(
        &mut self,
        profile: &Profile,
        stack: &CallStack,
        (depth, place): (usize, Place),
        is_library_code: bool,
        frame: &T,
    ) {
        self.innermost.get_or_insert_with(|| frame.clone());
        if !is_library_code && (depth > 0 || !stack.begins_with_ours) {
            self.of_program.get_or_insert_with(|| frame.clone());
        }
        if self.interpreted.is_none() && profile.is_interpreted(place) {
            self.interpreted = Some(frame.clone());
        }
    }

    /// `None`: the stack has no frames.
    pub(super) fn finish(self) -> Option<T> {
        self.interpreted.or(self.of_program).or(self.innermost)
    }
}
