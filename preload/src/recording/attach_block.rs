//! The words for `heapprof attach` and `heapprof detach`, which read and write them from outside.

use std::sync::atomic::Ordering;

use heapprof_format::{AttachBlock, attach_state};

use crate::os::sys;

/// The block. The other program finds it by the name of its symbol.
#[unsafe(no_mangle)]
#[used]
pub(crate) static heapprof_attach_block: AttachBlock = AttachBlock::new();

/// Returns true if the recording is to end. For the writer.
pub(crate) fn is_end_asked() -> bool {
    heapprof_attach_block.state.load(Ordering::Acquire) == attach_state::ENDING
}

/// Announces that the log is complete. For the writer.
pub(crate) fn tell_ended() {
    let state = &heapprof_attach_block.state;
    let ending = attach_state::ENDING;
    let _ = state.compare_exchange(
        ending,
        attach_state::ENDED,
        Ordering::AcqRel,
        Ordering::Relaxed,
    );
}

/// Notes the process that the block belongs to.
pub(crate) fn note_process() {
    heapprof_attach_block
        .pid
        .store(sys::getpid(), Ordering::Relaxed);
}
