//! The words for `heapprof attach` and `heapprof detach`, which read and write them from outside,
//! and the right of a thread of the program to change entries ([`Changes`]).

use std::sync::atomic::Ordering;

use heapprof_format::{AttachBlock, attach_state};

use crate::os::sys;

/// The block. The other program finds it by the name of its symbol.
#[unsafe(no_mangle)]
#[used]
pub(crate) static heapprof_attach_block: AttachBlock = AttachBlock::new();

/// Returns true if the recording is to end. For the writer.
pub(crate) fn is_end_asked() -> bool {
    let state = heapprof_attach_block.state.load(Ordering::Acquire);
    [attach_state::ENDING, attach_state::ENDING_QUIET].contains(&state)
}

/// Returns true if no thread of the program is in this library any more, so that what hooks work
/// with can be freed. For the writer.
pub(crate) fn is_release_asked() -> bool {
    heapprof_attach_block.state.load(Ordering::Acquire) == attach_state::ENDING_QUIET
}

/// Announces that the log is complete. For the writer.
pub(crate) fn tell_ended() {
    let state = &heapprof_attach_block.state;
    for ending in [attach_state::ENDING, attach_state::ENDING_QUIET] {
        let _ = state.compare_exchange(
            ending,
            attach_state::ENDED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// The right to change the list of patches and the entries. One thread has it at a time.
///
/// `heapprof detach` restores the listed entries while all threads are stopped and nobody has this
/// right. From then on nobody gets it.
pub(crate) struct Changes(());

impl Changes {
    /// Takes the right. `None`: another thread has it, or the recording is about to end.
    pub(crate) fn begin() -> Option<Changes> {
        let taken = heapprof_attach_block.state.compare_exchange(
            attach_state::PATCHED,
            attach_state::CHANGING,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        taken.is_ok().then_some(Changes(()))
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // Fails in a forked child, which has forgotten the recording.
        let _ = heapprof_attach_block.state.compare_exchange(
            attach_state::CHANGING,
            attach_state::PATCHED,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
}

/// Notes that the block belongs to this process.
pub(crate) fn note_process() {
    heapprof_attach_block
        .pid
        .store(sys::getpid(), Ordering::Relaxed);
}
