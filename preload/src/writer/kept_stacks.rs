//! Kept stack: the frames of a logged stack, kept in memory for dumps and checkpoints.

use heapprof_format::WalkEnd;

/// The frames of one stack, and the end of its walk.
pub(crate) struct KeptStack {
    pub(crate) frames: Box<[u64]>,
    pub(crate) interrupted: Box<[u32]>,
    pub(crate) end: WalkEnd,
    pub(crate) labels: Box<[(String, String)]>,
}

impl KeptStack {
    /// Returns the addresses as a dump has them. Readers of dumps subtract one from all but the
    /// first, so the address of an interrupted frame is written plus one.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        let frames = self.frames.iter().enumerate();
        frames.map(|(at, &frame)| frame + u64::from(self.interrupted.contains(&(at as u32))))
    }
}
