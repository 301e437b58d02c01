//! Life: whether the process of a log still runs.

use std::time::Duration;

use crate::model::run::{Ending, Run};
use crate::presence;

/// A log that has not changed for so long, of a process that cannot be seen, is a process's that is
/// gone.
const SILENCE: Duration = Duration::from_secs(60);

/// Whether a process runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Life {
    #[default]
    Running,
    /// The log says so.
    Ended,
    /// The log has no end, and no such process is seen.
    Gone,
}

impl Life {
    /// That of a run. `silence` is the time since its log was last written, if that is known.
    pub(crate) fn of(run: &Run, silence: Option<Duration>) -> Life {
        if let Ending::Said(_) = run.ending {
            return Life::Ended;
        }
        match presence::is_there(run.pid, &run.program) {
            Some(true) => Life::Running,
            _ if silence.is_some_and(|silence| silence < SILENCE) => Life::Running,
            _ => Life::Gone,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Life::Running => "running",
            Life::Ended => "ended",
            Life::Gone => "gone",
        }
    }
}

/// Notes that the process of a log without an end is seen to run.
pub fn note_life(run: &mut Run) {
    if run.ending == Ending::CutOff && Life::of(run, None) == Life::Running {
        run.ending = Ending::Running;
    }
}

/// Resident bytes of a process that runs here.
pub(crate) fn resident(run: &Run) -> Option<u64> {
    presence::is_there(run.pid, &run.program).filter(|is_there| *is_there)?;
    presence::resident_bytes(run.pid)
}

#[cfg(test)]
mod tests {
    use heapprof_format::EndReason;

    use super::*;

    #[test]
    fn a_process_runs_until_its_log_ends_or_it_is_gone_in_silence() {
        let exe = std::env::current_exe().unwrap();
        let this = Run {
            pid: std::process::id(),
            program: exe.to_string_lossy().into_owned(),
            ..Run::default()
        };
        let long = Some(SILENCE * 2);
        assert_eq!(Life::of(&this, long), Life::Running);
        let other = Run {
            program: "/another".into(),
            ..this.clone()
        };
        assert_eq!(Life::of(&other, long), Life::Gone);
        assert_eq!(Life::of(&other, Some(SILENCE / 2)), Life::Running);
        let ended = Run {
            ending: Ending::Said(EndReason::Exit),
            ..this.clone()
        };
        assert_eq!(Life::of(&ended, None), Life::Ended);
        assert!(resident(&this).is_some_and(|bytes| bytes > 0));
        assert_eq!(resident(&other), None);
    }
}
