//! Log state: whether the process of a log runs, or why a file tells of no process.

use std::io;

use heapprof_format::{ReadError, ReadErrorKind};

use crate::presence::Life;

/// See the module's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LogState {
    /// The server has not looked yet.
    #[default]
    Unread,
    /// The file has no record yet: its program starts, or writes no more.
    Empty,
    /// The first bytes of the file are foreign.
    NotALog,
    /// The file cannot be opened, or is of a version that is not known.
    Unreadable,
    /// The log is that of a process.
    Of(Life),
}

impl LogState {
    /// The state after a look. `refused`: why the file could not be read; `life`: that of the
    /// process, if the log ever named one.
    pub(super) fn of(refused: Option<&io::Error>, life: Option<Life>) -> LogState {
        let Some(refused) = refused else {
            return life.map_or(LogState::Empty, LogState::Of);
        };
        let inner = refused
            .get_ref()
            .and_then(|it| it.downcast_ref::<ReadError>());
        match (inner.map(|error| error.kind), life) {
            (Some(ReadErrorKind::NotALog), _) => LogState::NotALog,
            (Some(_), _) | (None, None) => LogState::Unreadable,
            // A log that went, or may be read no longer: what was read of its process stays.
            (None, Some(life)) => LogState::Of(life),
        }
    }

    pub(super) fn is_running(self) -> bool {
        self == LogState::Of(Life::Running)
    }

    /// Whether the file is expected to grow soon: its process runs, or starts.
    pub(super) fn may_grow(self) -> bool {
        self.is_running() || matches!(self, LogState::Unread | LogState::Empty)
    }

    /// Whether the file has told of a process.
    pub(super) fn is_of_process(self) -> bool {
        matches!(self, LogState::Of(_))
    }

    /// Whether the file cannot be read as a log.
    pub(super) fn is_no_log(self) -> bool {
        matches!(self, LogState::NotALog | LogState::Unreadable)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            LogState::Unread => "not read yet",
            LogState::Empty => "empty",
            LogState::NotALog => "not a log",
            LogState::Unreadable => "unreadable",
            LogState::Of(life) => life.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_log_has_no_process_that_runs() {
        let read = |kind| {
            let error = ReadError { offset: 0, kind };
            io::Error::new(io::ErrorKind::InvalidData, error)
        };
        let gone = io::Error::from(io::ErrorKind::NotFound);
        let running = Some(Life::Running);
        for (refused, life, expected) in [
            (None, None, "empty"),
            (None, running, "running"),
            (None, Some(Life::Gone), "gone"),
            (Some(read(ReadErrorKind::NotALog)), None, "not a log"),
            // Another file has the path by now.
            (Some(read(ReadErrorKind::NotALog)), running, "not a log"),
            (Some(read(ReadErrorKind::Version(99))), None, "unreadable"),
            (Some(gone), running, "running"),
        ] {
            let state = LogState::of(refused.as_ref(), life);
            assert_eq!(state.name(), expected, "{refused:?} {life:?}");
        }
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(LogState::of(Some(&denied), None), LogState::Unreadable);
        assert!(!LogState::default().is_of_process());
        // A program that starts makes an empty file first.
        assert!(LogState::Empty.may_grow() && !LogState::NotALog.may_grow());
    }
}
