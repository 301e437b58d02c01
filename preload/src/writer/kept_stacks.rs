//! A kept stack: the frames of a stack that the log has, for dumps and checkpoints.

use heapprof_format::WalkEnd;

/// See the module's text.
pub(crate) struct KeptStack {
    pub(crate) frames: Box<[u64]>,
    pub(crate) interrupted: Box<[u32]>,
    pub(crate) end: WalkEnd,
}

impl KeptStack {
    /// Its addresses as a dump has them: readers take one from all but the first, so one that was interrupted is told
    /// plus one.
    pub(crate) fn written(&self) -> impl Iterator<Item = u64> + '_ {
        let frames = self.frames.iter().enumerate();
        frames.map(|(at, &frame)| frame + u64::from(self.interrupted.contains(&(at as u32))))
    }
}
