//! Control: the control page of a running program, found in its memory map and mapped here, too.
//!
//! Danger: another process writes to this memory. All accesses are atomics
//! (`heapprof_format::ControlPage`), and its content is checked or merely shown.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use heapprof_format::{CONTROL_PAGE_LEN, ControlPage, MAX_CONTROL_COMMAND, WRITER_AWAKE};

/// A dump of millions of lines takes about a second; a program that is stopped does not answer at
/// all.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often to look whether the process still lives.
const LOOK: Duration = Duration::from_millis(200);

/// See the module's text.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    page: &'static ControlPage,
}

impl Attached {
    /// Finds the page of a process.
    ///
    /// # Errors
    /// In words: why there is none, and the way out.
    pub fn to(pid: u32) -> Result<Attached, String> {
        let maps = match fs::read_to_string(format!("/proc/{pid}/maps")) {
            // If the main thread of a process has ended, the kernel shows the map only for the
            // other threads.
            Ok(maps) if maps.is_empty() => map_of_a_thread(pid).unwrap_or(maps),
            Ok(maps) => maps,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(match exists(std::process::id()) {
                    true => "there is no such process".into(),
                    false => {
                        "it is looked for in /proc, and that is not there, or of other processes"
                            .into()
                    }
                });
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(not_permitted("its user"));
            }
            Err(error) => return Err(format!("cannot read its memory map: {error}")),
        };
        let own_pid = pid_as_it_sees_it(pid).unwrap_or(pid);
        let mut denied = false;
        for id in segments(&maps) {
            match attach(id, pid) {
                Ok(Some(page)) if page.is_of(own_pid) => return Ok(Attached { pid, page }),
                Ok(Some(page)) => detach(page),
                Ok(None) => {}
                Err(Denied) => denied = true,
            }
        }
        Err(why_none(pid, &maps, denied))
    }

    /// Leaves a command and waits for the answer.
    ///
    /// # Errors
    /// In words: the program's refusal, or why no answer came.
    pub fn ask(&self, command: &str) -> Result<String, String> {
        let deadline = Instant::now() + PATIENCE;
        self.take_desk(deadline)?;
        let answer = self.ask_at_desk(command, deadline);
        let _ = self.page.holder.compare_exchange(
            std::process::id(),
            0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        answer
    }

    /// As [`ask`](Self::ask), if the process writes the log of that name. Its number may be another
    /// process's by now, or one in another container.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), or it writes another log.
    pub fn ask_writer_of(&self, log_name: &str, command: &str) -> Result<String, String> {
        let status = self.ask("status")?;
        let log = status.lines().find_map(|line| line.strip_prefix("log: "));
        let log = log.unwrap_or_default().rsplit('/').next();
        let log = log.unwrap_or_default();
        if !log_name.is_empty() && log.split(" (incomplete").next() == Some(log_name) {
            return self.ask(command);
        }
        Err(format!("it writes another log here: {log}"))
    }

    fn ask_at_desk(&self, command: &str, deadline: Instant) -> Result<String, String> {
        // The request of a client that gave up is answered first: otherwise both would write at
        // once.
        self.wait(deadline, || !self.page.is_asked())?;
        let Some(number) = self.page.ask(command) else {
            return Err(format!(
                "that is too long: {MAX_CONTROL_COMMAND} bytes at most"
            ));
        };
        if self.page.writer.swap(WRITER_AWAKE, Ordering::SeqCst) != WRITER_AWAKE {
            futex_wake(&self.page.writer);
        }
        self.wait(deadline, || {
            self.page.answered.load(Ordering::SeqCst) == number
        })?;
        self.page.read_answer()
    }

    /// Waits until nobody else asks.
    fn take_desk(&self, deadline: Instant) -> Result<(), String> {
        let me = std::process::id();
        let holder = &self.page.holder;
        loop {
            match holder.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Ok(()),
                // The process that had it has died there.
                Err(other) if !exists(other) => {
                    let _ = holder.compare_exchange(other, 0, Ordering::SeqCst, Ordering::SeqCst);
                }
                Err(other) if Instant::now() > deadline => {
                    return Err(format!(
                        "process {other}, another heapprof, is sending it a command; try again"
                    ));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// Waits for something that is announced by a change of `answered`.
    fn wait(&self, deadline: Instant, is_so: impl Fn() -> bool) -> Result<(), String> {
        loop {
            let seen = self.page.answered.load(Ordering::SeqCst);
            if is_so() {
                return Ok(());
            }
            if !lives(self.pid) {
                return Err("it ended before it answered".into());
            }
            if Instant::now() > deadline {
                return Err(format!(
                    "no answer for {} seconds; is it suspended, or about to end?",
                    PATIENCE.as_secs()
                ));
            }
            futex_wait(&self.page.answered, seen, LOOK);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        detach(self.page);
    }
}

/// The memory map as a thread that has not ended has it.
fn map_of_a_thread(pid: u32) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("maps")).ok())
        .find(|maps| !maps.is_empty())
}

/// Ids of the System V segments in a memory map: their "inode".
fn segments(maps: &str) -> impl Iterator<Item = i32> + '_ {
    maps.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(4)?;
        words.next()?.starts_with("/SYSV").then_some(())?;
        inode.parse::<u32>().ok().map(|id| id as i32)
    })
}

/// Why there is no page.
fn why_none(pid: u32, maps: &str, denied: bool) -> String {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/ipc")).ok();
    if denied {
        return not_permitted("the user who started it");
    }
    if !maps.contains("libheapprof") {
        return format!(
            "it runs without heapprof; heapprof attach {pid} records it from now on, and heapprof run \
             -- PROGRAM records a program from its start"
        );
    }
    if namespace(&pid.to_string()) != namespace("self") {
        return format!(
            "it lives in another IPC namespace (a container?); run heapprof there, or by \
             nsenter -t {pid} --ipc --pid --mount"
        );
    }
    if maps.contains("libheapprof-attach") && !has_writer(pid) {
        return format!(
            "heapprof is detached from it, and nothing is recorded; heapprof attach {pid} records it again"
        );
    }
    "it does not listen: nothing has been sampled yet, or recording was given up, or \
     HEAPPROF_CONTROL=0, or no System V segment was to be had (ipcs -m, kernel.shmmni); \
     HEAPPROF_CONTROL=1 makes it listen from the start"
        .into()
}

/// Returns true if the library's own thread runs in a process.
fn has_writer(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    threads.flatten().any(|thread| {
        let name = fs::read_to_string(thread.path().join("comm"));
        name.is_ok_and(|name| name.trim_end() == "heapprof")
    })
}

/// Says which user may attach, and why root may not.
fn not_permitted(who: &str) -> String {
    // SAFETY: a question without arguments.
    match unsafe { libc::geteuid() } {
        0 => format!(
            "not permitted: root lacks CAP_SYS_PTRACE or CAP_IPC_OWNER here (a container?); become {who}, as by \
             setpriv --reuid=USER --clear-groups"
        ),
        _ => format!("not permitted: only {who} and root may control it"),
    }
}

/// The number that the process has for itself, in the innermost PID namespace.
fn pid_as_it_sees_it(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

/// Returns true if the process is there and not just waiting to be collected.
fn lives(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    // pid (comm) state …; the name may hold anything, also parentheses.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X')) || map_of_a_thread(pid).is_some()
}

fn exists(pid: u32) -> bool {
    fs::metadata(format!("/proc/{pid}")).is_ok()
}

/// Not our segment to attach.
struct Denied;

/// Attaches a segment if it may be the page of that process: made by it, and of that length.
fn attach(id: i32, pid: u32) -> Result<Option<&'static ControlPage>, Denied> {
    let mut about = std::mem::MaybeUninit::<libc::shmid_ds>::zeroed();
    // SAFETY: writes one shmid_ds.
    if unsafe { libc::shmctl(id, libc::IPC_STAT, about.as_mut_ptr()) } != 0 {
        return match std::io::Error::last_os_error().kind() {
            ErrorKind::PermissionDenied => Err(Denied),
            _ => Ok(None),
        };
    }
    // SAFETY: zeroed, then filled; integers only.
    let about = unsafe { about.assume_init() };
    if about.shm_segsz != CONTROL_PAGE_LEN || about.shm_cpid as u32 != pid {
        return Ok(None);
    }
    // SAFETY: a new mapping where the kernel likes it.
    let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    if address as isize == -1 {
        return match std::io::Error::last_os_error().kind() {
            ErrorKind::PermissionDenied => Err(Denied),
            _ => Ok(None),
        };
    }
    // SAFETY: a page of that length (a segment never changes its own), mapped until `detach`, which
    // ends the only user; atomics only, for which every content is valid.
    Ok(Some(unsafe { &*address.cast::<ControlPage>() }))
}

fn detach(page: &'static ControlPage) {
    // SAFETY: attached by `attach`; nobody looks at it hereafter.
    unsafe { libc::shmdt(std::ptr::from_ref(page).cast()) };
}

fn futex_wait(word: &AtomicU32, expected: u32, most: Duration) {
    let time = libc::timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    // SAFETY: the word is valid and aligned, and the time lives until the call is over.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const time,
        );
    }
}

fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word is valid; the kernel uses its address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_told_from_files() {
        let maps = "\
7f00-7f01 rw-s 00000000 00:01 32769                      /SYSV00000000 (deleted)
7f01-7f02 r-xp 00000000 08:01 77                         /usr/lib/libc.so.6
7f02-7f03 rw-p 00000000 00:00 0
7f03-7f04 rw-s 00000000 00:01 4294967295                 /SYSV0a0b0c0d (deleted)
7f04-7f05 rw-s 00000000 00:01 5                          /home/SYSV (deleted)
";
        assert_eq!(segments(maps).collect::<Vec<_>>(), [32769, -1]);
    }
}
