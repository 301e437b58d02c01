//! Follower: a log that grows, folded up to its last complete frame.
//!
//! [`Follower::catch_up`] folds what was appended since the last call. If another file has the path
//! (a rotation, a restart) or the file is shorter than what was read, the fold begins anew. The
//! rest of a file that was replaced or removed comes first. The segment of a rotated log begins
//! with a checkpoint, which has all totals and all blocks in use.
//!
//! A log that is cut is folded up to the cut, once nothing more is to come.
//!
//! Memory is needed for blocks in use, stacks and rows, within a [`Room`].
//!
//! The blocks that a forked process has from its parent come from the parent's log, once the
//! process's own log has its first event.

mod heir;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use heapprof_core::{Estimate, Totals};
use heapprof_format::{Counter, Start};

use crate::history::curve::Curve;
use crate::history::temporary::Temporary;
use crate::memory;
use crate::model::metric::Numbers;
use crate::model::profile::{LogAccount, Profile};
use crate::model::run::Run;
use crate::read::fold::Fold;
use crate::read::fold::averages::Averages;
use crate::read::fold::room::SharedRoom;
use crate::read::tail::Tail;
use heir::Heir;

/// A log that is followed.
#[derive(Debug)]
pub(crate) struct Follower {
    path: PathBuf,
    /// Whether a link at the path is followed: if a user named it.
    may_be_link: bool,
    options: Options,
    file: Option<Open>,
    /// How often another file had the path, or the file was cut.
    generation: u64,
    /// Bytes that were read of the file, and were cut off then.
    cut_bytes: u64,
}

/// A frame that is incomplete so long after the last write stays so: a writer appends a frame by
/// one call.
const SETTLED: Duration = Duration::from_secs(2);

/// The parts of a log that a follower keeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// Leaves out what a forked process had from its parent, whose log is followed, too.
    pub(crate) without_inherited: bool,
    /// Keeps averages of what is in use from that time on.
    pub(crate) averages_since_ns: Option<u64>,
    /// The room of all followers, and the most that this one may take of it.
    pub(crate) room: Option<(Arc<SharedRoom>, u64)>,
    /// Keeps the past of all rows as well, and the curve. This takes some more memory for each live
    /// block.
    pub(crate) past: Option<Temporary>,
}

/// A file that is being read, and its fold.
#[derive(Debug)]
struct Open {
    tail: Tail,
    heir: Heir,
}

/// The change that a call found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing was appended.
    Same,
    /// Records were appended.
    Grown,
    /// The fold began anew.
    Anew,
}

impl Follower {
    pub(crate) fn of(path: &Path, may_be_link: bool, options: Options) -> Follower {
        Follower {
            path: path.to_owned(),
            may_be_link,
            options,
            file: None,
            generation: 0,
            cut_bytes: 0,
        }
    }

    /// Reads what was appended. After [`Step::Grown`], another call may find another file.
    ///
    /// # Errors
    /// If the file is gone, or its bytes are no log. The fold so far stays.
    pub(crate) fn catch_up(&mut self) -> io::Result<Step> {
        let meta = match self.may_be_link {
            true => std::fs::metadata(&self.path),
            false => std::fs::symlink_metadata(&self.path),
        };
        let is_same = |open: &Open| meta.as_ref().is_ok_and(|meta| open.tail.is_of(meta));
        let is_same = self.file.as_ref().is_some_and(is_same);
        if self.read_rest()? == Step::Grown {
            return Ok(Step::Grown);
        }
        if is_same {
            return Ok(Step::Same);
        }
        let meta = meta?;
        if let Some(open) = &self.file {
            match open.tail.cut_bytes(&meta) {
                0 => self.cut_bytes = 0,
                more => self.cut_bytes += more,
            }
        }
        let tail = Tail::open(&self.path, self.may_be_link)?;
        let room = &self.options.room;
        let room = room.as_ref().map(|(shared, most)| shared.part(*most));
        // The new fold may take the room of the old one.
        self.file = None;
        let fold = Fold::new()
            .without_inherited(self.options.without_inherited)
            .with_averages_since(self.options.averages_since_ns)
            .with_room(room);
        let fold = match self.options.past {
            Some(temporary) => fold.with_pasts(temporary).with_curve(),
            None => fold,
        };
        let finds_inherited = !self.options.without_inherited;
        let mut open = Open {
            heir: Heir::of(&self.path, tail.owner(), fold, finds_inherited),
            tail,
        };
        open.read_on()?;
        self.file = Some(open);
        self.generation += 1;
        self.read_cut()?;
        Ok(Step::Anew)
    }

    /// Reads what was appended to the file that is open, whatever has its path by now.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn read_rest(&mut self) -> io::Result<Step> {
        let Some(open) = &mut self.file else {
            return Ok(Step::Same);
        };
        match open.tail.grow() {
            0 => Ok(match self.read_cut()? {
                true => Step::Grown,
                false => Step::Same,
            }),
            // The frame that was taken for cut would be read twice.
            _ if open.tail.ends_in_frame() => Ok(Step::Same),
            more => {
                memory::appended(more);
                open.read_on()?;
                Ok(Step::Grown)
            }
        }
    }

    /// Reads the frame that the end of the file cuts, if it stays so. Returns true if it has
    /// records.
    fn read_cut(&mut self) -> io::Result<bool> {
        let may_be_cut = self
            .file
            .as_ref()
            .is_some_and(|open| open.tail.may_be_cut());
        if !may_be_cut || !self.is_settled() {
            return Ok(false);
        }
        let open = self.file.as_mut();
        open.map_or(Ok(false), |open| open.tail.read_cut(&mut open.heir))
    }

    /// Returns true if a frame that is incomplete stays so.
    fn is_settled(&self) -> bool {
        self.silence().is_none_or(|silence| silence >= SETTLED)
    }

    /// Forgets what was read: the next call reads the file from its beginning.
    pub(crate) fn forget(&mut self) {
        self.file = None;
    }

    /// About the bytes of the fold in memory, if it has a room.
    pub(crate) fn bytes(&self) -> u64 {
        self.fold().map_or(0, Fold::bytes)
    }

    /// Whether there is a fold.
    pub(crate) fn is_read(&self) -> bool {
        self.file.is_some()
    }

    /// Changes if the fold began anew: numbers of rows and stacks are other ones then.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn fold(&self) -> Option<&Fold> {
        Some(self.file.as_ref()?.heir.fold())
    }

    /// The run so far.
    pub(crate) fn run(&self) -> Option<&Run> {
        Some(self.fold()?.run())
    }

    /// Records so far.
    pub(crate) fn records(&self) -> u64 {
        self.fold().map_or(0, Fold::records)
    }

    /// The time since the file was last written; `None`: not known.
    pub(crate) fn silence(&self) -> Option<Duration> {
        let modified = std::fs::metadata(&self.path).and_then(|meta| meta.modified());
        // A time that is to come is none that passed.
        Some(modified.ok()?.elapsed().unwrap_or_default())
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.file.as_ref().map_or(0, |open| open.tail.length())
    }

    /// The totals with their errors.
    pub(crate) fn totals(&self) -> Totals {
        self.fold()
            .map_or_else(Totals::default, |fold| fold.ledger().total())
    }

    /// The four totals: sums of the rounded rows, as every output states them.
    pub(crate) fn numbers(&self) -> Numbers {
        let mut sum = Numbers::default();
        for row in self
            .fold()
            .into_iter()
            .flat_map(|fold| fold.ledger().rows())
        {
            sum += Numbers::of(&row.totals);
        }
        sum
    }

    /// Bytes in use that a forked process has from its parent.
    pub(crate) fn inherited_bytes(&self) -> u64 {
        let open = self.file.as_ref();
        open.map_or(0, |open| open.heir.inherited_bytes())
    }

    /// The profiler's own counters so far.
    pub(crate) fn counters(&self) -> Vec<(Counter, u64)> {
        self.fold().map_or_else(Vec::new, Fold::counters)
    }

    /// Damaged places and missing frames so far.
    pub(crate) fn damage(&self) -> u64 {
        self.file.as_ref().map_or(0, |open| open.tail.faults())
    }

    /// Records that were left out, because the log needs too much memory.
    pub(crate) fn left_out(&self) -> u64 {
        self.fold().map_or(0, Fold::left_out)
    }

    /// By row, what is in use of blocks that were allocated after that time, if the past is kept.
    pub(crate) fn in_use_since(&self, time_ns: u64) -> Vec<Estimate> {
        let fold = self.fold();
        fold.map_or_else(Vec::new, |fold| fold.in_use_since(time_ns))
    }

    /// The curve so far, if the past is kept.
    pub(crate) fn curve(&self) -> Option<&Curve> {
        self.fold()?.curve()
    }

    /// The profile so far.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let open = self.file.as_ref()?;
        let mut profile = open.heir.fold().current_profile();
        self.note(open, &mut profile.account);
        Some(profile)
    }

    /// Returns the faults of the file, in the words of [`LogAccount::faults`].
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut account = LogAccount::default();
        match &self.file {
            Some(open) => self.note(open, &mut account),
            None => account.cut_bytes = self.cut_bytes,
        }
        let mut faults = account.faults();
        faults.append(&mut account.remarks);
        faults
    }

    fn note(&self, open: &Open, account: &mut LogAccount) {
        open.tail.note(self.is_settled(), account);
        account.cut_bytes = self.cut_bytes;
    }

    /// The averages up to that time, which is not before the last event; none at the first call.
    /// Others are kept from there on, unless that is the start of the process.
    pub(crate) fn take_averages(&mut self, end_ns: u64) -> Averages {
        self.options.averages_since_ns = Some(end_ns).filter(|&end_ns| end_ns > 0);
        let open = self.file.as_mut();
        open.map_or_else(Averages::default, |open| {
            open.heir.fold_mut().take_averages(end_ns)
        })
    }
}

impl Open {
    fn read_on(&mut self) -> io::Result<()> {
        self.tail.read_on(&mut self.heir)
    }
}

/// The first record of a log, which names its process; `None`: it is not there yet.
///
/// # Errors
/// If the file cannot be read, or is no log.
pub(crate) fn start_of_log(path: &Path) -> io::Result<Option<Start>> {
    Tail::open(path, true)?.start()
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::log::profile_of_log;
    use heapprof_format::{Alloc, Encoder, FILE_HEADER, Free, Record, Stack, Start, WalkEnd};

    fn start() -> Record {
        Record::Start(Start {
            pid: 7,
            interval: 1,
            ..Start::default()
        })
    }

    fn alloc(id: u64) -> Record {
        Record::Alloc(Alloc {
            time_ns: id * 1000,
            thread: 0,
            id,
            stack: 1,
            size: 100 + id,
            slack: 0,
            interval: 1,
        })
    }

    fn stack() -> Record {
        Record::Stack(Stack {
            number: 1,
            frames: vec![0x1000, 0x2000],
            interrupted: Vec::new(),
            end: WalkEnd::Root,
            labels: Vec::new(),
        })
    }

    /// A log in frames: each group of records is one.
    fn frames(groups: &[Vec<Record>]) -> Vec<Vec<u8>> {
        let mut encoder = Encoder::new();
        let mut frames = vec![FILE_HEADER.to_vec()];
        for group in groups {
            group.iter().for_each(|record| encoder.record(record));
            frames.push(encoder.finish().to_vec());
        }
        frames
    }

    fn some_frames() -> Vec<Vec<u8>> {
        let mut groups = vec![vec![start(), stack()]];
        groups.extend((1..20).map(|id| {
            let free = Record::Free(Free {
                time_ns: id * 1000,
                thread: 0,
                id: id / 2,
            });
            match id % 3 {
                0 => vec![alloc(id), free],
                _ => vec![alloc(id)],
            }
        }));
        frames(&groups)
    }

    /// A log that is followed byte by byte gives the profile of the whole log, whatever the chunks.
    #[test]
    fn a_log_in_chunks_is_the_whole_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let bytes = some_frames().concat();
        for step in [1, 7, 30, 1000] {
            std::fs::write(&path, b"").unwrap();
            let mut follower = Follower::of(&path, false, Options::default());
            for end in (1..bytes.len()).step_by(step).chain([bytes.len()]) {
                std::fs::write(&path, &bytes[..end]).unwrap();
                follower.catch_up().unwrap();
            }
            let whole = profile_of_log(&bytes, |_| {}).unwrap();
            let followed = follower.profile().unwrap();
            assert_eq!(followed.rows, whole.rows, "step {step}");
            assert_eq!(followed.account, whole.account, "step {step}");
            assert_eq!(follower.numbers(), whole.numbers());
            assert_eq!(follower.catch_up().unwrap(), Step::Same);
        }
    }

    #[test]
    fn damage_is_passed_and_counted_as_the_reader_of_logs_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut frames = some_frames();
        let last = frames[5].len() - 1;
        frames[5][last] ^= 0xff;
        frames.remove(8);
        let bytes = frames.concat();
        let until = |frame: usize| frames[..frame].iter().map(Vec::len).sum::<usize>();
        let mut follower = Follower::of(&path, false, Options::default());
        // The places are told by the offset in the file, wherever a reading begins.
        for end in [until(3), until(8), bytes.len()] {
            std::fs::write(&path, &bytes[..end]).unwrap();
            follower.catch_up().unwrap();
        }
        let whole = profile_of_log(&bytes, |_| {}).unwrap();
        let followed = follower.profile().unwrap();
        assert_eq!((follower.damage(), followed.account.missing_frames), (3, 2));
        assert_eq!(followed.account, whole.account);
        assert_eq!(followed.rows, whole.rows);
    }

    /// A log that is compressed while it is followed is read anew, and gives the same. Damage of
    /// the compressed file is said.
    #[test]
    fn a_compressed_log_is_followed_as_a_plain_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let bytes = some_frames().concat();
        let put = |bytes: &[u8]| {
            let other = folder.path().join("b");
            std::fs::write(&other, bytes).unwrap();
            std::fs::rename(&other, &path).unwrap();
        };
        put(&bytes);
        let mut follower = Follower::of(&path, false, Options::default());
        follower.catch_up().unwrap();
        let plain = follower.profile().unwrap();
        let mut packed = Vec::new();
        crate::compressed::pack(&bytes, &mut packed, |_| {}).unwrap();
        put(&packed);
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        assert_eq!(follower.catch_up().unwrap(), Step::Same);
        let followed = follower.profile().unwrap();
        assert_eq!(
            (&followed.rows, &followed.account),
            (&plain.rows, &plain.account)
        );
        assert_eq!(follower.length(), bytes.len() as u64);
        // Its checksum.
        *packed.last_mut().unwrap() ^= 1;
        put(&packed);
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        let followed = follower.profile().unwrap();
        assert_eq!(followed.rows, plain.rows);
        let words = "the compressed file is damaged at offset 0";
        assert!(followed.account.damage.iter().any(|it| it.what == words));
        assert!(!followed.account.is_whole());
    }

    /// A frame whose length is damaged claims what is behind it. The follower does not wait for it.
    #[test]
    fn a_damaged_length_costs_its_frame_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        for claimed in [1, 0x80] {
            let mut frames = some_frames();
            // The third byte of the length, and its fourth: more than the longest frame.
            let at = if claimed == 1 { 6 } else { 7 };
            frames[5][at] ^= claimed;
            let bytes = frames.concat();
            let whole = profile_of_log(&bytes, |_| {}).unwrap();
            assert_eq!((whole.account.damage.len(), whole.account.torn), (1, None));
            for step in [7, 30, bytes.len()] {
                std::fs::write(&path, b"").unwrap();
                let mut follower = Follower::of(&path, false, Options::default());
                for end in (step..bytes.len()).step_by(step).chain([bytes.len()]) {
                    std::fs::write(&path, &bytes[..end]).unwrap();
                    follower.catch_up().unwrap();
                }
                let followed = follower.profile().unwrap();
                assert_eq!(followed.rows, whole.rows, "step {step}");
                assert_eq!(followed.account, whole.account, "step {step}");
            }
        }
    }

    /// In chunks or at once, the past is that of a reading for `top`, and the curve ends with the
    /// bytes in use.
    #[test]
    fn the_past_of_a_followed_log_is_that_of_the_whole_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let bytes = some_frames().concat();
        let temporary = Temporary {
            within_ns: Some(10_000_000),
            before_allocations: None,
        };
        let options = Options {
            past: Some(temporary),
            ..Options::default()
        };
        let mut follower = Follower::of(&path, false, options);
        for end in (1..bytes.len()).step_by(50).chain([bytes.len()]) {
            std::fs::write(&path, &bytes[..end]).unwrap();
            follower.catch_up().unwrap();
        }
        let mut whole = Fold::new().with_pasts(temporary);
        crate::read::log::each_record(&bytes, &mut |_| {}, &mut whole).unwrap();
        let whole = whole.finish();
        let followed = follower.profile().unwrap();
        assert!(!whole.pasts.is_empty());
        assert_eq!(followed.pasts, whole.pasts);
        assert_eq!(followed.lifetimes, whole.lifetimes);
        let curve = follower.curve().unwrap();
        let (from_ns, until_ns) = (curve.begin_ns(), whole.run.duration_ns);
        let in_use = whole.numbers().in_use_bytes as f64;
        let later_ns = until_ns + 1_000_000_000;
        assert_eq!(curve.parts(later_ns, later_ns + 1, 1), [in_use]);
        let highest = curve.parts(from_ns, until_ns + 1, 1);
        assert_eq!(highest, [whole.peak.unwrap().bytes.to_f64()]);
    }

    /// The records in front of the cut count once nothing was written for a while. If the file
    /// grows after all, it is read anew.
    #[test]
    fn a_log_that_is_cut_is_read_up_to_the_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut groups = vec![vec![start(), stack()], vec![alloc(1)]];
        groups.push((2..50).map(alloc).collect());
        let bytes = frames(&groups).concat();
        let frame = bytes.len() - frames(&groups)[3].len();
        for end in frame + 1..bytes.len() {
            let cut = &bytes[..end];
            std::fs::write(&path, cut).unwrap();
            let mut follower = Follower::of(&path, false, Options::default());
            follower.catch_up().unwrap();
            let waited = std::time::SystemTime::now() - 2 * SETTLED;
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(waited).unwrap();
            follower.catch_up().unwrap();
            let whole = profile_of_log(cut, |_| {}).unwrap();
            let followed = follower.profile().unwrap();
            assert_eq!(followed.rows, whole.rows, "{end}");
            assert_eq!(followed.account, whole.account, "{end}");
            assert_eq!(follower.catch_up().unwrap(), Step::Same);
            if end % 10 == 0 {
                std::fs::write(&path, &bytes).unwrap();
                follower.catch_up().unwrap();
                let whole = profile_of_log(&bytes, |_| {}).unwrap();
                let followed = follower.profile().unwrap();
                assert_eq!(followed.rows, whole.rows, "{end}");
                assert_eq!(followed.account, whole.account, "{end}");
            }
        }
    }

    #[test]
    fn another_file_and_a_cut_file_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let frames = some_frames();
        std::fs::write(&path, frames.concat()).unwrap();
        let mut follower = Follower::of(&path, false, Options::default());
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        let all = follower.numbers();
        std::fs::write(&path, frames[..4].concat()).unwrap();
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        assert!(follower.numbers().allocated_bytes < all.allocated_bytes);
        let other = folder.path().join("b");
        std::fs::write(&other, frames.concat()).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(follower.catch_up().unwrap(), Step::Anew);
        assert_eq!((follower.numbers(), follower.generation()), (all, 3));
        std::fs::remove_file(&path).unwrap();
        assert!(follower.catch_up().is_err());
        assert_eq!(follower.numbers(), all);
    }

    #[test]
    fn a_claimed_length_takes_no_memory_and_a_foreign_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut bytes = frames(&[vec![start(), stack()], vec![alloc(1)]]).concat();
        bytes.extend([
            0xf8, b'h', b'p', 0xff, 0xff, 0xff, 0xff, 0x03, 0, 0, 0, 0, 9, 0, 0, 0,
        ]);
        bytes.extend(vec![7; 100]);
        std::fs::write(&path, &bytes).unwrap();
        let mut follower = Follower::of(&path, false, Options::default());
        follower.catch_up().unwrap();
        assert_eq!(follower.numbers().in_use_bytes, 101);
        std::fs::write(&path, "no log at all").unwrap();
        let refused = Follower::of(&path, false, Options::default())
            .catch_up()
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }
}
