//! Intake: events become records, and entries of the ledger.

use heapprof_format::{Alloc, Free, Module, Record, Stack, Thread as ThreadRecord};
use std::sync::atomic::Ordering;

use super::{BATCH, Writer};
use crate::dumps::KeptStack;
use crate::modules::{self, Notice};
use crate::session::{Event, FreeEvent, Noted, Session};
use crate::{files, health, sys};

impl Writer {
    /// Takes up to `limit` events. Returns how many there were.
    pub(super) fn drain(&mut self, session: &Session, limit: usize) -> usize {
        self.clock.advance();
        // Frees that went the other way belong behind the events that are queued now, among which
        // their allocations are.
        while let Some(free) = session.next_overflowed() {
            self.overflowed.push(free);
        }
        let limit = if self.overflowed.is_empty() {
            limit
        } else {
            session.waiting().max(limit)
        };
        let mut count = 0;
        while count < limit
            && let Some(event) = session.next()
        {
            self.event(event);
            count += 1;
            if self.rotation.is_some() {
                self.rotate_if_due(session);
            }
        }
        session.taken.fetch_add(count as u64, Ordering::Relaxed);
        let frees = std::mem::take(&mut self.overflowed);
        for free in &frees {
            self.free(free);
        }
        count + frees.len()
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Alloc {
                at,
                id,
                stack,
                size,
                slack,
                thread,
                interval,
                counted,
            } => {
                self.counted_bytes += counted & !health::NEW;
                self.counted_threads += u64::from(counted & health::NEW != 0);
                let stack = self.stack_number(stack);
                self.sampled_allocs += 1;
                if let Some(budget) = &mut self.budget
                    && (self.settings.record_over == 0 || size < self.settings.record_over)
                {
                    budget.sampled(interval);
                }
                let alloc = Alloc {
                    time_ns: self.since_start(self.clock.ns(at)),
                    thread,
                    id,
                    size,
                    slack: slack.into(),
                    stack,
                    interval,
                };
                self.output.encoder.alloc(&alloc);
                if let Some(ledger) = &mut self.ledger {
                    ledger.alloc(id, stack, size, interval);
                    if let Some(rotation) = &mut self.rotation {
                        rotation.keeping.alloc(&alloc, ledger);
                    }
                    self.dump_if_due();
                }
            }
            Event::Free(free) => self.free(&free),
            Event::Note(note) => {
                let time_ns = self.clock.ns(note.at);
                self.note(time_ns, note.what);
            }
            Event::Stack(new) => {
                self.tell_modules();
                if self.stacks.contains_key(&new.hash) {
                    return; // two threads shipped it at once
                }
                let number = self.stack_number(new.hash);
                self.frames_walked += new.frames.len() as u64;
                if let Some(rotation) = &mut self.rotation {
                    rotation.keeping.stack(new.frames.len());
                }
                if self.ledger.is_some() {
                    self.keep(
                        number,
                        KeptStack {
                            frames: new.frames.clone(),
                            interrupted: new.interrupted.clone(),
                            end: new.end,
                        },
                    );
                }
                self.output.encoder.record(&Record::Stack(Stack {
                    number,
                    end: new.end,
                    frames: new.frames.into_vec(),
                    interrupted: new.interrupted.into_vec(),
                }));
            }
            Event::Thread { number, tid, name } => {
                // Many name themselves just after they began: its name by now is the better one.
                let name = thread_name(tid).unwrap_or_else(|| trimmed(&name));
                let thread = ThreadRecord { number, tid, name };
                if let Some(rotation) = &mut self.rotation {
                    rotation.keeping.thread(thread.clone());
                }
                self.output.encoder.record(&Record::Thread(thread));
            }
        }
    }

    pub(super) fn free(&mut self, free: &FreeEvent) {
        self.sampled_frees += 1;
        let record = Free {
            time_ns: self.since_start(self.clock.ns(free.at)),
            thread: free.thread,
            id: free.id,
        };
        self.output.encoder.free(&record);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.free(&record);
        }
        if let Some(ledger) = &mut self.ledger {
            if ledger.free(free.id).is_none() {
                self.inheritance.free(free.id);
            }
            self.dump_if_due();
        }
    }

    pub(super) fn stack_number(&mut self, hash: u64) -> u32 {
        let next = self.stacks.len() as u32;
        *self.stacks.entry(hash).or_insert(next)
    }

    /// Writes what became known about modules since the last time, oldest first.
    pub(super) fn tell_modules(&mut self) {
        let newest = modules::newest_notice();
        let mut unread = Vec::new();
        let mut at = newest;
        while !at.is_null() && at != self.last_notice {
            // SAFETY: notices are never freed.
            let node = unsafe { &*at };
            unread.push(node);
            at = node.older;
        }
        self.last_notice = newest;
        for node in unread.into_iter().rev() {
            let time_ns = self.since_start(node.time_ns);
            match &node.notice {
                Notice::Loaded {
                    number,
                    path,
                    build_id,
                    bias,
                    segments,
                } => {
                    let module = Module {
                        number: *number,
                        time_ns,
                        path: String::from_utf8_lossy(path).into_owned(),
                        build_id: build_id.clone(),
                        bias: *bias,
                        segments: segments.clone(),
                    };
                    self.tell(&Record::Module(module.clone()));
                    self.modules.push(module);
                }
                Notice::Gone { number } => {
                    self.tell(&Record::ModuleGone {
                        module: *number,
                        time_ns,
                    });
                    let (gone, there): (Vec<Module>, Vec<Module>) =
                        std::mem::take(&mut self.modules)
                            .into_iter()
                            .partition(|module| module.number == *number);
                    self.modules = there;
                    if self.ledger.is_some() {
                        self.gone.extend(gone);
                    }
                }
            }
        }
    }

    /// Writes what a checkpoint must repeat.
    pub(super) fn tell(&mut self, module: &Record) {
        self.output.encoder.record(module);
        if let Some(rotation) = &mut self.rotation {
            rotation.keeping.module(module);
        }
    }

    /// Takes all events that are there now. What the program's threads still add meanwhile is theirs to add.
    pub(super) fn drain_all(&mut self, session: &Session) {
        let mut left = session.waiting();
        while left > 0 {
            let taken = self.drain(session, left.min(BATCH));
            left = left.saturating_sub(taken.max(1));
        }
        self.drain(session, 0);
    }

    pub(super) fn note(&mut self, time_ns: u64, what: Noted) {
        let time_ns = self.since_start(time_ns);
        let record = match what {
            Noted::Marker(name) => Record::Marker { time_ns, name },
            Noted::Regime(interval) => Record::Regime {
                time_ns,
                interval,
                by_budget: false,
            },
        };
        self.output.encoder.record(&record);
    }

    /// For the dumps.
    pub(super) fn keep(&mut self, number: u32, stack: KeptStack) {
        let place = number as usize;
        if self.kept.len() <= place {
            self.kept.resize_with(place + 1, || None);
        }
        self.kept[place] = Some(stack);
    }
}

/// The name of a thread of this process, if it still lives.
fn thread_name(tid: u32) -> Option<String> {
    let path = format!("/proc/{}/task/{tid}/comm", sys::getpid());
    files::read(path.as_bytes()).ok().map(|name| trimmed(&name))
}

/// The text up to a closing zero or line end.
fn trimmed(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0 || byte == b'\n');
    String::from_utf8_lossy(&name[..end.unwrap_or(name.len())]).into_owned()
}
