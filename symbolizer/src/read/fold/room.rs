//! Room: the memory that the fold of a followed log may take, and that all such folds may.
//!
//! A log is somebody else's input. One that has endless stacks, modules or names must not take the
//! memory of a server that follows other logs, too (Law 12). So each thing that a fold keeps takes
//! from its room, about as many bytes as it has in memory. Things for which there is no room are
//! left out, and counted (Law 10). A block that is freed gives its bytes back.
//!
//! The fold of a log that is read once has no such bound: the one on the whole run holds there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The room of all folds together.
#[derive(Debug)]
pub(crate) struct SharedRoom {
    taken: AtomicU64,
    most: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Room {
    shared: Arc<SharedRoom>,
    most: u64,
    taken: u64,
    /// Things that did not fit.
    pub(super) left_out: u64,
}

impl SharedRoom {
    /// So many bytes.
    pub(crate) fn of(most: u64) -> Arc<SharedRoom> {
        Arc::new(SharedRoom {
            taken: AtomicU64::new(0),
            most,
        })
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// A part of it, of so many bytes at most.
    pub(crate) fn part(self: &Arc<Self>, most: u64) -> Room {
        Room {
            shared: Arc::clone(self),
            most,
            taken: 0,
            left_out: 0,
        }
    }
}

impl Room {
    /// Bytes that are taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes bytes. False: there are none, and something is left out.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let fits = self.taken.saturating_add(bytes) <= self.most
            && self.shared.taken.load(Relaxed).saturating_add(bytes) <= self.shared.most;
        match fits {
            true => self.take_anyway(bytes),
            false => self.left_out += 1,
        }
        fits
    }

    pub(super) fn take_anyway(&mut self, bytes: u64) {
        self.taken += bytes;
        self.shared.taken.fetch_add(bytes, Relaxed);
    }

    pub(super) fn give_back(&mut self, bytes: u64) {
        let bytes = bytes.min(self.taken);
        self.taken -= bytes;
        self.shared.taken.fetch_sub(bytes, Relaxed);
    }
}

impl Clone for Room {
    /// A part of the same size, of which as much is taken.
    fn clone(&self) -> Room {
        let mut room = self.shared.part(self.most);
        room.take_anyway(self.taken);
        room.left_out = self.left_out;
        room
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back(self.taken);
    }
}
