//! The dumps: gperftools' heap files, on gperftools' occasions.
//!
//! The occasions are judged after each event of the ledger, so a dump shows the heap at the very event that
//! called for it. After any dump all of them count anew, as in gperftools.

use std::collections::BTreeMap;

use heapprof_core::{Ledger, Row};
use heapprof_format::{Dump, DumpLine, Mapping, Module, WalkEnd};

use crate::counters;
use crate::files;
use crate::inheritance::Inheritance;
use crate::say::say;
use crate::settings::Settings;
use crate::sys::Errno;

/// A stack, kept for the dumps.
pub(crate) struct KeptStack {
    pub(crate) frames: Box<[u64]>,
    pub(crate) interrupted: Box<[u32]>,
    pub(crate) end: WalkEnd,
}

/// When to dump, and what the last dump was.
pub(crate) struct Dumps {
    base: Vec<u8>,
    /// Number of the last dump.
    sequence: u32,
    every_allocated: u64,
    every_freed: u64,
    every_in_use: u64,
    every_ns: u64,
    last_allocated: u64,
    last_freed: u64,
    high_water: u64,
    /// When the next timed dump is due; `u64::MAX`: never.
    next_ns: u64,
    /// Whether there is one at exit; not when they were only ever asked for one by one.
    pub(crate) at_exit: bool,
    failed: bool,
}

/// What a dump is made of, besides the ledger.
pub(crate) struct Context<'a> {
    pub(crate) stacks: &'a [Option<KeptStack>],
    pub(crate) inheritance: &'a Inheritance,
    pub(crate) modules: &'a [Module],
    /// Modules that were unloaded, in that order.
    pub(crate) gone: &'a [Module],
    pub(crate) comments: Vec<String>,
}

impl Dumps {
    pub(crate) fn new(base: &[u8], settings: &Settings, now_ns: u64) -> Dumps {
        let every_ns = settings.dump_seconds * 1_000_000_000;
        Dumps {
            base: base.to_vec(),
            sequence: 0,
            every_allocated: settings.dump_allocated,
            every_freed: settings.dump_freed,
            every_in_use: settings.dump_in_use,
            every_ns,
            last_allocated: 0,
            last_freed: 0,
            high_water: 0,
            next_ns: if every_ns == 0 {
                u64::MAX
            } else {
                now_ns + every_ns
            },
            at_exit: true,
            failed: false,
        }
    }

    /// On no occasion but when asked.
    pub(crate) fn on_request(base: &[u8]) -> Dumps {
        Dumps {
            base: base.to_vec(),
            sequence: 0,
            every_allocated: 0,
            every_freed: 0,
            every_in_use: 0,
            every_ns: 0,
            last_allocated: 0,
            last_freed: 0,
            high_water: 0,
            next_ns: u64::MAX,
            at_exit: false,
            failed: false,
        }
    }

    /// What a forked process began with is no news to it. `in_use`: in bytes.
    pub(crate) fn begin_with(&mut self, in_use: u64) {
        self.high_water = in_use;
    }

    /// Whether the ledger's last event calls for a dump, and why. `inherited`: bytes in use in addition to
    /// the ledger's.
    #[inline]
    pub(crate) fn due(&self, ledger: &Ledger, inherited: u64) -> Option<String> {
        let reached =
            |every: u64, now: u64, last: u64| every > 0 && now >= last.saturating_add(every);
        let allocated = ledger.total().allocated.bytes();
        if reached(self.every_allocated, allocated, self.last_allocated) {
            return Some(format!("{} MB allocated cumulatively", allocated >> 20));
        }
        let freed = ledger.freed().bytes();
        if reached(self.every_freed, freed, self.last_freed) {
            return Some(format!("{} MB freed cumulatively", freed >> 20));
        }
        let in_use = ledger.total().in_use.bytes() + inherited;
        if self.every_in_use > 0 && in_use > self.high_water.saturating_add(self.every_in_use) {
            return Some(format!("{} MB in use", in_use >> 20));
        }
        None
    }

    /// When the clock calls for the next dump.
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Writes a dump. Returns its path, or why there is none.
    pub(crate) fn write(
        &mut self,
        why: &str,
        ledger: &Ledger,
        context: Context<'_>,
        now_ns: u64,
    ) -> Result<String, String> {
        self.last_allocated = ledger.total().allocated.bytes();
        self.last_freed = ledger.freed().bytes();
        let in_use = ledger.total().in_use.bytes() + context.inheritance.in_use_bytes();
        self.high_water = self.high_water.max(in_use);
        if self.every_ns > 0 {
            self.next_ns = now_ns + self.every_ns;
        }
        let mut text = Vec::new();
        compose(why, ledger, context).write(&mut text);
        loop {
            self.sequence += 1;
            let name = format!(".{:04}.heap", self.sequence);
            let path = [&self.base[..], name.as_bytes()].concat();
            match files::publish(&path, &text) {
                Ok(()) => {
                    counters::DUMPS_WRITTEN.add(1);
                    self.failed = false;
                    return Ok(String::from_utf8_lossy(&path).into_owned());
                }
                // Somebody else's file: leave it, take the next number.
                Err(Errno(libc::EEXIST)) if self.sequence < 9999 => {}
                Err(errno) => {
                    counters::LOST_DUMPS.add(1);
                    let trouble =
                        format!("cannot write {}: {errno}", String::from_utf8_lossy(&path));
                    if !self.failed {
                        say!("{trouble}; the program runs on, later dumps are tried");
                    }
                    self.failed = true;
                    return Err(trouble);
                }
            }
        }
    }
}

pub(crate) fn compose(why: &str, ledger: &Ledger, context: Context<'_>) -> Dump {
    let mut comments = context.comments;
    comments.push(format!("reason: {why}"));
    let mut lines: Vec<DumpLine> = Vec::new();
    // A stack that was met before the fork and after it is one line for each size class all the same.
    let mut line_of: BTreeMap<(Vec<u64>, u8), usize> = BTreeMap::new();
    let inherited = &context.inheritance.ledgers;
    let all = inherited
        .iter()
        .map(|from| (&from.ledger, &from.stacks[..]));
    for (ledger, stacks) in all.chain([(ledger, context.stacks)]) {
        for row in ledger.rows() {
            let Some(line) = line_of_row(row, stacks) else {
                continue;
            };
            if inherited.is_empty() {
                lines.push(line);
                continue;
            }
            if line.allocated_objects == 0 {
                continue; // freed before the fork
            }
            let key = (line.frames.clone(), row.class.0);
            let index = *line_of.entry(key).or_insert(lines.len());
            match lines.get_mut(index) {
                Some(known) => {
                    known.in_use_objects += line.in_use_objects;
                    known.in_use_bytes += line.in_use_bytes;
                    known.allocated_objects += line.allocated_objects;
                    known.allocated_bytes += line.allocated_bytes;
                }
                None => lines.push(line),
            }
        }
    }
    Dump {
        comments,
        lines,
        mappings: mappings(context.modules, context.gone),
        ..Dump::default()
    }
}

/// The line of a row; `None` when its stack's frames were lost.
fn line_of_row(row: &Row, stacks: &[Option<KeptStack>]) -> Option<DumpLine> {
    let stack = stacks.get(row.stack as usize)?.as_ref()?;
    let mut frames = stack.frames.to_vec();
    for &index in &stack.interrupted {
        // Readers take one from all addresses but the first.
        if let Some(frame) = frames.get_mut(index as usize) {
            *frame += 1;
        }
    }
    let totals = &row.totals;
    Some(DumpLine {
        in_use_objects: totals.in_use.objects(),
        in_use_bytes: totals.in_use.bytes(),
        allocated_objects: totals.allocated.objects(),
        allocated_bytes: totals.allocated.bytes(),
        frames,
    })
}

/// What is mapped now, with the build-ids that we know, and what was mapped where nothing is now: blocks
/// outlive the plug-ins that allocated them.
fn mappings(modules: &[Module], gone: &[Module]) -> Vec<Mapping> {
    // Not /proc/self: that is the main thread's, which may have left by pthread_exit.
    let maps = files::read(b"/proc/thread-self/maps").unwrap_or_default();
    let mut mappings: Vec<Mapping> = String::from_utf8_lossy(&maps)
        .lines()
        .filter_map(Mapping::parse)
        .filter(|mapping| !mapping.path.is_empty())
        .collect();
    for mapping in &mut mappings {
        let module = modules.iter().rev().find(|module| {
            module
                .segments
                .iter()
                .any(|s| s.start < mapping.end && mapping.start < s.start + s.len)
        });
        if let Some(module) = module {
            mapping.build_id.clone_from(&module.build_id);
        }
    }
    for mapping in gone.iter().rev().flat_map(Mapping::of_module) {
        let free = |other: &Mapping| mapping.end <= other.start || other.end <= mapping.start;
        if mappings.iter().all(free) {
            mappings.push(mapping);
        }
    }
    mappings
}
