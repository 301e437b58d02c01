//! Title: the words by which a program says what its process is, such as `postgres: checkpointer`.
//!
//! A program writes them over its command line, as setproctitle does, or names its main thread
//! (`prctl(PR_SET_NAME)`). The writer reads both as `ps` does, when a log begins, with each of the
//! running totals and at the end. A forked copy has the title of its parent until it sets another.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::os::procfs;

/// The most bytes of a title.
const MAX_TITLE: usize = 240;

/// The command line and the name of the main thread at a moment.
#[derive(Clone, Default, PartialEq, Eq)]
struct Names {
    command_line: Vec<u8>,
    main_thread: Vec<u8>,
}

/// The names that this program began with. Leaked. Forked copies have them, too.
static FIRST: AtomicPtr<Names> = AtomicPtr::new(std::ptr::null_mut());

/// The title of the process, as far as it is in the log.
pub(crate) struct Title {
    logged: Names,
}

impl Title {
    /// Returns a title that is not in the log yet. The first call in a program notes the names
    /// that the program began with. `command_line` is that of now.
    pub(crate) fn begin(command_line: &[u8]) -> Title {
        if FIRST.load(Ordering::Acquire).is_null() {
            let names = Names {
                command_line: command_line.to_vec(),
                main_thread: procfs::of_process("comm"),
            };
            FIRST.store(Box::into_raw(Box::new(names)), Ordering::Release);
        }
        Title {
            logged: first().cloned().unwrap_or_default(),
        }
    }

    /// Reads the names anew. Returns the title, if it is not in the log yet.
    pub(crate) fn refresh(&mut self) -> Option<String> {
        let now = Names {
            command_line: procfs::of_process("cmdline"),
            main_thread: procfs::of_process("comm"),
        };
        // Without `/proc`, in a chroot, nothing can be read.
        if now == self.logged || now.command_line.is_empty() {
            return None;
        }
        let first = first()?;
        let title = match now.command_line != first.command_line {
            true => &now.command_line,
            false => &now.main_thread,
        };
        let title = in_words(title);
        self.logged = now;
        Some(title)
    }
}

fn first() -> Option<&'static Names> {
    // SAFETY: null, or leaked by `begin`.
    unsafe { FIRST.load(Ordering::Acquire).as_ref() }
}

/// Returns one line: the words of a command line end with zeros each, and a short title is filled
/// up with zeros or spaces.
fn in_words(bytes: &[u8]) -> String {
    let words = bytes.split(|&byte| byte == 0 || byte == b'\n');
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(&b' ');
    let line = String::from_utf8_lossy(&line[..line.len().min(MAX_TITLE)]);
    line.trim().to_owned()
}
