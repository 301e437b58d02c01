//! The output of one process: the names of its files, and its log.
//!
//! ```text
//! HEAPPROFILE=/tmp/s    /tmp/s.heaplog         /tmp/s.0001.heap …          if neither exists yet
//!   a child, a re-run   /tmp/s_<pid>.heaplog   /tmp/s_<pid>.0001.heap …
//!                       /tmp/s_<pid>_2.heaplog …                           a re-exec'd program
//! without               ./heapprof.<program>.<pid>.heaplog                 no dumps
//! ```
//!
//! No process ever writes to another's files: a log is made exclusively, and whoever made it owns the
//! name with all its dumps.

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_format::{
    EXECUTED_AS, Encoder, EndReason, FILE_HEADER, FORKED_AT, PARENT_LOG, Record, Start,
};

use crate::os::diagnostics::say;
use crate::os::files::{self, AppendError, Appended};
use crate::os::sys::{self, Errno};
use crate::os::{clock, executable, procfs};
use crate::state::counters;
use crate::state::settings::Settings;

/// Where a forked process comes from.
pub(crate) struct Forked {
    /// Process id of its parent.
    pub(crate) parent: u32,
    /// When, by the monotonic clock.
    pub(crate) forked_ns: u64,
    /// Path of the log of its nearest ancestor that has one.
    pub(crate) log: String,
}

/// Why there is no log, which has been said.
pub(crate) enum NoLog {
    /// There is no descriptor to be had now.
    Yet,
    /// Nothing can be made anywhere.
    Ever,
}

/// Bytes that may wait for a descriptor: some minutes of a busy program at the default interval.
const MOST_WAITING: usize = 8 << 20;

/// See the module's text.
pub(crate) struct Output {
    /// Path of all files without their endings, absolute.
    pub(crate) base: Vec<u8>,
    /// Zero of the log's times.
    pub(crate) start_ns: u64,
    pub(crate) program: String,
    /// The name by which it was executed, where its file has another.
    pub(crate) executed_as: Option<String>,
    pub(crate) args: Vec<String>,
    /// The log's first record.
    pub(crate) start: Start,
    pub(crate) encoder: Encoder,
    log: Appended,
    /// Frames that wait for a descriptor: for one of the program's, where our thread shares its table, or for the limit to be another.
    waiting: Vec<u8>,
    /// Set when the log could not be written and was given up.
    failed: bool,
}

impl Output {
    /// Makes the log. `forked` tells what this process is a copy of, if it is one.
    pub(crate) fn create(settings: &Settings, forked: Option<Forked>) -> Result<Output, NoLog> {
        let start_ns = clock::now_ns();
        let exe = executable::path();
        let executed_as = executable::executed_as(&exe);
        let name = executed_as.as_deref();
        let name = name.unwrap_or_else(|| executable::file_name(&exe));
        let (base, log) = make_log(settings, forked.is_some(), name)?;
        let mut output = Output {
            base,
            start_ns,
            program: String::from_utf8_lossy(&exe).into_owned(),
            executed_as: executed_as.map(|name| String::from_utf8_lossy(&name).into_owned()),
            args: procfs::of_process("cmdline")
                .split(|&byte| byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            start: Start::default(),
            encoder: Encoder::new(),
            log,
            waiting: Vec::new(),
            failed: false,
        };
        if output.args.last().is_some_and(String::is_empty) {
            output.args.pop(); // each word ends with a zero, also the last
        }
        let mut listed = settings.listed();
        if let Some(name) = &output.executed_as {
            listed.push((EXECUTED_AS.to_owned(), name.clone()));
        }
        if let Some(forked) = &forked {
            listed.push((FORKED_AT.to_owned(), forked.forked_ns.to_string()));
            listed.push((PARENT_LOG.to_owned(), forked.log.clone()));
        }
        output.start = Start {
            program: output.program.clone(),
            args: output.args.clone(),
            pid: sys::getpid(),
            forked_from: forked.map_or(0, |forked| forked.parent),
            wall_ns: clock::wall_ns(),
            monotonic_ns: start_ns,
            interval: settings.interval,
            library: env!("CARGO_PKG_VERSION").to_owned(),
            settings: listed,
        };
        output.encoder.record(&Record::Start(output.start.clone()));
        let mut first = FILE_HEADER.to_vec();
        first.extend_from_slice(output.encoder.finish());
        if let Err(error) = output.log.append(&first) {
            output.give_up_log(first.len(), &error);
        }
        Ok(output)
    }

    /// Bytes that are not in the log yet.
    pub(crate) fn pending(&self) -> usize {
        self.encoder.pending() + self.waiting.len()
    }

    /// Appends what there is. Where there is no descriptor to be had there mostly will be: the
    /// frames then wait for the next time, up to [`MOST_WAITING`]. When the disk is full, `made_room` may make room, and
    /// says whether it did.
    pub(crate) fn flush(&mut self, made_room: impl FnMut() -> bool) {
        self.flush_if(|waiting| waiting <= MOST_WAITING, made_room);
    }

    /// Appends what there is, now or never.
    pub(crate) fn flush_last(&mut self, made_room: impl FnMut() -> bool) {
        self.flush_if(|_| false, made_room);
    }

    fn flush_if(&mut self, may_wait: impl Fn(usize) -> bool, mut made_room: impl FnMut() -> bool) {
        let frame = self.encoder.finish();
        if self.failed {
            counters::LOST_LOG_BYTES.add(frame.len() as u64);
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
        let error = loop {
            match self.log.append(bytes) {
                Ok(()) => {
                    self.waiting = Vec::new();
                    return;
                }
                Err(AppendError::Kernel(Errno(libc::ENOSPC | libc::EDQUOT))) if made_room() => {}
                // The program closes what it does not know, ours among it.
                Err(AppendError::Kernel(Errno(libc::EBADF))) if closed < MOST_CLOSED => closed += 1,
                Err(AppendError::Kernel(Errno(libc::EMFILE | libc::ENFILE)))
                    if may_wait(bytes.len()) =>
                {
                    if self.waiting.is_empty() {
                        self.waiting = bytes.to_vec();
                    }
                    return;
                }
                Err(error) => break error,
            }
        };
        let lost = bytes.len();
        self.waiting = Vec::new();
        self.give_up_log(lost, &error);
    }

    /// The log ends here; so many bytes of it could not be written.
    pub(crate) fn give_up_log(&mut self, lost: usize, error: &AppendError) {
        self.failed = true;
        counters::LOST_LOG_BYTES.add(lost as u64);
        say!(
            "cannot write {}: {error}; the log ends here, the program runs on",
            self.log.path()
        );
        // What did not fit was taken back, so there may be room to say so in the log itself.
        let time_ns = clock::now_ns().saturating_sub(self.start_ns);
        self.encoder.record(&Record::Counters {
            time_ns,
            values: counters::all().filter(|&(_, n)| n > 0).collect(),
        });
        self.encoder.record(&Record::End {
            time_ns,
            reason: EndReason::LogFailed,
        });
        let _ = self.log.append(self.encoder.finish()); // if not, then not
        self.log.let_go(); // who deleted it wants its room
    }

    /// The log that nothing was recorded in is deleted. False: that is not allowed.
    pub(crate) fn take_back(&mut self) -> bool {
        let is_gone = self.log.remove();
        if is_gone {
            self.failed = true;
            self.log.let_go(); // else its end is still to be written, by a process that perhaps may not open it
        }
        is_gone
    }

    /// Bytes in the log's file.
    pub(crate) fn len(&self) -> u64 {
        self.log.len()
    }

    /// The log's file.
    pub(crate) fn log_mut(&mut self) -> &mut Appended {
        &mut self.log
    }

    /// Path of the log, for people.
    pub(crate) fn log_path(&self) -> String {
        self.log.path()
    }

    /// Whether the log could be written so far.
    pub(crate) fn log_is_whole(&self) -> bool {
        !self.failed
    }
}

/// How often one append is begun anew because its descriptor was closed.
const MOST_CLOSED: u32 = 100;

/// The first base under which a log can be made, and that log.
fn make_log(settings: &Settings, forked: bool, name: &[u8]) -> Result<(Vec<u8>, Appended), NoLog> {
    let pid = sys::getpid();
    let file = own_name(name, pid);
    let under_own_name = |path: &[u8]| made_from(settings, path, |base| first_free(numbered(base)));
    let mut first_error = None;
    if let Some(prefix) = &settings.prefix {
        let by_prefix = || {
            made_from(settings, prefix, |base| {
                let bare = (!forked).then(|| base.to_vec());
                let with_pid = [base, format!("_{pid}").as_bytes()].concat();
                let made = first_free(bare.into_iter().chain(numbered(&with_pid)))?;
                if !forked && made.0 != base {
                    say_kept(base, &made.0, settings.verbose);
                }
                Ok(made)
            })
        };
        // A folder is no name: in it, each process has its own.
        let (path, made) = if prefix.ends_with(b"/") {
            let path = [prefix, &file[..]].concat();
            let made = under_own_name(&path);
            (path, made)
        } else {
            (prefix.clone(), by_prefix())
        };
        match made {
            Ok(made) => return Ok(made),
            Err(errno) if is_passing(&errno) => return Err(say_not_yet(&path, &errno)),
            Err(errno) => {
                first_error = Some((String::from_utf8_lossy(&path).into_owned(), errno));
            }
        }
    }
    let made = under_own_name(&file);
    let shown = String::from_utf8_lossy(&file);
    match (made, first_error) {
        (Err(errno), None) if is_passing(&errno) => Err(say_not_yet(&file, &errno)),
        (Ok(made), None) => Ok(made),
        (Ok(made), Some((prefix, errno))) => {
            say!(
                "HEAPPROFILE: cannot create {prefix}.heaplog: {errno}; recording to {}.heaplog",
                String::from_utf8_lossy(&made.0)
            );
            Ok(made)
        }
        (Err(_), Some((prefix, errno))) => {
            say!(
                "HEAPPROFILE: cannot create {prefix}.heaplog: {errno}, nor {shown}.heaplog; \
                 nothing is recorded"
            );
            Err(NoLog::Ever)
        }
        (Err(errno), None) => {
            say!(
                "cannot create {shown}.heaplog: {errno}; nothing is recorded \
                 (set HEAPPROFILE=<prefix> to record elsewhere)"
            );
            Err(NoLog::Ever)
        }
    }
}

/// `heapprof.PROGRAM.PID`.
fn own_name(name: &[u8], pid: u32) -> Vec<u8> {
    let name = match name {
        b"" => b"program",
        name => &name[..name.len().min(MOST_OF_A_NAME)],
    };
    [b"heapprof.", name, format!(".{pid}").as_bytes()].concat()
}

/// So much of a program's name is in its files' names, which have 255 bytes at most.
const MOST_OF_A_NAME: usize = 200;

/// Whether it will mostly be otherwise in a moment.
fn is_passing(errno: &Errno) -> bool {
    matches!(errno, Errno(libc::EMFILE | libc::ENFILE))
}

/// Says so, once.
fn say_not_yet(base: &[u8], errno: &Errno) -> NoLog {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        say!(
            "cannot create {}.heaplog: {errno}; recording begins when there is a descriptor",
            String::from_utf8_lossy(base)
        );
    }
    NoLog::Yet
}

/// A re-run into the same prefix must not take its old dumps for new ones. A child of a profiled
/// program finds its parent's files each time; that is no news.
fn say_kept(base: &[u8], used: &[u8], verbose: bool) {
    let mut log = base.to_vec();
    log.extend_from_slice(b".heaplog");
    if verbose || !owner_lives(&log) {
        say!(
            "HEAPPROFILE: {}.* exists and is kept; recording to {}.*",
            String::from_utf8_lossy(base),
            String::from_utf8_lossy(used)
        );
    }
}

/// Whether the process that made a log still exists.
fn owner_lives(log: &[u8]) -> bool {
    // Its first frame is short: the start of the run.
    let Some(bytes) = files::head(log, 64 << 10) else {
        return false;
    };
    let Ok(mut reader) = heapprof_format::Reader::new(&bytes) else {
        return false;
    };
    match reader.next_record() {
        Ok(Some(Record::Start(start))) => files::exists(format!("/proc/{}", start.pid).as_bytes()),
        _ => false,
    }
}

/// `base`, `base_2`, `base_3`, …
fn numbered(base: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    (1..1000u32).map(move |n| match n {
        1 => base.to_vec(),
        n => [base, format!("_{n}").as_bytes()].concat(),
    })
}

/// The first base that has neither a log nor dumps.
fn first_free(bases: impl Iterator<Item = Vec<u8>>) -> Result<(Vec<u8>, Appended), Errno> {
    for base in bases {
        if files::exists(&[&base[..], b".0001.heap"].concat()) {
            continue;
        }
        match Appended::create(&[&base[..], b".heaplog"].concat()) {
            Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(errno),
            Ok(log) => return Ok((base, log)),
        }
    }
    Err(Errno(libc::EEXIST))
}

/// What can be made at a path. The program may change its directory, and a child of its before it is recorded: where the program was
/// when it started counts, and where it is now only if nothing can be made there (in another root, or by another user).
fn made_from<T>(
    settings: &Settings,
    path: &[u8],
    make: impl Fn(&[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if path.starts_with(b"/") {
        return make(path);
    }
    let now = sys::getcwd().ok().filter(|folder| folder.starts_with(b"/"));
    let now = now.filter(|now| settings.folder.as_ref() != Some(now));
    let mut made = Err(Errno(libc::ENOENT)); // both are outside the root, or gone
    for folder in settings.folder.iter().chain(&now) {
        let here = make(&[folder, b"/".as_slice(), path].concat());
        match (here, &made) {
            (Ok(here), _) => return Ok(here),
            (here, Err(Errno(libc::ENOENT))) => made = here,
            _ => {} // the first is what there is to say
        }
    }
    made
}
