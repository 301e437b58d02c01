//! Log gap: what the writer does if the disk stays full.
//!
//! ```text
//!   first segment      ── records ──┤ wait in memory ├┄┄┄┄ dropped ┄┄┄┄┤
//!   account                                          ├─────────────────┼──────
//!   second segment                                     full · full · full · checkpoint ── records
//! ```
//!
//! Records wait in memory as long as they are few. Then the writer drops them, and keeps the
//! account of what is in use. As soon as there is room, another segment begins with a checkpoint:
//! all sums are exact, and the times of what came and went in the gap are lost. The segment skips a
//! number, so a reader does not take it for the continuation of the one before, whose file stays
//! under a name of its own.
//!
//! An idle writer is not woken to try. The next event, or the end of the program, does.

use super::Writer;
use crate::recording::session::Session;

impl Writer {
    /// Begins a gap if more records wait than may. If that cannot be, the log ends.
    pub(super) fn begin_gap_if_overfull(&mut self, session: &Session) {
        if !self.output.is_overfull() {
            return;
        }
        // An unfinished dump may have taken the room for the end of this segment.
        if let Some(dumps) = &mut self.dumps {
            dumps.abandon();
        }
        if self.ensure_rotation(session).is_err() {
            return self.output.give_up_full_log();
        }
        if let Some(rotation) = &mut self.rotation {
            rotation.segments.skip_number();
        }
        self.output.begin_gap();
    }

    /// Ends the gap if there is room by now: the log is about to end.
    pub(super) fn end_gap_now(&mut self, session: &Session) {
        if self.output.has_gap() {
            self.output.retry_now();
            self.rotate_if_full(session);
        }
    }
}
