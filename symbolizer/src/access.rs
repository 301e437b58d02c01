//! Access: the users that may read the opened profiles, and so, at most, every file made from
//! these.
//!
//! A log belongs to its owner (0600): it holds command lines, paths and names. A report, a dump or
//! a bundle holds the same, and must not be readable by more people. So each profile that is opened
//! narrows [`Access::of_inputs`]. The value is one for the whole run: a file that is made of
//! several inputs, or of a log and its parent's log, is no wider than any of these.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

/// Read and write, for all.
const ALL: u32 = 0o666;

static OF_INPUTS: Mutex<Access> = Mutex::new(Access {
    mode: ALL,
    group: None,
});

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Permission bits.
    mode: u32,
    /// The group that the bits for a group are about; `None`: any, so far.
    group: Option<u32>,
}

impl Access {
    /// What all profiles that were opened so far allow together.
    pub fn of_inputs() -> Access {
        *OF_INPUTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a profile's file into account.
    pub(crate) fn note(meta: &Metadata) {
        let mut access = OF_INPUTS.lock().unwrap_or_else(PoisonError::into_inner);
        *access = access.narrowed(meta.mode(), meta.gid());
    }

    /// The permission bits of a new file of that group. Its owner may always write it.
    pub fn mode_for(&self, group: u32) -> u32 {
        const GROUP: u32 = 0o060;
        let others = self.mode & 0o006;
        let mode = match self.group {
            // The members of another group are others.
            Some(own) if own != group => self.mode & !GROUP | others << 3,
            _ => self.mode,
        };
        mode | 0o600
    }

    /// Returns true if a file of that owner is believed when it says that it belongs to a log of
    /// `log_owner`: a segment, or a parent's log. Another user's file is not, whatever it says.
    /// Root needs no file to mislead, and the user who asks does not mislead himself.
    pub(crate) fn is_believed(owner: u32, log_owner: u32) -> bool {
        // SAFETY: a question without arguments.
        owner == log_owner || owner == 0 || owner == unsafe { libc::geteuid() }
    }

    fn narrowed(self, mode: u32, group: u32) -> Access {
        const GROUP: u32 = 0o060;
        let (mut mode, mut own) = (mode & ALL, self.mode);
        if self.group.is_some_and(|known| known != group) {
            // Two groups: a member of one need not be a member of the other.
            mode &= !GROUP | (mode & 0o006) << 3;
            own &= !GROUP | (own & 0o006) << 3;
        }
        Access {
            mode: own & mode,
            group: Some(group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY: Access = Access {
        mode: ALL,
        group: None,
    };

    #[test]
    fn what_is_made_is_no_wider_than_what_it_is_made_of() {
        for (inputs, group, expected) in [
            (&[][..], 5, 0o666),
            (&[(0o600, 5)], 5, 0o600),
            (&[(0o644, 5)], 7, 0o644),
            (&[(0o640, 5)], 5, 0o640),
            // Another group's members are others.
            (&[(0o640, 5)], 7, 0o600),
            (&[(0o604, 5)], 7, 0o644),
            (&[(0o644, 5), (0o600, 5)], 5, 0o600),
            (&[(0o640, 5), (0o640, 7)], 5, 0o600),
            (&[(0o640, 5), (0o644, 7)], 7, 0o600),
            // Its owner may write it again.
            (&[(0o444, 5)], 5, 0o644),
        ] {
            let access =
                (inputs.iter()).fold(ANY, |access, &(mode, group)| access.narrowed(mode, group));
            assert_eq!(access.mode_for(group), expected, "{inputs:?}");
        }
    }
}
