//! Log: the events of a log, with the exact size and thread of each block, which a profile does not
//! keep.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use heapprof_format::{
    Alloc, Counter, EndReason, MemoryReading, PageReading, ReadError, Reader, Record, Start,
    is_code_address,
};
use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{Profile, profile_of_log};

use crate::named::Named;

/// See the module's text.
#[derive(Debug)]
pub struct Log {
    /// Path of the file.
    pub path: PathBuf,
    /// All records, in order.
    pub records: Vec<Record>,
    /// Place where reading had to stop before the file's end, if it had to.
    pub torn: Option<ReadError>,
    /// The profile, without names.
    pub profile: Profile,
    named: OnceLock<Named>,
    /// Number of a stack in the log -> index of the stack in the profile.
    index_of: HashMap<u32, usize>,
}

/// Returns what the library noted in a log, each notice once, as far as the log can be read.
pub fn notes(path: &Path) -> Vec<String> {
    let is_file = fs::metadata(path).is_ok_and(|it| it.is_file()); // and not a pipe in its place
    let bytes = is_file.then(|| fs::read(path).unwrap_or_default());
    let bytes = bytes.unwrap_or_default();
    let mut notes = Vec::new();
    if let Ok(mut reader) = Reader::new(&bytes) {
        while let Ok(Some(record)) = reader.next_record() {
            match record {
                Record::Notice { text, .. } if !notes.contains(&text) => notes.push(text),
                _ => {}
            }
        }
    }
    notes
}

/// A block that was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Requested bytes.
    pub size: u64,
    /// Index of its stack in the profile.
    pub stack: usize,
    /// Number of the thread in the log.
    pub thread: u32,
    /// True if it was in use at the end.
    pub in_use: bool,
}

impl Log {
    /// Reads the log that a program is writing to a folder. `None`: there is no record yet. The
    /// file is there before its first record.
    ///
    /// # Panics
    /// If the folder cannot be read.
    #[track_caller]
    pub fn current(folder: &Path) -> Option<Log> {
        let files = fs::read_dir(folder).expect("a folder");
        let paths = files.filter_map(|file| Some(file.ok()?.path()));
        let mut logs = paths.filter(|path| path.extension().is_some_and(|it| it == "heaplog"));
        let path = logs.next()?;
        let bytes = fs::read(&path).ok()?;
        profile_of_log(&bytes, |_| {}).ok()?;
        Some(Log::read(&path))
    }

    /// Reads a log.
    ///
    /// # Panics
    /// If not even its beginning can be read.
    #[track_caller]
    pub fn read(path: &Path) -> Log {
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let mut reader = match Reader::new(&bytes) {
            Ok(reader) => reader,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        let mut records = Vec::new();
        let torn = loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        let profile = match profile_of_log(&bytes, |_| {}) {
            Ok(profile) => profile,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        // The profile's stacks are those of the log, in the order of their first record.
        let mut index_of = HashMap::new();
        for record in &records {
            if let Record::Stack(stack) = record {
                let next = index_of.len();
                let index = *index_of.entry(stack.number).or_insert(next);
                // A profile leaves the interpreter's frames out of stacks with Python frames.
                let has_code = stack.frames.iter().any(|it| is_code_address(*it));
                assert!(
                    has_code || profile.stacks[index].frames == stack.frames,
                    "order of stacks"
                );
            }
        }
        Log {
            path: path.to_owned(),
            profile,
            named: OnceLock::new(),
            records,
            torn,
            index_of,
        }
    }

    /// Returns the same log, which must be readable to its end.
    ///
    /// # Panics
    /// If it is not.
    #[must_use]
    #[track_caller]
    pub fn whole(self) -> Log {
        let account = &self.profile.account;
        assert!(
            self.torn.is_none(),
            "{}: {:?}",
            self.path.display(),
            self.torn
        );
        assert!(account.is_whole(), "{}: {account:?}", self.path.display());
        assert_eq!(account.unknown_stacks, 0, "{}", self.path.display());
        assert_eq!(account.implausible, 0, "{}", self.path.display());
        self
    }

    /// Returns its first record.
    ///
    /// # Panics
    /// If that is no start.
    #[track_caller]
    pub fn start(&self) -> &Start {
        match self.records.first() {
            Some(Record::Start(start)) => start,
            other => panic!("{}: begins with {other:?}", self.path.display()),
        }
    }

    /// Returns the profile with names, which are looked up at the first call.
    pub fn named(&self) -> &Named {
        let name = || Named::of(self.profile.clone(), &SearchPath::default());
        self.named.get_or_init(name)
    }

    /// Returns the reason of its end; `None` if it was cut off.
    pub fn end(&self) -> Option<EndReason> {
        match self.records.last() {
            Some(Record::End { reason, .. }) => Some(*reason),
            _ => None,
        }
    }

    /// Returns the records of allocations.
    pub fn allocs(&self) -> impl Iterator<Item = Alloc> + '_ {
        self.records.iter().filter_map(|record| match record {
            Record::Alloc(alloc) => Some(*alloc),
            _ => None,
        })
    }

    /// Returns the changes of the interval: time and interval.
    pub fn regimes(&self) -> Vec<(u64, u64)> {
        let regimes = self.records.iter().filter_map(|record| match record {
            Record::Regime {
                time_ns, interval, ..
            } => Some((*time_ns, *interval)),
            _ => None,
        });
        regimes.collect()
    }

    /// Returns the readings of the process's memory.
    pub fn readings(&self) -> impl Iterator<Item = MemoryReading> + '_ {
        self.records.iter().filter_map(|record| match record {
            Record::Memory(reading) => Some(**reading),
            _ => None,
        })
    }

    /// Returns the parts of readings of pages.
    pub fn page_readings(&self) -> impl Iterator<Item = &PageReading> + '_ {
        self.records.iter().filter_map(|record| match record {
            Record::Pages(part) => Some(part),
            _ => None,
        })
    }

    /// Returns the names of its markers.
    pub fn markers(&self) -> Vec<&str> {
        let markers = self.profile.run.markers.iter();
        markers.map(|marker| marker.name.as_str()).collect()
    }

    /// Returns the sizes of all allocated blocks.
    pub fn sizes(&self) -> BTreeSet<u64> {
        self.blocks().iter().map(|block| block.size).collect()
    }

    /// Returns all blocks, in the order of their allocation.
    ///
    /// # Panics
    /// If a block's stack is not in the log.
    pub fn blocks(&self) -> Vec<Block> {
        let freed = |record: &Record| match record {
            Record::Free(free) => Some(free.id),
            _ => None,
        };
        let freed: HashSet<u64> = self.records.iter().filter_map(freed).collect();
        let allocs = self.records.iter().filter_map(|record| match record {
            Record::Alloc(alloc) => Some(Block {
                size: alloc.size,
                stack: self.index_of[&alloc.stack],
                thread: alloc.thread,
                in_use: !freed.contains(&alloc.id),
            }),
            _ => None,
        });
        allocs.collect()
    }

    /// Returns the blocks of exactly that size.
    pub fn blocks_of(&self, size: u64) -> Vec<Block> {
        let mut blocks = self.blocks();
        blocks.retain(|block| block.size == size);
        blocks
    }

    /// Returns the name of a thread.
    pub fn thread_name(&self, number: u32) -> &str {
        let threads = &self.profile.threads;
        let thread = threads.iter().find(|thread| thread.number == number);
        thread.map_or("", |thread| &thread.name)
    }

    /// Returns the losses by cause.
    pub fn losses(&self) -> BTreeMap<Counter, u64> {
        self.profile.account.losses().collect()
    }

    /// Returns the number of frees of unknown blocks.
    pub fn unknown_frees(&self) -> u64 {
        self.profile.account.unknown_frees
    }
}
