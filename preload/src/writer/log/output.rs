//! Output: the log of one process, and what each of its segments repeats.
//!
//! If the disk is full or no descriptor is free, frames wait in memory and are tried again. If more
//! than [`MAX_WAITING_BYTES`] wait for room on the disk, the log has a gap (`log_gap.rs`). If they
//! wait for a descriptor, it ends with a record of the loss.
//!
//! Not here: the names of files (`file_names`).

use heapprof_format::{
    ALLOCATOR, EXECUTED_AS, Encoder, EndReason, FILE_HEADER, FORKED_AT, PARENT_LOG, Record, Start,
};

use crate::allocator;
use crate::os::diagnostics::{self, say};
use crate::os::files::{AppendError, AppendFile};
use crate::os::sys::{self, Errno};
use crate::os::{clock, executable, procfs};
use crate::state::counters;
use crate::state::settings::Settings;
use crate::writer::log::cut_mark::{self, Pen};
use crate::writer::log::file_names::{self, NoLog};
use crate::writer::log::title::Title;

/// The origin of a forked process.
pub(crate) struct ForkOrigin {
    /// The process id of its parent.
    pub(crate) parent: u32,
    /// The time of the fork, by the monotonic clock.
    pub(crate) forked_ns: u64,
    /// The path of the log of its nearest ancestor that has one.
    pub(crate) log: String,
    /// The number of that log.
    pub(crate) log_number: u64,
}

/// The most bytes that may wait for a descriptor or for room on the disk: minutes of a busy program
/// at the default interval.
const MAX_WAITING_BYTES: usize = 8 << 20;

/// The time between two tries to append to a full disk. A try may write most of the frames, which
/// are then taken back.
const RETRY_FULL_NS: u64 = 500_000_000;

/// The error of a disk that stays full.
const DISK_IS_FULL: AppendError = AppendError::Kernel(Errno(libc::ENOSPC));

/// Most notices that each segment repeats.
const MAX_REPEATED: usize = 16;

/// How often one append is tried again because its descriptor was closed.
const MAX_RETRIES: u32 = 100;

/// The files of one process. See the module's text.
pub(crate) struct Output {
    /// The absolute path of all files, without their endings.
    pub(crate) base: Vec<u8>,
    /// The zero of the log's times.
    pub(crate) start_ns: u64,
    pub(crate) program: String,
    /// The name by which the program was executed, if it differs from the file's name.
    pub(crate) executed_as: Option<String>,
    pub(crate) args: Vec<String>,
    /// The log's first record.
    pub(crate) start: Start,
    pub(crate) encoder: Encoder,
    log: AppendFile,
    /// Frames that wait for a descriptor or for room on the disk. The descriptor is one of the
    /// program's if our thread shares its table, or comes with a higher limit.
    waiting: Vec<u8>,
    /// When to try again to append to a full disk, by the monotonic clock; 0: the disk is not full.
    retry_full_ns: u64,
    /// True if more waits for room on the disk than may.
    is_overfull: bool,
    /// When the gap began, in nanoseconds since the start; `None`: there is none.
    gap_ns: Option<u64>,
    /// Notices so far; each segment of a log that rotates has it.
    notices: Vec<Record>,
    /// The newest record of the program's resource.
    resource: Option<Record>,
    title: Title,
    /// The newest record of the process's title.
    title_record: Option<Record>,
    /// True if the log could not be written and was given up.
    failed: bool,
}

impl Output {
    /// Makes the log. `forked` is the origin of a forked process.
    pub(crate) fn create(settings: &Settings, forked: Option<ForkOrigin>) -> Result<Output, NoLog> {
        let start_ns = clock::now_ns();
        let exe = executable::path();
        let executed_as = executable::executed_as(&exe);
        let name = executed_as.as_deref();
        let name = name.unwrap_or_else(|| executable::file_name(&exe));
        let (base, log) = file_names::make_log(settings, forked.is_some(), name)?;
        let command_line = procfs::of_process("cmdline");
        let mut output = Output {
            base,
            start_ns,
            program: String::from_utf8_lossy(&exe).into_owned(),
            executed_as: executed_as.map(|name| String::from_utf8_lossy(&name).into_owned()),
            args: command_line
                .split(|&byte| byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            start: Start::default(),
            encoder: Encoder::new(),
            log,
            waiting: Vec::new(),
            retry_full_ns: 0,
            is_overfull: false,
            gap_ns: None,
            notices: Vec::new(),
            resource: None,
            title: Title::begin(&command_line),
            title_record: None,
            failed: false,
        };
        if output.args.last().is_some_and(String::is_empty) {
            output.args.pop(); // each word ends with a zero, the last one, too
        }
        let mut listed = settings.listed();
        if let Some(name) = &output.executed_as {
            listed.push((EXECUTED_AS.to_owned(), name.clone()));
        }
        if let Some(library) = allocator::next_library() {
            let library = match library.is_empty() {
                true => output.program.clone(), // the loader's name of the program
                false => library.to_string_lossy().into_owned(),
            };
            listed.push((ALLOCATOR.to_owned(), library));
        }
        if let Some(forked) = &forked {
            listed.push((FORKED_AT.to_owned(), forked.forked_ns.to_string()));
            listed.push((PARENT_LOG.to_owned(), forked.log.clone()));
        }
        let parent = forked.as_ref();
        output.start = Start {
            program: output.program.clone(),
            args: output.args.clone(),
            pid: sys::getpid(),
            forked_from: parent.map_or(0, |forked| forked.parent),
            wall_ns: clock::wall_ns(),
            monotonic_ns: start_ns,
            interval: settings.interval,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            settings: listed,
            log_number: sys::random_u64().max(1),
            parent_log_number: parent.map_or(0, |forked| forked.log_number),
        };
        output.encoder.record(&Record::Start(output.start.clone()));
        if forked.is_some() {
            output.log_title();
        }
        cut_mark::begin(output.log.c_path(), start_ns);
        let mut first = FILE_HEADER.to_vec();
        first.extend_from_slice(output.encoder.finish());
        let appended = output.log.append(&first);
        output.note();
        if let Err(error) = appended {
            output.give_up_log(first.len(), &error);
        }
        diagnostics::set_has_log(!output.failed);
        Ok(output)
    }

    /// Notes the state of the log for a thread that ends the log in the writer's place.
    pub(crate) fn note(&self) {
        if let Some(pen) = Pen::take() {
            pen.note(&self.log, self.encoder.sequence());
        }
    }

    /// Adds the notices that wait to the pending records.
    pub(crate) fn log_notices(&mut self) {
        if self.failed || !diagnostics::has_notices() {
            return;
        }
        let time_ns = clock::now_ns().saturating_sub(self.start_ns);
        diagnostics::take_notices(|text| {
            let text = text.to_owned();
            let notice = Record::Notice { time_ns, text };
            self.encoder.record(&notice);
            if self.notices.len() < MAX_REPEATED {
                self.notices.push(notice);
            }
        });
    }

    /// Adds the resource that the program says it is; each segment has it.
    pub(crate) fn log_resource(&mut self, attributes: &[(String, String)]) {
        let resource = Record::Resource {
            time_ns: clock::now_ns().saturating_sub(self.start_ns),
            attributes: attributes.to_vec(),
        };
        self.encoder.record(&resource);
        self.resource = Some(resource);
    }

    /// Adds the title of the process, if the program has changed it; each segment has it.
    pub(crate) fn log_title(&mut self) {
        if let Some(text) = self.title.refresh() {
            let title = Record::Title {
                time_ns: clock::now_ns().saturating_sub(self.start_ns),
                text,
            };
            self.encoder.record(&title);
            self.title_record = Some(title);
        }
    }

    /// Goes on with another segment, whose first records `encoder` has encoded.
    pub(crate) fn begin_segment(&mut self, encoder: Encoder) {
        self.encoder = encoder;
        self.retry_full_ns = 0;
        if let Some(since_ns) = self.gap_ns.take() {
            let now_ns = clock::now_ns().saturating_sub(self.start_ns);
            diagnostics::put_notice_for_next_log(format_args!(
                "the disk was full from {:.3} s to {:.3} s: the log goes on with all sums, and \
                 without the times of what came and went up to then; what was recorded before the \
                 gap is in an older file of the log",
                since_ns as f64 / 1e9,
                now_ns as f64 / 1e9
            ));
        }
        let others = self.resource.iter().chain(&self.title_record);
        for record in self.notices.iter().chain(others) {
            self.encoder.record(record);
        }
    }

    /// Returns how many bytes are not in the log yet.
    pub(crate) fn pending(&self) -> usize {
        self.encoder.pending() + self.waiting.len() + usize::from(diagnostics::has_notices())
    }

    /// Appends what is pending. If no descriptor is available, one mostly will be soon: the frames
    /// then wait for a later flush, up to [`MAX_WAITING_BYTES`]. If the disk is full, `make_room`
    /// may free space, and returns true if it did. Otherwise the frames wait in the same way, and
    /// are [too many](Self::is_overfull) at some time. In a gap, they are dropped.
    pub(crate) fn flush(&mut self, make_room: impl FnMut() -> bool) {
        self.append_pending(false, make_room);
    }

    /// Appends what is pending, and gives up the log if that fails.
    pub(crate) fn flush_last(&mut self, make_room: impl FnMut() -> bool) {
        self.append_pending(true, make_room);
    }

    fn append_pending(&mut self, is_last: bool, mut make_room: impl FnMut() -> bool) {
        let Some(pen) = Pen::take() else {
            self.failed = true; // the process has ended the log
            return;
        };
        self.log_notices();
        let next_frame = self.encoder.sequence() + u32::from(self.encoder.pending() > 0);
        let frame = self.encoder.finish();
        if self.failed {
            counters::LOST_LOG_BYTES.add(frame.len() as u64);
            return;
        }
        if self.gap_ns.is_some() {
            counters::LOST_LOG_BYTES.add(frame.len() as u64);
            if is_last {
                self.failed = true;
                diagnostics::set_has_log(false);
                self.log.let_go();
            }
            return;
        }
        let bytes = if self.waiting.is_empty() {
            frame
        } else {
            self.waiting.extend_from_slice(frame);
            &self.waiting
        };
        if bytes.is_empty() {
            return;
        }
        let mut closed = 0;
        let now_ns = clock::now_ns();
        let has_few = bytes.len() <= MAX_WAITING_BYTES;
        if now_ns < self.retry_full_ns && !is_last {
            if self.waiting.is_empty() {
                self.waiting = bytes.to_vec();
            }
            self.is_overfull = !has_few;
            return;
        }
        let error = loop {
            match self.log.append(bytes) {
                Ok(()) => {
                    self.waiting = Vec::new();
                    (self.retry_full_ns, self.is_overfull) = (0, false);
                    pen.note(&self.log, next_frame);
                    return;
                }
                Err(AppendError::Kernel(Errno(libc::ENOSPC | libc::EDQUOT))) if make_room() => {}
                // A program may close all descriptors that it does not know, and ours with them.
                Err(AppendError::Kernel(Errno(libc::EBADF))) if closed < MAX_RETRIES => closed += 1,
                Err(AppendError::Kernel(Errno(libc::EMFILE | libc::ENFILE)))
                    if has_few && !is_last =>
                {
                    if self.waiting.is_empty() {
                        self.waiting = bytes.to_vec();
                    }
                    return;
                }
                Err(error @ AppendError::Kernel(Errno(libc::ENOSPC | libc::EDQUOT)))
                    if !is_last =>
                {
                    if self.waiting.is_empty() {
                        self.waiting = bytes.to_vec();
                    }
                    if self.retry_full_ns == 0 {
                        diagnostics::put_notice_for_next_log(format_args!(
                            "cannot write {}: {error}; the records wait in memory for room",
                            self.log.path()
                        ));
                    }
                    self.retry_full_ns = now_ns + RETRY_FULL_NS;
                    self.is_overfull = !has_few;
                    return;
                }
                Err(error) => break error,
            }
        };
        let lost = bytes.len();
        self.waiting = Vec::new();
        self.give_up_log(lost, &error);
    }

    /// Returns the frames that wait.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.waiting
    }

    /// Returns true if more frames wait for room on the disk than may.
    pub(crate) fn is_overfull(&self) -> bool {
        self.is_overfull && !self.failed
    }

    /// Begins a gap: drops what waits, and what comes until another segment begins. This one ends
    /// here: later, dumps may have taken the room for its end.
    pub(crate) fn begin_gap(&mut self) {
        let Some(_pen) = Pen::take() else {
            self.failed = true; // the process has ended the log
            return;
        };
        let lost = std::mem::take(&mut self.waiting).len();
        self.is_overfull = false;
        self.append_failed_end(
            lost,
            &DISK_IS_FULL,
            "the log ends here, unless there is room later",
        );
        self.gap_ns = Some(clock::now_ns().saturating_sub(self.start_ns));
        self.retry_later();
    }

    /// Returns true if the log has a gap at present.
    pub(crate) fn has_gap(&self) -> bool {
        self.gap_ns.is_some() && !self.failed
    }

    /// Returns true if it is time to try whether there is room.
    pub(crate) fn may_retry(&self) -> bool {
        clock::now_ns() >= self.retry_full_ns
    }

    /// Tries again after a while.
    pub(crate) fn retry_later(&mut self) {
        if self.gap_ns.is_some() {
            self.retry_full_ns = clock::now_ns() + RETRY_FULL_NS;
        }
    }

    /// Tries again at once.
    pub(crate) fn retry_now(&mut self) {
        self.retry_full_ns = 0;
    }

    /// Ends the log, because the disk is full.
    pub(crate) fn give_up_full_log(&mut self) {
        let lost = std::mem::take(&mut self.waiting).len();
        self.is_overfull = false;
        self.give_up_log(lost, &DISK_IS_FULL);
    }

    /// Ends the log, of which `lost` bytes could not be written.
    pub(crate) fn give_up_log(&mut self, lost: usize, error: &AppendError) {
        self.append_failed_end(lost, error, "the log ends here, the program runs on");
        self.failed = true;
        diagnostics::set_has_log(false);
        self.log.let_go(); // a user who deleted the file wants its space back
    }

    /// Appends the end of a log, or of its segment, of which `lost` bytes could not be written.
    fn append_failed_end(&mut self, lost: usize, error: &AppendError, what: &str) {
        counters::LOST_LOG_BYTES.add(lost as u64);
        let path = self.log.path();
        let words = format!("cannot write {path}: {error}; {what}");
        diagnostics::put_notice_for_next_log(format_args!("{words}"));
        self.log_notices();
        // A failed append was undone, so there may be room for these records.
        let time_ns = clock::now_ns().saturating_sub(self.start_ns);
        self.encoder.record(&Record::Counters {
            time_ns,
            values: counters::all().filter(|&(_, n)| n > 0).collect(),
        });
        self.encoder.record(&Record::End {
            time_ns,
            reason: EndReason::LogFailed,
        });
        if self.log.append(self.encoder.finish()).is_err() && !diagnostics::is_verbose() {
            say!("{words}");
        }
    }

    /// Deletes a log in which nothing was recorded. Returns false if that is not allowed.
    pub(crate) fn delete_unused_log(&mut self) -> bool {
        let is_gone = self.log.remove();
        if is_gone {
            self.failed = true;
            diagnostics::set_has_log(false);
            // Otherwise the end would still be written, by a process that perhaps may not open it.
            self.log.let_go();
        }
        is_gone
    }

    /// Returns the bytes in the log's file.
    pub(crate) fn len(&self) -> u64 {
        self.log.len()
    }

    /// Returns the log's file.
    pub(crate) fn log_mut(&mut self) -> &mut AppendFile {
        &mut self.log
    }

    /// Returns the path of the log, for messages.
    pub(crate) fn log_path(&self) -> String {
        self.log.path()
    }

    /// Returns true if everything so far could be written to the log.
    pub(crate) fn is_log_whole(&self) -> bool {
        !self.failed
    }
}
