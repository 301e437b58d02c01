//! Profile: what one process allocated, by stack and size class.
//!
//! It holds what is needed to name its addresses and to judge its numbers. All commands work on it,
//! whatever form the input has.
//!
//! Addresses are avmas (absolute, in the profiled process). Times are nanoseconds since the start.

use std::collections::HashMap;

use crate::compressed::Damaged;
use crate::history::Past;
use crate::history::courses::Courses;
use crate::history::lifetimes::Lifetimes;
use crate::history::temporary::Temporary;
use heapprof_core::{Estimate, Row, Totals};
use heapprof_format::{
    CoarseMoment, Counter, MemoryReading, SegmentStart, Symbols, Thread, WalkEnd,
};

use crate::model::change::Change;
use crate::model::confidence::Confidence;
use crate::model::counted::Counted;
use crate::model::extras::Extras;
use crate::model::labels::Labels;
use crate::model::loaded_module::LoadedModule;
use crate::model::mapped_memory::Mappings;
use crate::model::memory_course::MemoryCourse;
use crate::model::metric::{Metric, Numbers};
use crate::model::module_index::ModuleIndex;
use crate::model::nearest;
use crate::model::page_reading::PagesRead;
use crate::model::part::Part;
use crate::model::peak::Peak;
use crate::model::precision::Precision;
use crate::model::quantity::Count;
use crate::model::run::{Ending, Run};
use crate::model::span::Span;
use crate::resolve::Frame;

/// The words for [`LogAccount::missing_frames`], behind their number.
pub const MISSING_FRAMES: &str = "parts of the log missing between others";

/// Most faults that are named one by one.
const NAMED: usize = 8;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Profile {
    /// The run. For several processes, it has what is true of all.
    pub run: Run,
    /// The processes that were added up, when they are several; else empty.
    pub parts: Vec<Part>,
    /// Losses and damage, as the file and the profiler report them.
    pub account: LogAccount,
    /// The filter that it was put through, in words; empty: none.
    pub filtered: String,
    /// Loaded object files, the program first.
    pub modules: Vec<LoadedModule>,
    /// Where they are, for [`place`](Self::place), which makes it when it is first asked: modules
    /// stay as they are from then on.
    pub(crate) index: ModuleIndex,
    /// Call stacks; rows name them by index.
    pub stacks: Vec<CallStack>,
    /// The numbers.
    pub rows: Vec<Row>,
    /// The extras that were kept of a log.
    pub extras: Extras,
    /// Threads, as the log numbers them.
    pub threads: Vec<Thread>,
    /// Names that came with the input (a symbolized dump).
    pub names: Option<Symbols>,
    /// Frames that came with the input (pprof), by address, innermost first.
    pub frames: HashMap<u64, Vec<Frame>>,
    /// Standard errors of the totals that a dump states, in the order of [`Metric::ALL`].
    pub stated_errors: Option<[f64; 4]>,
    /// When the most bytes were in use; `None` for a dump.
    pub peak: Option<Peak>,
    /// The bytes in use at moments before the time in detail, in order, if the log rotated. Stacks
    /// are indices into `stacks`. The blocks that a forked process has from its parent are missing.
    pub coarse: Vec<CoarseMoment>,
    /// The past of each row, if it was asked for; else empty.
    pub pasts: Vec<Past>,
    /// The course of each stack, if it was asked for.
    pub courses: Courses,
    /// Bytes of all that the process itself asked for, one for an empty block.
    pub requested: Estimate,
    /// The bytes that its threads counted, if the log has them.
    pub counted: Option<Counted>,
    /// The reading of the process's memory that is nearest to the end of the view.
    pub memory: Option<MemoryReading>,
    /// The [whole](MemoryReading::is_whole) ones that are near it, the nearest first.
    pub whole_memory: Vec<MemoryReading>,
    /// The readings of the whole run.
    pub memory_course: MemoryCourse,
    /// The reading of pages that the view is of, if it was asked for.
    pub pages: Option<PagesRead>,
    /// The program's mappings at the end of the view.
    pub mappings: Mappings,
    /// By stack, what differs between two views, when that was asked for; may be shorter than the
    /// stacks.
    pub changes: Vec<Change>,
    /// The definition of a temporary block in the pasts.
    pub temporary: Option<Temporary>,
    /// Lifetimes by stack, when they were asked for; may be shorter than the stacks.
    pub lifetimes: Vec<Lifetimes>,
}

/// The account of a log: its losses, as far as they are known. Law 10.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogAccount {
    /// The profiler's own counters at the end.
    pub counters: Vec<(Counter, u64)>,
    /// Places where the file was damaged and reading went on.
    pub damage: Vec<Damage>,
    /// Segments of the log that were read, but for the first of a run.
    pub segments: Vec<SegmentStart>,
    /// Frames that were lost between those read.
    pub missing_frames: u64,
    /// Where the file was cut off, and how many bytes after that could not be used.
    pub torn: Option<(u64, u64)>,
    /// Bytes in front of that place in the frame that goes on behind it. Its checksum says nothing.
    pub unchecked_bytes: u64,
    /// Bytes of a followed log that were read, and that the file has no longer.
    pub cut_bytes: u64,
    /// Stacks of samples that are not in the file.
    pub unknown_stacks: u64,
    /// Frees of blocks whose allocation is not in the file.
    pub unknown_frees: u64,
    /// Allocations whose numbers are impossible, left out.
    pub implausible: u64,
    /// Records of a followed log that were left out, because what they say takes too much memory.
    pub without_room: u64,
    /// Number of forked processes whose blocks from before the fork are left out, because the
    /// parent's log is read, too.
    pub inherited_elsewhere: u64,
    /// Logs of other processes, read or joined with this one, that have no record.
    pub empty_logs: u64,
    /// Why files of bundles are missing, and with them names.
    pub lost_names: Vec<String>,
    /// Other things a reader of the numbers should know.
    pub remarks: Vec<String>,
}

impl LogAccount {
    /// Returns true if the file was read to its end without a doubt.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
            && self.missing_frames == 0
            && self.cut_bytes == 0
            && self.torn.is_none()
    }

    /// Returns a counter at the end, if the log has it.
    pub fn counter(&self, wanted: Counter) -> Option<u64> {
        let mut counters = self.counters.iter();
        counters.find_map(|&(counter, n)| (counter == wanted).then_some(n))
    }

    /// Notes first the damage of a compressed file. Its cost is known from the log in it.
    pub(crate) fn note_damaged_file(&mut self, damaged: Option<Damaged>) {
        let damage = damaged.map(|damaged| Damage {
            offset: damaged.offset(),
            skipped: 0,
            what: damaged.to_string(),
        });
        self.damage.splice(..0, damage);
    }

    /// Returns the faults of the file, in words; none if it is whole.
    pub fn faults(&self) -> Vec<String> {
        let missing = (self.missing_frames > 0).then(|| match self.missing_frames {
            1 => "a part of the log missing between others".to_owned(),
            many => format!("{} {MISSING_FRAMES}", Count(many)),
        });
        let mut faults: Vec<String> = missing.into_iter().collect();
        let mut damages = self.damages();
        faults.extend(damages.by_ref().take(NAMED));
        match damages.count() {
            0 => {}
            more => faults.push(format!("damaged: {more} more places")),
        }
        faults
    }

    /// Returns the places where the file is cut or damaged, in words.
    pub fn damages(&self) -> impl Iterator<Item = String> + '_ {
        let cut = (self.cut_bytes > 0).then(|| {
            let bytes = self.cut_bytes;
            format!("the log was cut while it was followed: {bytes} bytes that were read are gone")
        });
        let torn = self.torn.map(|(offset, left)| {
            let unchecked = self.unchecked_in_words();
            format!(
                "cut off at offset {offset}: {left} bytes behind it could not be used{unchecked}"
            )
        });
        let damages = self.damage.iter().map(|damage| {
            let Damage { what, skipped, .. } = damage;
            match skipped {
                0 => format!("damaged: {what}"),
                skipped => format!("damaged: {what}; {skipped} bytes passed over"),
            }
        });
        cut.into_iter().chain(torn).chain(damages)
    }

    /// Says how much in front of the cut was used without a checksum; empty if nothing was.
    pub fn unchecked_in_words(&self) -> String {
        match self.unchecked_bytes {
            0 => String::new(),
            bytes => format!(
                "; the checksum of the {bytes} bytes in front of it is lost, and they were used without"
            ),
        }
    }

    /// Counters of things that are missing from the file, those that are not zero.
    pub fn losses(&self) -> impl Iterator<Item = (Counter, u64)> + '_ {
        self.counters
            .iter()
            .copied()
            .filter(|(counter, n)| counter.is_loss() && *n > 0)
    }

    /// Returns true if loads of modules are missing from the file.
    pub fn lacks_modules(&self) -> bool {
        self.losses()
            .any(|(counter, _)| counter == Counter::LostModules)
    }
}

/// A damaged place that was passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes passed over.
    pub skipped: u64,
    /// The error there.
    pub what: String,
}

/// A call stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallStack {
    /// Addresses, innermost first: a PC inside an allocation function, then return addresses.
    pub frames: Vec<u64>,
    /// Indices of addresses that a signal interrupted, ascending: no return addresses.
    pub interrupted: Vec<u32>,
    /// Why the walk ended; `None` when the input does not say.
    pub end: Option<WalkEnd>,
    /// When it first allocated; decides which module an address belonged to.
    pub time_ns: u64,
    /// The first address is in the profiler's own malloc, whatever that is called. So it is in
    /// logs; other formats need not have it.
    pub begins_with_ours: bool,
    /// The labels under which it allocated.
    pub labels: Labels,
}

impl CallStack {
    /// Returns true if that frame's address is the instruction itself and not the one behind a
    /// call.
    pub fn is_exact(&self, index: usize) -> bool {
        let is_interrupted = |index| self.interrupted.binary_search(&index).is_ok();
        index == 0 || u32::try_from(index).is_ok_and(is_interrupted)
    }

    /// The addresses to look up, innermost first: of the call, not of what follows it.
    pub fn calls(&self) -> impl Iterator<Item = u64> + '_ {
        let mut interrupted = self.interrupted.iter().copied().peekable();
        (0u32..).zip(&self.frames).map(move |(i, address)| {
            while interrupted.next_if(|&at| at < i).is_some() {}
            let is_exact = i == 0 || interrupted.peek() == Some(&i);
            address.wrapping_sub(u64::from(!is_exact))
        })
    }

    /// The addresses as a dump writes them, whose readers take one from all but the first.
    pub fn as_dumped(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls()
            .enumerate()
            .map(|(i, call)| call.wrapping_add(u64::from(i > 0)))
    }
}

/// An instruction: an address, and the module that was there then. Addresses are reused when
/// modules come and go; a place is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Index of the module, `None` for code outside all of them.
    pub module: Option<u32>,
    /// The address.
    pub avma: u64,
}

impl Profile {
    /// Returns how exact the numbers are.
    pub fn precision(&self) -> Precision {
        let of_parts = self.parts.iter().map(|part| part.precision);
        if let Some(least) = of_parts.max_by_key(|precision| *precision as u8) {
            return least;
        }
        let sampled = self
            .rows
            .iter()
            .any(|row| row.totals.allocated.bytes_error() > 0.0);
        match (self.run.ending, self.run.interval, self.run.intervals_seen) {
            _ if sampled => Precision::Sampled,
            (Ending::Snapshot, Some(0 | 1), _) if !self.states_an_error() => Precision::Exact,
            (Ending::Snapshot, _, _) => Precision::Stated,
            _ if self.run.intervals().is_some_and(|(_, most)| most > 1) => Precision::Sampled,
            _ => Precision::Exact,
        }
    }

    /// Returns true if the numbers lack what a log's missing end would tell: a log among these was
    /// cut, and what is shown reaches to its last record.
    pub fn lacks_an_end(&self) -> bool {
        let is_cut = |run: &Run| {
            let is_to_the_end = |span: Span| span.to.time_ns() >= run.duration_ns;
            run.ending.is_cut() && run.span.is_none_or(is_to_the_end)
        };
        is_cut(&self.run) || self.parts.iter().any(|part| is_cut(&part.run))
    }

    /// Leaves only what is in use, as if nothing else had been allocated.
    pub(crate) fn keep_survivors(&mut self) {
        let survives = |row: &mut Row| {
            row.totals.allocated = row.totals.in_use;
            !row.totals.in_use.is_empty()
        };
        let mut pasts = std::mem::take(&mut self.pasts).into_iter();
        self.rows.retain_mut(|row| {
            let past = pasts.next();
            let stays = survives(row);
            self.pasts.extend(past.filter(|_| stays));
            stays
        });
        self.extras.keep_survivors(survives);
    }

    /// Returns true if a dump says of its numbers that they are estimates.
    fn states_an_error(&self) -> bool {
        let stated = self.stated_errors.iter().flatten();
        stated.copied().any(|error| error > 0.0)
    }

    /// The four totals: sums of the rounded rows.
    pub fn numbers(&self) -> Numbers {
        let mut sum = Numbers::default();
        for row in &self.rows {
            sum += Numbers::of(&row.totals);
        }
        sum
    }

    /// The totals with their errors.
    pub fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        for row in &self.rows {
            sum.merge(&row.totals);
        }
        sum
    }

    /// The standard error of a total; `None` when nothing is known about it.
    pub fn error(&self, metric: Metric) -> Option<f64> {
        match self.precision() {
            Precision::Exact => Some(0.0),
            Precision::Sampled => Some(metric.error_of(&self.totals())),
            Precision::Stated => {
                let index = Metric::ALL.iter().position(|&m| m == metric)?;
                self.stated_errors.map(|errors| errors[index])
            }
        }
    }

    /// Returns true if a metric rests on no sample: then it is an estimate of which the samples
    /// tell neither value nor error, and [`unseen_bytes`](Self::unseen_bytes) bounds what there may
    /// be.
    pub fn has_no_sample_of(&self, metric: Metric) -> bool {
        self.precision() == Precision::Sampled && metric.samples_of(&self.totals()) == 0
    }

    /// How many bytes a site that is not in the profile could still hold, with that confidence,
    /// none of its samples having been seen; `None` unless the numbers are estimates.
    pub fn unseen_bytes(&self, confidence: Confidence) -> Option<f64> {
        let (_, interval) = self.run.intervals()?;
        (self.precision() == Precision::Sampled)
            .then(|| confidence.unseen_intervals() * interval as f64)
    }

    /// The stack of a row.
    pub fn stack_of(&self, row: &Row) -> &CallStack {
        static NONE: CallStack = CallStack {
            frames: Vec::new(),
            interrupted: Vec::new(),
            end: None,
            time_ns: 0,
            begins_with_ours: false,
            labels: Labels::NONE,
        };
        self.stacks.get(row.stack as usize).unwrap_or(&NONE)
    }

    /// The places to look up for a stack, innermost first.
    pub fn places<'a>(&'a self, stack: &'a CallStack) -> impl Iterator<Item = Place> + 'a {
        stack.calls().map(|avma| self.place(avma, stack.time_ns))
    }

    /// The place of an address at a time: in the module that was there, or else in the last one
    /// that ever was (unloading is noticed late, and a dump has no times). Another module may have
    /// been there if loads are missing from the log: then the place has no module.
    pub fn place(&self, avma: u64, time_ns: u64) -> Place {
        let found = self.index.find(&self.modules, avma, time_ns);
        let is_certain = |&module: &u32| {
            self.modules[module as usize].was_loaded_at(time_ns) || !self.account.lacks_modules()
        };
        Place {
            module: found.filter(is_certain),
            avma,
        }
    }

    /// The module of a place.
    pub fn module_of(&self, place: Place) -> Option<&LoadedModule> {
        self.modules.get(place.module? as usize)
    }

    /// Returns true if the blocks of a stack are of an allocator in the program or in one of its
    /// libraries: the first frame is in that module, and not in the profiler.
    pub fn is_elsewhere(&self, stack: u32) -> bool {
        let stack = self.stacks.get(stack as usize);
        let first = stack.filter(|stack| stack.begins_with_ours);
        let place = first.and_then(|stack| self.places(stack).next());
        place.is_some_and(|place| {
            (self.module_of(place)).is_some_and(|module| !module.is_profiler())
        })
    }

    /// Returns true if the mappings were read at the end of the view, and not at another time.
    pub fn has_mappings_of_end(&self) -> bool {
        let run = &self.run;
        let end_ns = run.span.map_or(run.duration_ns, |span| span.to.time_ns());
        let read_ns = self.mappings.read_ns;
        read_ns.is_some_and(|read_ns| nearest::is_of(read_ns, end_ns))
    }

    /// Returns true if an interpreter ran the code of a place.
    pub fn is_interpreted(&self, place: Place) -> bool {
        self.module_of(place)
            .is_some_and(|module| module.code.is_some())
    }
}

#[cfg(test)]
mod tests {
    use heapprof_format::Segment;

    use super::*;

    #[test]
    fn calls_are_one_before_return_addresses_and_interrupted_ones_stay() {
        let stack = CallStack {
            frames: vec![0x10, 0x20, 0x30, 0x40],
            interrupted: vec![2],
            ..CallStack::default()
        };
        assert_eq!(stack.calls().collect::<Vec<_>>(), [0x10, 0x1f, 0x30, 0x3f]);
        assert_eq!(
            stack.as_dumped().collect::<Vec<_>>(),
            [0x10, 0x20, 0x31, 0x40]
        );
    }

    #[test]
    fn each_frame_is_asked_once_whether_it_was_interrupted() {
        let stack = CallStack {
            frames: (0..6).map(|i| 0x10 * i).collect(),
            interrupted: vec![0, 3, 5, 9],
            ..CallStack::default()
        };
        let exact = |i: usize| stack.frames[i] - u64::from(!stack.is_exact(i));
        assert!(stack.calls().eq((0..6).map(exact)));
        assert_eq!(
            [0, 1, 3, 4, 5].map(|i| stack.is_exact(i)),
            [true, false, true, false, true]
        );
    }

    #[test]
    fn a_reused_address_belongs_to_the_module_of_its_time() {
        let module = |path: &str, loaded_ns, unloaded_ns| LoadedModule {
            path: path.into(),
            segments: vec![Segment {
                start: 0x1000,
                len: 0x1000,
                file_offset: 0,
                flags: 5,
            }],
            loaded_ns,
            unloaded_ns,
            ..LoadedModule::default()
        };
        let profile = Profile {
            modules: vec![module("a.so", 10, Some(20)), module("b.so", 30, Some(40))],
            ..Profile::default()
        };
        let at = |time| profile.place(0x1800, time).module;
        assert_eq!(
            (at(15), at(35), at(25), at(50)),
            (Some(0), Some(1), Some(1), Some(1))
        );
        assert_eq!(profile.place(0x2000, 15).module, None);

        // A module that is missing from the log may have had the place between two, and after them.
        let counters = vec![(Counter::LostModules, 1)];
        let account = LogAccount {
            counters,
            ..LogAccount::default()
        };
        let profile = Profile { account, ..profile };
        let at = |time| profile.place(0x1800, time).module;
        assert_eq!(
            (at(15), at(35), at(25), at(50)),
            (Some(0), Some(1), None, None)
        );
    }
}
