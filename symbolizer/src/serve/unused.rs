//! Unused states: logs that are in memory because somebody asked for them, and whose processes run
//! no more.
//!
//! ```text
//!   asked for ─> [ oldest … newest ]   beyond the bound, the oldest is forgotten
//!                                      and read again from its file if asked for
//! ```
//!
//! A folder may have thousands of such logs, and a client may ask for all of them. So all together
//! have one bound. The state of a process that runs is never forgotten: it would be needed at the
//! next look.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::process::Process;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Unused {
    most: u64,
    processes: Mutex<VecDeque<Weak<Process>>>,
}

impl Unused {
    /// So many bytes at most.
    pub(super) fn of(most: u64) -> Unused {
        Unused {
            most,
            processes: Mutex::default(),
        }
    }

    /// Notes a process that was asked for, or looked at, and forgets others. Not to be called with
    /// its state locked.
    pub(super) fn note(&self, process: &Arc<Process>, is_asked: bool) {
        self.forget_beyond(self.most, Some((process, is_asked)));
    }

    /// Forgets all that no request uses at the moment.
    pub(super) fn forget_all(&self) {
        self.forget_beyond(0, None);
    }

    /// Returns the bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        let processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let processes = processes.iter().filter_map(Weak::upgrade);
        processes.map(|process| process.unused_bytes()).sum()
    }

    fn forget_beyond(&self, most: u64, noted: Option<(&Arc<Process>, bool)>) {
        let mut processes = self
            .processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut sum = 0;
        let mut is_there = false;
        processes.retain(|other| {
            let bytes = other.upgrade().map_or(0, |process| process.unused_bytes());
            let is_it = noted.is_some_and(|(it, _)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(it)));
            let stays = bytes > 0 && !(is_it && noted.is_some_and(|(_, is_asked)| is_asked));
            is_there |= is_it && stays;
            sum += if stays { bytes } else { 0 };
            stays
        });
        if let Some((process, _)) = noted.filter(|_| !is_there)
            && process.unused_bytes() > 0
        {
            processes.push_back(Arc::downgrade(process));
            sum += process.unused_bytes();
        }
        while sum > most
            && let Some(oldest) = processes.pop_front()
        {
            if let Some(process) = oldest.upgrade() {
                sum -= process.unused_bytes();
                // One that is in use is noted anew at the end of that use.
                process.forget_unused();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::{Alloc, Encoder, EndReason, FILE_HEADER, Record, Stack, Start, WalkEnd};

    use super::*;
    use crate::read::fold::room::SharedRoom;
    use crate::read::follow::Options;

    /// The log of a process that has ended, with so many stacks and blocks.
    fn ended_log(stacks: u32) -> Vec<u8> {
        let mut encoder = Encoder::new();
        let start = Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        };
        encoder.record(&Record::Start(start));
        for number in 1..=stacks {
            encoder.record(&Record::Stack(Stack {
                number,
                frames: (0..20).map(|at| 0x1000 * u64::from(number) + at).collect(),
                interrupted: Vec::new(),
                end: WalkEnd::Root,
                labels: Vec::new(),
            }));
            encoder.record(&Record::Alloc(Alloc {
                time_ns: u64::from(number),
                thread: 0,
                id: u64::from(number),
                stack: number,
                size: 100,
                slack: 0,
                interval: 1,
            }));
        }
        encoder.record(&Record::End {
            time_ns: 1 << 20,
            reason: EndReason::Exit,
        });
        [FILE_HEADER.as_slice(), encoder.finish()].concat()
    }

    #[test]
    fn any_number_of_ended_logs_has_one_bound_and_each_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let room = SharedRoom::of(1 << 30);
        let processes: Vec<Arc<Process>> = (0..60)
            .map(|number| {
                let path = folder.path().join(format!("{number}.heaplog"));
                std::fs::write(&path, ended_log(300)).unwrap();
                let options = Options {
                    room: Some((Arc::clone(&room), 1 << 30)),
                    ..Options::default()
                };
                Arc::new(Process::of(&path, false, options))
            })
            .collect();
        let ask = |unused: &Unused, process: &Arc<Process>| {
            let mut state = process.lock();
            process.freshen(&mut state);
            let sum = state.profile().unwrap().numbers();
            drop(state);
            unused.note(process, true);
            sum.in_use_bytes
        };
        let in_memory = || -> Vec<usize> {
            let all = processes.iter().enumerate();
            let those = all.filter(|(_, process)| process.unused_bytes() > 0);
            those.map(|(number, _)| number).collect()
        };
        let one = {
            let unused = Unused::of(u64::MAX);
            ask(&unused, &processes[0]);
            unused.bytes()
        };
        assert!(one > 300 * 20 * 8, "{one} bytes");
        let unused = Unused::of(one * 7 / 2);
        // The first is asked for again and again, and each is right each time.
        for _ in 0..2 {
            for process in &processes {
                assert_eq!(ask(&unused, &processes[0]), 30_000);
                assert_eq!(ask(&unused, process), 30_000);
                assert!(unused.bytes() <= unused.most);
            }
        }
        assert_eq!(in_memory(), [0, 58, 59]);
        // The fold itself gives its memory back.
        assert!(room.taken() <= unused.most, "{}", room.taken());
        // A look is no question.
        unused.note(&processes[58], false);
        ask(&unused, &processes[3]);
        assert_eq!(in_memory(), [0, 3, 59]);
        // One that is in use is left alone.
        let in_use = processes[3].lock();
        unused.forget_all();
        assert_eq!(in_memory(), [3]);
        drop(in_use);
        unused.note(&processes[3], true);
        unused.forget_all();
        assert_eq!((in_memory(), unused.bytes()), (vec![], 0));
    }
}
