//! Kept stack: the frames of a logged stack, kept in memory for dumps and checkpoints.

use heapprof_format::{WalkEnd, is_code_address};

/// The frames of one stack, and the end of its walk.
pub(crate) struct KeptStack {
    pub(crate) frames: Box<[u64]>,
    pub(crate) interrupted: Box<[u32]>,
    pub(crate) end: WalkEnd,
    pub(crate) labels: Box<[(String, String)]>,
}

impl KeptStack {
    /// Returns the addresses as a dump has them. Readers of dumps subtract one from all but the
    /// first, so the address of an interrupted frame is written plus one. Functions of interpreters
    /// are left out: dumps have no names.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        let frames = self.frames.iter().enumerate();
        frames
            .filter(|(_, frame)| !is_code_address(**frame))
            .map(|(at, &frame)| frame + u64::from(self.interrupted.contains(&(at as u32))))
    }
}
