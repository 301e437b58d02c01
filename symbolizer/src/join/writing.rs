//! Writing: the records of all members in the order of time, numbered anew, into one log.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io::{self, Write};

use heapprof_core::NumberMap;
use heapprof_format::{
    ALLOCATOR, ATTACHED, Alloc, Checkpoint, Counter, EMPTY_LOGS, EXECUTED_AS, Encoder, EndReason,
    Event, FILE_HEADER, FORKED_AT, Free, MappedMemory, MappingChange, Module, PARENT_LOG,
    PageReading, Record, Stack, Start, TAPPED, Thread,
};

use super::before::BeforeDetail;
use super::mappings::JoinedMappings;
use super::member::Member;
use super::pages::JoinedPages;
use crate::model::fork_remark::is_remark;
use crate::model::part::Part;
use crate::model::profile::Profile;
use crate::model::run::Ending;
use crate::model::special_threads::WITH_ITS_PROCESS;
use crate::model::special_threads::{BEFORE_THE_FORK, is_inherited};
use crate::read::fold::{LARGEST_BLOCK, LARGEST_INTERVAL};

/// Bytes of a frame, about.
const FRAME_BYTES: usize = 256 << 10;

/// Most processes whose beginnings and ends are marked: more would hide the curve that they are to
/// explain.
const MOST_MARKED: usize = 8;

/// Ids of a thread's samples begin at its number, moved up so far: one after another they take the
/// least room in the log.
const ID_BITS: u32 = 36;
/// In the place of the number of [`BEFORE_THE_FORK`].
const BEFORE_THE_FORK_IDS: u64 = 1 << 27;

/// The next thing in a log.
enum Next {
    Began,
    Event(Event),
    Marker(String),
    Notice(String),
    /// Another interval is in force; 0: none.
    Interval(u64),
    Checkpoint(Checkpoint),
    Mapping(MappingChange),
    Mapped(MappedMemory),
    Pages(PageReading),
    Ended,
}

/// See the module's text.
pub(super) struct Writing<'a, W> {
    pub(super) members: Vec<Member<'a>>,
    /// The account of the time before all logs have detail, as long as it is that time.
    pub(super) before: Option<BeforeDetail>,
    pub(super) mappings: JoinedMappings,
    pub(super) pages: JoinedPages,
    /// End of the joined log.
    last_ns: u64,
    whole: &'a Profile,
    encoder: Encoder,
    out: &'a mut W,
    /// True if each stack is written.
    known: Vec<bool>,
    /// True if the thread that inherited blocks are said to come from is written.
    has_inherited: bool,
    /// True if the thread that is said to free what processes leave is written.
    has_left: bool,
    /// How many ids each thread has had.
    ids: NumberMap<u64, u64>,
    /// Bytes that were read.
    done: u64,
}

impl<'a, W: Write> Writing<'a, W> {
    pub(super) fn new(
        members: Vec<Member<'a>>,
        before: Option<BeforeDetail>,
        whole: &'a Profile,
        out: &'a mut W,
    ) -> Writing<'a, W> {
        let last_ns = members.iter().map(Member::end_ns).max().unwrap_or(0);
        Writing {
            mappings: JoinedMappings::new(members.len(), last_ns),
            pages: JoinedPages::new(members.len(), last_ns),
            last_ns,
            members,
            before,
            whole,
            encoder: Encoder::new(),
            out,
            known: vec![false; whole.stacks.len()],
            has_inherited: false,
            has_left: false,
            ids: NumberMap::default(),
            done: 0,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.encoder.finish())
    }

    pub(super) fn put(&mut self, record: &Record) -> io::Result<()> {
        self.encoder.record(record);
        self.end_long_frame()
    }

    fn end_long_frame(&mut self) -> io::Result<()> {
        match self.encoder.pending() < FRAME_BYTES {
            true => Ok(()),
            false => self.flush(),
        }
    }

    /// Writes the records before all events.
    pub(super) fn begin(&mut self, first_ns: u64) -> io::Result<()> {
        let run = &self.whole.run;
        let mut settings = run.settings.clone();
        // Settings of one forked process: a reader would look for the blocks from its parent.
        settings.retain(|(name, _)| ![FORKED_AT, PARENT_LOG].contains(&name.as_str()));
        if !run.executed_as.is_empty() {
            settings.push((EXECUTED_AS.into(), run.executed_as.clone()));
        }
        if !run.allocator.is_empty() {
            settings.push((ALLOCATOR.into(), run.allocator.clone()));
        }
        if run.is_attached {
            settings.push((ATTACHED.into(), "1".into()));
        }
        settings.extend(run.tapped.iter().map(|what| (TAPPED.into(), what.clone())));
        let first = self.members.iter().filter(|member| member.offset_ns == 0);
        match self.whole.account.empty_logs {
            0 => {}
            number => settings.push((EMPTY_LOGS.into(), number.to_string())),
        }
        self.out.write_all(&FILE_HEADER)?;
        self.put(&Record::Start(Start {
            program: run.program.clone(),
            args: run.args.clone(),
            pid: 0,
            forked_from: 0,
            wall_ns: first_ns,
            monotonic_ns: first
                .map(|member| member.start.monotonic_ns)
                .min()
                .unwrap_or(0),
            interval: run.interval.unwrap_or(1),
            library: run.library.clone(),
            settings,
            ..Start::default()
        }))?;
        self.flush()?; // alone, as in every log
        let whole = self.whole;
        for (index, part) in whole.parts.iter().enumerate() {
            let member = &self.members[index];
            let process = part.process(member.start.clone(), member.numbers);
            self.put(&Record::Process(process))?;
        }
        for (number, module) in (0..).zip(&whole.modules) {
            if let Some(code) = &module.code {
                self.put(&Record::Code(code.as_ref().clone()))?;
                continue;
            }
            self.put(&Record::Module(Module {
                number,
                time_ns: 0,
                path: module.path.clone(),
                build_id: module.build_id.clone(),
                stamp: module.stamp,
                bias: module.bias.unwrap_or(0),
                segments: module.segments.clone(),
            }))?;
        }
        self.flush()
    }

    /// All events, in the order of time.
    pub(super) fn events(&mut self, progress: &mut impl FnMut(u64)) -> io::Result<()> {
        let mut pending: Vec<Next> = self.members.iter().map(|_| Next::Began).collect();
        let begins = self.members.iter().enumerate();
        let mut heap: BinaryHeap<Reverse<(u64, usize)>> = begins
            .map(|(index, member)| Reverse((member.offset_ns, index)))
            .collect();
        let mut events = 0_u64;
        while let Some(mut first) = heap.peek_mut() {
            let Reverse((time_ns, index)) = *first;
            if let Some(before) = &mut self.before {
                before.reach(time_ns);
            }
            if let Some(before) = self.before.take_if(|before| before.until_ns < time_ns) {
                self.end_before(&before)?;
            }
            let next = std::mem::replace(&mut pending[index], Next::Ended);
            self.take(index, time_ns, next)?;
            self.mapped_memory(time_ns, false)?;
            self.page_reading(time_ns, false)?;
            match self.pull(index)? {
                Some((time_ns, next)) => {
                    pending[index] = next;
                    *first = Reverse((time_ns, index));
                }
                None => {
                    PeekMut::pop(first);
                }
            }
            events += 1;
            if events.is_multiple_of(1 << 16) {
                progress(self.done);
            }
        }
        match self.before.take() {
            Some(mut before) => {
                before.reach(u64::MAX);
                self.end_before(&before)
            }
            None => Ok(()),
        }
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        let (time_ns, whole) = (self.last_ns, self.whole);
        self.mapped_memory(time_ns, true)?;
        self.page_reading(time_ns, true)?;
        let parts = || whole.parts.iter();
        let all_have_ends = parts().all(|part| reason(part).is_some());
        // The threads' count is compared with the samples so far, which a log that is cut off may
        // have more of.
        let is_compared =
            all_have_ends && parts().all(|part| part.is_whole) && whole.counted.is_some();
        let mut values = whole.account.counters.clone();
        values.retain(|(counter, _)| {
            is_compared || !matches!(counter, Counter::CountedBytes | Counter::CountedThreads)
        });
        self.put(&Record::Counters { time_ns, values })?;
        let last = (self.members.iter().zip(parts())).max_by_key(|(member, _)| member.end_ns());
        if let Some(reason) = last
            .and_then(|(_, part)| reason(part))
            .filter(|_| all_have_ends)
        {
            self.put(&Record::End { time_ns, reason })?;
        }
        self.flush()?;
        self.out.flush()
    }

    /// Returns the next event of that log, and its time. Writes names of threads on the way.
    fn pull(&mut self, index: usize) -> io::Result<Option<(u64, Next)>> {
        loop {
            let member = &mut self.members[index];
            if member.has_ended {
                return Ok(None);
            }
            let (time_ns, next) = match member.next() {
                None => {
                    member.has_ended = true;
                    (member.duration_ns, Next::Ended)
                }
                Some(Record::Alloc(alloc)) => (alloc.time_ns, Next::Event(Event::Alloc(alloc))),
                Some(Record::Free(free)) => (free.time_ns, Next::Event(Event::Free(free))),
                Some(Record::Marker { time_ns, name }) if !is_remark(&name) => {
                    (time_ns, Next::Marker(name))
                }
                Some(Record::Notice { time_ns, text }) => (time_ns, Next::Notice(text)),
                Some(Record::Regime {
                    time_ns,
                    interval,
                    by_budget: false,
                }) => (time_ns, Next::Interval(interval)),
                Some(Record::Checkpoint(checkpoint)) => {
                    (checkpoint.time_ns, Next::Checkpoint(checkpoint))
                }
                Some(Record::MappingChange(change)) => (change.time_ns, Next::Mapping(change)),
                Some(Record::MappedMemory(moment)) => (moment.time_ns, Next::Mapped(moment)),
                Some(Record::Pages(part)) => (part.time_ns, Next::Pages(part)),
                Some(Record::Thread(thread)) => {
                    self.thread(index, thread)?;
                    continue;
                }
                Some(_) => continue,
            };
            let read = member.records.offset();
            self.done += read - std::mem::replace(&mut member.read, read);
            member.reached_ns = member.reached_ns.max(time_ns);
            return Ok(Some((member.joined(member.reached_ns), next)));
        }
    }

    fn take(&mut self, index: usize, time_ns: u64, next: Next) -> io::Result<()> {
        match next {
            Next::Event(Event::Alloc(alloc)) => self.alloc(index, &alloc, false),
            Next::Event(Event::Free(free)) => self.free(index, &free),
            // One of each process; what somebody named is of all of them.
            Next::Marker(name) if name.starts_with("dump: ") => self.mark(index, time_ns, &name),
            Next::Marker(name) => self.put(&Record::Marker { time_ns, name }),
            Next::Notice(text) => {
                let text = self.of_process(index, &text);
                self.put(&Record::Notice { time_ns, text })
            }
            Next::Interval(interval) => {
                let what = match interval {
                    0 => "recording stopped".to_owned(),
                    interval => format!("recording with interval {interval}"),
                };
                self.mark(index, time_ns, &what)
            }
            Next::Checkpoint(checkpoint) => self.checkpoint(index, &checkpoint),
            Next::Mapping(change) => self.mapping(index, time_ns, change),
            Next::Pages(part) => {
                self.pages.part(index, part);
                Ok(())
            }
            Next::Mapped(moment) => {
                self.mapped(index, moment);
                Ok(())
            }
            Next::Began if self.members.len() <= MOST_MARKED => self.mark(index, time_ns, "began"),
            Next::Began => Ok(()),
            Next::Ended => {
                let reason = reason(&self.whole.parts[index]);
                if self.members.len() <= MOST_MARKED {
                    let what = match reason {
                        Some(EndReason::Exec) => "became another program",
                        Some(_) => "ended",
                        None => "last record",
                    };
                    self.mark(index, time_ns, what)?;
                }
                match reason.is_some() && time_ns < self.last_ns {
                    true => self.leave(index, time_ns),
                    false => Ok(()),
                }
            }
        }
    }

    /// Names a moment of a process.
    fn mark(&mut self, index: usize, time_ns: u64, what: &str) -> io::Result<()> {
        let name = self.of_process(index, what);
        self.put(&Record::Marker { time_ns, name })
    }

    /// Words about a process, with its name and number before them.
    fn of_process(&self, index: usize, words: &str) -> String {
        let part = &self.whole.parts[index].run;
        format!("{}, pid {}: {words}", part.name(), part.pid)
    }

    fn thread(&mut self, index: usize, thread: Thread) -> io::Result<()> {
        let is_heritage = thread.number == BEFORE_THE_FORK;
        if is_heritage && std::mem::replace(&mut self.has_inherited, true) {
            return Ok(());
        }
        let number = self.members[index].thread(thread.number);
        self.put(&Record::Thread(Thread { number, ..thread }))
    }

    /// A stack, before the first allocation that names it.
    pub(super) fn stack(&mut self, number: u32) -> io::Result<()> {
        let index = number as usize;
        if std::mem::replace(&mut self.known[index], true) {
            return Ok(());
        }
        let stack = &self.whole.stacks[index];
        match stack.end {
            Some(end) => self.put(&Record::Stack(Stack {
                number,
                end,
                frames: stack.frames.clone(),
                interrupted: stack.interrupted.clone(),
                labels: stack.labels.to_vec(),
            })),
            None => Ok(()), // its own log does not have it
        }
    }

    /// `from_checkpoint`: it is told of there, and came before.
    fn alloc(&mut self, index: usize, alloc: &Alloc, from_checkpoint: bool) -> io::Result<()> {
        if alloc.size > LARGEST_BLOCK || alloc.interval > LARGEST_INTERVAL {
            return Ok(()); // damage
        }
        let member = &mut self.members[index];
        let thread = member.thread(alloc.thread);
        let Some(&stack) = member.stacks.get(&alloc.stack) else {
            return Ok(());
        };
        if member.without_inherited && is_inherited(alloc) {
            return Ok(());
        }
        let ids = match thread {
            BEFORE_THE_FORK => BEFORE_THE_FORK_IDS,
            thread => thread.into(),
        };
        let had = self.ids.entry(ids).or_default();
        let id = (ids << ID_BITS) + *had;
        *had += 1;
        member.live.insert(alloc.id, id);
        let alloc = Alloc {
            time_ns: member.joined(alloc.time_ns),
            thread,
            id,
            stack,
            ..*alloc
        };
        if let Some(before) = &mut self.before {
            before.alloc(&alloc, from_checkpoint);
            return Ok(());
        }
        self.stack(stack)?;
        self.encoder.alloc(&alloc);
        self.end_long_frame()
    }

    fn free(&mut self, index: usize, free: &Free) -> io::Result<()> {
        let member = &mut self.members[index];
        let time_ns = member.joined(free.time_ns);
        let Some(id) = member.live.remove(free.id) else {
            return Ok(()); // of a block that is left out, or not in its log
        };
        let thread = member.thread(free.thread);
        self.freed(Free {
            time_ns,
            thread,
            id,
        })
    }

    fn freed(&mut self, free: Free) -> io::Result<()> {
        if let Some(before) = &mut self.before {
            before.free(free.id);
            return Ok(());
        }
        self.encoder.free(&free);
        self.end_long_frame()
    }

    /// A process is over: what it had in use is no more.
    fn leave(&mut self, index: usize, time_ns: u64) -> io::Result<()> {
        self.leave_mappings(index, time_ns)?;
        self.pages.leave(index);
        let live = std::mem::take(&mut self.members[index].live);
        let mut live: Vec<u64> = live.iter().map(|(_, &id)| id).collect();
        live.sort_unstable();
        if !live.is_empty() && !std::mem::replace(&mut self.has_left, true) {
            self.put(&Record::Thread(Thread {
                number: WITH_ITS_PROCESS,
                tid: 0,
                name: "(ended with its process)".into(),
            }))?;
        }
        live.into_iter().try_for_each(|id| {
            self.freed(Free {
                time_ns,
                thread: WITH_ITS_PROCESS,
                id,
            })
        })
    }

    /// The state that a log of a process which rotates begins with.
    fn checkpoint(&mut self, index: usize, checkpoint: &Checkpoint) -> io::Result<()> {
        if let Some(before) = &mut self.before {
            before.checkpoint(index, &self.members[index], checkpoint);
        }
        while let Some(record) = self.members[index].next() {
            match record {
                // A later one shows that the checkpoint's end is damaged.
                Record::Alloc(Alloc { time_ns, .. }) | Record::Free(Free { time_ns, .. })
                    if time_ns > checkpoint.time_ns =>
                {
                    self.members[index].given_back = Some(record);
                    break;
                }
                Record::Alloc(alloc) => self.alloc(index, &alloc, true)?,
                Record::Free(free) => self.free(index, &free)?,
                Record::Thread(thread) => self.thread(index, thread)?,
                Record::Passed(passed) => {
                    let member = &self.members[index];
                    let first_ns = member.joined(passed.first_ns);
                    if let Some(&stack) = member.stacks.get(&passed.stack)
                        && let Some(before) = &mut self.before
                    {
                        before.passed(stack, first_ns, &passed);
                    }
                }
                Record::CheckpointEnd { .. } => break,
                _ => {}
            }
        }
        Ok(())
    }

    /// From here on all logs have their detail: the state of all of them.
    fn end_before(&mut self, before: &BeforeDetail) -> io::Result<()> {
        self.flush()?;
        self.put(&Record::Checkpoint(before.beginning()))?;
        for stack in before.stacks() {
            self.stack(stack)?;
        }
        for moment in before.moments() {
            self.put(&Record::CoarseMoment(moment.clone()))?;
        }
        // Frames begin at the time of their first record: what has none must not stand before what
        // has.
        self.flush()?;
        before
            .passed_rows()
            .try_for_each(|passed| self.put(&Record::Passed(passed)))?;
        for alloc in before.in_use() {
            self.encoder.alloc(&alloc);
            self.end_long_frame()?;
        }
        self.flush()?;
        self.put(&Record::CheckpointEnd {
            time_ns: before.until_ns,
        })?;
        self.flush()?;
        self.put_all_mappings(before.until_ns)
    }
}

/// Why a process's log ended; `None`: it has no end.
fn reason(part: &Part) -> Option<EndReason> {
    match part.run.ending {
        Ending::Said(reason) => Some(reason),
        Ending::CutOff | Ending::Running | Ending::Snapshot => None,
    }
}
