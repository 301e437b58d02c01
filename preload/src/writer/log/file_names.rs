//! File names: the names of one process's log and dumps.
//!
//! ```text
//! HEAPPROFILE=/tmp/s    /tmp/s.heaplog         /tmp/s.0001.heap …          if neither exists yet
//!   a forked copy       /tmp/s_<pid>.heaplog   /tmp/s_<pid>.0001.heap …
//!   another program     /tmp/s_<pid>.<program>.heaplog …                   also a re-run
//!                       /tmp/s_<pid>.<program>_2.heaplog …                 a re-exec'd program
//! a folder: /tmp/, .    /tmp/heapprof.<program>.<pid>.heaplog …
//! without               ./heapprof.<program>.<pid>.heaplog                 no dumps
//! ```
//!
//! No process writes to another process's files. A log is created exclusively, and the process that
//! created it owns the name with all its dumps.

use std::sync::atomic::{AtomicBool, Ordering};

use heapprof_format::Record;

use crate::os::diagnostics::{self, say};
use crate::os::files::{self, AppendFile};
use crate::os::sys::{self, Errno};
use crate::state::settings::Settings;

/// The reason why there is no log. It has been reported.
pub(crate) enum NoLog {
    /// No descriptor is available now.
    Transient,
    /// No log can be made anywhere.
    Permanent,
}

/// Makes a log under the first base where it is possible. Returns the base and the log.
pub(super) fn make_log(
    settings: &Settings,
    forked: bool,
    name: &[u8],
) -> Result<(Vec<u8>, AppendFile), NoLog> {
    let pid = sys::getpid();
    let file = match &settings.log_name {
        Some(folder) if folder.ends_with(b"/") => [folder, &own_name(name, pid)[..]].concat(),
        Some(path) => path.clone(),
        None => own_name(name, pid),
    };
    let under_own_name = |path: &[u8]| make_at(settings, path, |base| first_free(numbered(base)));
    let (variable, path, made) = match &settings.prefix {
        None => ("", file.clone(), under_own_name(&file)),
        // A prefix that ends with a slash is a folder, in which each process has its own name.
        Some(folder) if folder.ends_with(b"/") => {
            let path = [folder, &file[..]].concat();
            let made = under_own_name(&path);
            ("HEAPPROFILE: ", path, made)
        }
        Some(prefix) => {
            let is_child = forked || settings.is_profiled_child;
            let made = make_at(settings, prefix, |base| {
                let bare = (!is_child).then(|| base.to_vec());
                let mut with_pid = [base, format!("_{pid}").as_bytes()].concat();
                if !forked || !HAS_BARE_NAME.load(Ordering::Relaxed) {
                    with_pid = [&with_pid, b".".as_slice(), name_part(name)].concat();
                }
                let made = first_free(bare.into_iter().chain(numbered(&with_pid)))?;
                if !is_child {
                    HAS_BARE_NAME.store(made.0 == base, Ordering::Relaxed);
                    if made.0 != base {
                        report_kept_files(base, &made.0, settings.verbose);
                    }
                }
                Ok(made)
            });
            ("HEAPPROFILE: ", prefix.clone(), made)
        }
    };
    made.map_err(|errno| match errno {
        errno if is_transient(&errno) => report_transient(&path, &errno),
        errno => {
            let shown = String::from_utf8_lossy(&path);
            let advice = match variable {
                "" => " (set HEAPPROFILE=<prefix> to record elsewhere)",
                _ => "",
            };
            say!("{variable}cannot create {shown}.heaplog: {errno}; nothing is recorded{advice}");
            NoLog::Permanent
        }
    })
}

/// Returns `heapprof.PROGRAM.PID`.
fn own_name(name: &[u8], pid: u32) -> Vec<u8> {
    [b"heapprof.", name_part(name), format!(".{pid}").as_bytes()].concat()
}

/// True if the files of this program have the bare prefix. Its forked copies then have the prefix
/// and their process ids, as with gperftools.
static HAS_BARE_NAME: AtomicBool = AtomicBool::new(false);

/// Returns the part of a program's name that is in its files' names.
fn name_part(name: &[u8]) -> &[u8] {
    match name {
        b"" => b"program",
        name => &name[..name.len().min(MAX_NAME_PART)],
    }
}

/// The most bytes of a program's name in its files' names, whose length the kernel limits.
const MAX_NAME_PART: usize = 200;

/// Returns true if the error is mostly gone in a moment.
fn is_transient(errno: &Errno) -> bool {
    matches!(errno, Errno(libc::EMFILE | libc::ENFILE))
}

/// Reports a transient error, once.
fn report_transient(base: &[u8], errno: &Errno) -> NoLog {
    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    if !IS_REPORTED.swap(true, Ordering::Relaxed) {
        diagnostics::put_notice_for_next_log(format_args!(
            "cannot create {}.heaplog: {errno}; recording begins when there is a descriptor",
            String::from_utf8_lossy(base)
        ));
    }
    NoLog::Transient
}

/// Reports that old files are kept: a user must not take the old dumps for those of a new run. A
/// child of a profiled program finds its parent's files each time, which is not reported.
fn report_kept_files(base: &[u8], used: &[u8], verbose: bool) {
    let mut log = base.to_vec();
    log.extend_from_slice(b".heaplog");
    if verbose || !owner_lives(&log) {
        diagnostics::put_notice_for_next_log(format_args!(
            "HEAPPROFILE: {}.* exists and is kept; recording to {}.*",
            String::from_utf8_lossy(base),
            String::from_utf8_lossy(used)
        ));
    }
}

/// Returns true if the process that made a log still exists.
fn owner_lives(log: &[u8]) -> bool {
    // The log's first frame is short: the start of the run.
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

/// Yields `base`, `base_2`, `base_3`, …
fn numbered(base: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    (1..1000u32).map(move |n| match n {
        1 => base.to_vec(),
        n => [base, format!("_{n}").as_bytes()].concat(),
    })
}

/// Makes a log under the first base that has neither a log nor dumps.
fn first_free(bases: impl Iterator<Item = Vec<u8>>) -> Result<(Vec<u8>, AppendFile), Errno> {
    for base in bases {
        if files::exists(&[&base[..], b".0001.heap"].concat()) {
            continue;
        }
        match AppendFile::create(&[&base[..], b".heaplog"].concat()) {
            Err(Errno(libc::EEXIST)) => {}
            Err(errno) => return Err(errno),
            Ok(log) => return Ok((base, log)),
        }
    }
    Err(Errno(libc::EEXIST))
}

/// Makes a file at a path. A relative path begins in the folder of the run, or if nothing can be
/// made there (in a jail, with other rights), in the program's folder at its start: the program may
/// change its folder, and so may its child before it is recorded. No third folder is tried (Law 9).
fn make_at<T>(
    settings: &Settings,
    path: &[u8],
    make: impl Fn(&[u8]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if path.starts_with(b"/") {
        return make(path);
    }
    let mut made = Err(Errno(libc::ENOENT)); // it was outside the root, or gone
    for folder in [&settings.folder_of_run, &settings.folder]
        .into_iter()
        .flatten()
    {
        made = make(&[folder, b"/".as_slice(), path].concat());
        if made.as_ref().err().is_none_or(is_transient) {
            break;
        }
    }
    made
}
