//! The environment: the variables that the program is started with, and the meaning of their
//! values.
//!
//! An invalid value costs one line on standard error and is replaced by the default. It never stops
//! the program.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::ops::RangeInclusive;

use heapprof_core::{NoByteNumber, byte_number, nearest_name};

use crate::os::diagnostics::say;

/// Returns the environment as the kernel has written it. It is there from the first instruction on,
/// while libc may not know its environment until its constructor. For calls before the program
/// runs, which may change it.
#[cfg(target_env = "gnu")]
pub(crate) fn at_start() -> Environment {
    unsafe extern "C" {
        /// The stack pointer at the entry of the process, set by the loader before it loads
        /// libraries. Above it are the number of arguments, the arguments, a null, and the
        /// environment.
        static __libc_stack_end: *const usize;
    }
    // SAFETY: the layout that the ABI prescribes. (A loader that is executed by its name removes
    // its own arguments from it.)
    unsafe {
        let arguments = __libc_stack_end.add(1);
        Environment::new(arguments.add(*__libc_stack_end + 1).cast())
    }
}

/// Returns the environment as musl's loader passes it on, before it loads libraries.
#[cfg(target_env = "musl")]
pub(crate) fn at_start() -> Environment {
    // SAFETY: the block that the kernel has written.
    unsafe { Environment::new(of_libc()) }
}

/// Returns the environment as libc knows it.
#[cfg(target_env = "musl")]
pub(crate) fn of_libc() -> *const *const c_char {
    unsafe extern "C" {
        // libc's own name for it: `environ` may be another library's.
        static __environ: *const *const c_char;
    }
    // SAFETY: a word of libc, which the program does not change while the loader calls us.
    unsafe { __environ }
}

/// The environment block that the kernel gives the program.
pub(crate) struct Environment {
    block: *const *const c_char,
    /// Names of the settings that are known, because a method other than [`get`](Self::get) read
    /// them.
    asked: RefCell<Vec<&'static str>>,
}

impl Environment {
    /// # Safety
    /// `block` is null or a null-terminated array of C strings that lives while this does.
    pub(crate) unsafe fn new(block: *const *const c_char) -> Self {
        Environment {
            block,
            asked: RefCell::new(Vec::new()),
        }
    }

    /// Returns the entries, `name=value`. `std::env` is not usable here: it takes a lock that the
    /// program may hold.
    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = self.block;
        std::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            // SAFETY: `new`'s promise; `at` has not passed the null that ends the array.
            let entry = unsafe { *at };
            if entry.is_null() {
                return None;
            }
            // SAFETY: the entry is not the final null, so the array continues.
            at = unsafe { at.add(1) };
            // SAFETY: not null, so one of the C strings.
            Some(unsafe { CStr::from_ptr(entry) }.to_bytes())
        })
    }

    /// Returns the value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.entries().find_map(|entry| {
            let rest = entry.strip_prefix(name.as_bytes())?;
            rest.strip_prefix(b"=")
        })
    }

    /// Prints a line for each variable that is a misspelt setting: its name begins with `ours`, or
    /// with one of `near` and is nearly that of a setting. Settings are those that were read, and
    /// `others`. Variables in `foreign` are another program's. Called once all settings are read.
    /// Without the line, a misspelt setting would be ignored silently.
    pub(crate) fn report_unknown(
        &self,
        ours: &str,
        near: &[&str],
        [others, foreign]: [&[&'static str]; 2],
    ) {
        let asked = self.asked.borrow();
        let settings = || asked.iter().chain(others).copied();
        for entry in self.entries() {
            let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
            let mut known = settings().chain(foreign.iter().copied());
            let is_near = near.iter().any(|near| name.starts_with(near.as_bytes()));
            if !is_near || known.any(|known| known.as_bytes() == name) {
                continue;
            }
            let meant = nearest_name(name, settings());
            if meant.is_none() && !name.starts_with(ours.as_bytes()) {
                continue;
            }
            let (is_it, meant) = match meant {
                Some(meant) => ("; probably meant: ", meant),
                None => ("", ""),
            };
            say!(
                "{} is no setting, and changes nothing{is_it}{meant} (`heapprof run --help` lists them all)",
                String::from_utf8_lossy(name)
            );
        }
    }

    /// Returns the value of a setting as it is.
    pub(crate) fn value(&self, name: &'static str) -> Option<&[u8]> {
        self.asked.borrow_mut().push(name);
        self.get(name)
    }

    /// Returns the value as text, or `None` if it is empty.
    pub(crate) fn text(&self, name: &'static str) -> Option<String> {
        self.asked.borrow_mut().push(name);
        let value = self.get(name).filter(|value| !value.is_empty())?;
        Some(String::from_utf8_lossy(value).into_owned())
    }

    /// Returns the value as a number of bytes (`524288`, `512K`, `64MiB`). If it is invalid, prints
    /// a line and returns `default`.
    pub(crate) fn bytes(&self, name: &'static str, default: u64, most: u64) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match byte_number(&text) {
            Ok(value) if value <= most => value,
            Ok(_) | Err(NoByteNumber::TooMany) => {
                say!("{name}={text} is more than {most}, the most there can be; using {default}");
                default
            }
            Err(_) => {
                say!(
                    "{name}={text} is not a number of bytes (such as 524288, 512K or 1.5M); \
                     using {default}"
                );
                default
            }
        }
    }

    pub(crate) fn number(
        &self,
        name: &'static str,
        default: u64,
        what: &str,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let Some(text) = self.text(name) else {
            return default;
        };
        match text.parse() {
            Ok(value) if range.contains(&value) => value,
            _ => {
                say!("{name}={text} is not {what}; using {default}");
                default
            }
        }
    }

    pub(crate) fn flag(&self, name: &'static str) -> bool {
        self.choice(name, "using 0").unwrap_or(false)
    }

    /// Returns yes or no. If the value is neither, prints a line and returns `None`.
    pub(crate) fn choice(&self, name: &'static str, otherwise: &str) -> Option<bool> {
        let text = self.text(name)?;
        match text.as_str() {
            "1" | "true" | "yes" | "on" => Some(true),
            "0" | "false" | "no" | "off" => Some(false),
            _ => {
                say!("{name}={text} is neither 0 nor 1; {otherwise}");
                None
            }
        }
    }

    /// Returns the number of the word that the value is, among two. If the value is neither, prints
    /// a line and returns 0, which is the default.
    pub(crate) fn word(&self, name: &'static str, [usual, other]: &[&str; 2]) -> usize {
        match self.text(name).as_deref() {
            Some(text) if text == *other => 1,
            Some(text) if text != *usual => {
                say!("{name}={text} is neither {other} nor {usual}; it counts as not set");
                0
            }
            _ => 0,
        }
    }

    pub(crate) fn signal(&self, name: &'static str) -> i32 {
        let Some(text) = self.text(name) else {
            return 0;
        };
        let number = text.parse().ok().or_else(|| signal_number(&text));
        match number {
            Some(signal @ (libc::SIGKILL | libc::SIGSTOP)) => {
                say!("{name}={signal}: no program can receive that signal; no dumps on signals");
                0
            }
            Some(signal) if (1..=libc::SIGRTMAX()).contains(&signal) => signal,
            _ => {
                say!("{name}={text} is not a signal (such as 12 or SIGUSR2); no dumps on signals");
                0
            }
        }
    }
}

/// Parses `524288`, `512K`, `512KB`, `512KiB`, `64M`, `1G`. Units are powers of 1024, as in
/// gperftools.
fn signal_number(name: &str) -> Option<i32> {
    let name = name.to_ascii_uppercase();
    Some(match name.strip_prefix("SIG").unwrap_or(&name) {
        "HUP" => libc::SIGHUP,
        "USR1" => libc::SIGUSR1,
        "USR2" => libc::SIGUSR2,
        "WINCH" => libc::SIGWINCH,
        "URG" => libc::SIGURG,
        "IO" => libc::SIGIO,
        "PWR" => libc::SIGPWR,
        "ALRM" => libc::SIGALRM,
        "PROF" => libc::SIGPROF,
        "TERM" => libc::SIGTERM,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        _ => return None,
    })
}
