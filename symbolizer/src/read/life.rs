//! Life: whether the process of a log that has no end is seen to run.

use crate::model::run::{Ending, Run};
use crate::presence::{self, Began};

/// When the log of a run began.
pub(crate) fn began(run: &Run) -> Began {
    Began {
        wall_ns: run.start_wall_ns,
        monotonic_ns: run.start_monotonic_ns,
    }
}

/// Notes that the process of a log without an end is seen to run.
pub fn note_life(run: &mut Run) {
    let is_there = || presence::is_there(run.pid, &run.program, began(run));
    if run.ending == Ending::CutOff && is_there() == Some(true) {
        run.ending = Ending::Running;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_seen_still_runs() {
        let exe = std::env::current_exe().unwrap();
        let mut this = Run {
            pid: std::process::id(),
            program: exe.to_string_lossy().into_owned(),
            ending: Ending::CutOff,
            ..Run::default()
        };
        let mut other = Run {
            program: "/another".into(),
            ..this.clone()
        };
        note_life(&mut this);
        note_life(&mut other);
        assert_eq!(
            (this.ending, other.ending),
            (Ending::Running, Ending::CutOff)
        );
    }
}
