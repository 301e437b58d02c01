//! Control page: the memory through which `heapprof ctl` talks to a running process.
//!
//! Model: one page that both programs map, with room for one request. A client takes the lock word
//! `holder`, writes a command, increments `asked` and wakes the writer. The writer reads the
//! command, writes the answer, sets `answered` to `asked` and wakes the client. The page has words
//! and no references. Either side may vanish or write nonsense at any moment, and the other side
//! continues.
//!
//! ```text
//! magic | version pid | writer holder asked answered | status lengths | command | answer
//! ```
//!
//! Waiting and waking (futexes on `writer` and `answered`) are system calls, which the two programs
//! make.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of the page.
pub const CONTROL_PAGE_LEN: usize = 4096;
/// Most bytes of a command.
pub const MAX_CONTROL_COMMAND: usize = 1024;
/// Most bytes of an answer; a longer answer is cut.
const MAX_CONTROL_ANSWER: usize = 2816;
/// State of the writer, in [`ControlPage::writer`], in which it needs no wake-up.
pub const WRITER_AWAKE: u32 = 0;

const MAGIC: u64 = u64::from_le_bytes(*b"heapctl\x01");

/// See the module's text. All zero is a page that is not open yet.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ControlPage {
    magic: AtomicU64,
    /// Process id of the controlled process, in its own PID namespace.
    pid: AtomicU32,
    /// State of the writer, on which it waits. The writer changes it before it sleeps. The client
    /// that wakes the writer sets it to [`WRITER_AWAKE`].
    pub writer: AtomicU32,
    /// Lock of the page: the process id of the client that holds it, or 0. Clients change it.
    pub holder: AtomicU32,
    /// Number of the last command.
    asked: AtomicU32,
    /// Number of the last answered command. Clients wait on it.
    pub answered: AtomicU32,
    /// Status of the answer: 0 done, else refused.
    status: AtomicU32,
    command_len: AtomicU32,
    answer_len: AtomicU32,
    command: [AtomicU8; MAX_CONTROL_COMMAND],
    answer: [AtomicU8; MAX_CONTROL_ANSWER],
}

const _: () = assert!(size_of::<ControlPage>() == CONTROL_PAGE_LEN);

impl Default for ControlPage {
    fn default() -> Self {
        ControlPage {
            magic: AtomicU64::default(),
            pid: AtomicU32::default(),
            writer: AtomicU32::default(),
            holder: AtomicU32::default(),
            asked: AtomicU32::default(),
            answered: AtomicU32::default(),
            status: AtomicU32::default(),
            command_len: AtomicU32::default(),
            answer_len: AtomicU32::default(),
            command: [const { AtomicU8::new(0) }; MAX_CONTROL_COMMAND],
            answer: [const { AtomicU8::new(0) }; MAX_CONTROL_ANSWER],
        }
    }
}

impl ControlPage {
    /// Opens the page for commands. The controlled process calls it.
    pub fn open(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Closes the page: no command is answered from here on. The controlled process calls it.
    pub fn close(&self) {
        self.magic.store(0, Ordering::Release);
    }

    /// Returns true if the page has this version and belongs to that process.
    pub fn is_of(&self, pid: u32) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC && self.pid.load(Ordering::Relaxed) == pid
    }

    /// Returns true if a command waits for its answer.
    #[inline]
    pub fn is_asked(&self) -> bool {
        // Sequentially consistent, as is the change of `writer`. Either the writer sees the command
        // before it sleeps, or the client sees that the writer sleeps.
        self.asked.load(Ordering::SeqCst) != self.answered.load(Ordering::SeqCst)
    }

    /// Writes a command; the client that holds the page calls it, and then wakes the writer.
    /// Returns the value of `answered` to wait for, or `None` if the command is too long.
    pub fn ask(&self, command: &str) -> Option<u32> {
        let len = put(&self.command, command.as_bytes());
        if len < command.len() {
            return None;
        }
        self.command_len.store(len as u32, Ordering::Relaxed);
        let number = self.answered.load(Ordering::SeqCst).wrapping_add(1);
        self.asked.store(number, Ordering::SeqCst);
        Some(number)
    }

    /// Writer only: returns the waiting command.
    pub fn command(&self) -> Option<String> {
        self.is_asked()
            .then(|| get(&self.command, self.command_len.load(Ordering::Relaxed)))
    }

    /// Writer only: answers the command. The caller then wakes the clients that wait on `answered`.
    pub fn answer(&self, answer: Result<&str, &str>) {
        let (status, text) = match answer {
            Ok(text) => (0, text),
            Err(text) => (1, text),
        };
        let len = put(&self.answer, text.as_bytes());
        self.answer_len.store(len as u32, Ordering::Relaxed);
        self.status.store(status, Ordering::Relaxed);
        let number = self.asked.load(Ordering::SeqCst);
        self.answered.store(number, Ordering::SeqCst);
    }

    /// Returns the answer. The client calls it when `answered` has the awaited value.
    ///
    /// # Errors
    /// The text of a refusal.
    pub fn read_answer(&self) -> Result<String, String> {
        let text = get(&self.answer, self.answer_len.load(Ordering::Relaxed));
        match self.status.load(Ordering::Relaxed) {
            0 => Ok(text),
            _ => Err(text),
        }
    }
}

/// Writes the bytes that fit, and returns their number.
fn put(room: &[AtomicU8], bytes: &[u8]) -> usize {
    for (place, &byte) in room.iter().zip(bytes) {
        place.store(byte, Ordering::Relaxed);
    }
    room.len().min(bytes.len())
}

/// Reads text whose length the other side states.
fn get(room: &[AtomicU8], len: u32) -> String {
    let bytes = room.iter().take(len as usize);
    let bytes: Vec<u8> = bytes.map(|byte| byte.load(Ordering::Relaxed)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_answered_once() {
        let page = Box::new(ControlPage::default());
        assert!(!page.is_of(0), "not open");
        page.open(7);
        assert!(page.is_of(7) && !page.is_of(8));
        assert_eq!(page.command(), None);
        let number = page.ask("mark noon").unwrap();
        assert_eq!(page.command().as_deref(), Some("mark noon"));
        assert_ne!(page.answered.load(Ordering::SeqCst), number);
        page.answer(Ok("done"));
        assert_eq!(page.answered.load(Ordering::SeqCst), number);
        assert_eq!(page.read_answer(), Ok("done".into()));
        assert_eq!(page.command(), None);
        page.ask("fly").unwrap();
        page.answer(Err("cannot"));
        assert_eq!(page.read_answer(), Err("cannot".into()));
        page.close();
        assert!(!page.is_of(7), "closed");
    }

    #[test]
    fn what_is_too_long_is_refused_or_cut_and_nonsense_does_no_harm() {
        let page = Box::new(ControlPage::default());
        assert_eq!(page.ask(&"x".repeat(MAX_CONTROL_COMMAND + 1)), None);
        assert!(!page.is_asked());
        page.ask(&"x".repeat(MAX_CONTROL_COMMAND)).unwrap();
        page.answer(Ok(&"y".repeat(10_000)));
        assert_eq!(page.read_answer().unwrap().len(), MAX_CONTROL_ANSWER);
        page.asked.store(77, Ordering::SeqCst);
        page.command_len.store(u32::MAX, Ordering::SeqCst);
        page.answer_len.store(u32::MAX, Ordering::SeqCst);
        page.status.store(99, Ordering::SeqCst);
        page.command[3].store(0xff, Ordering::SeqCst);
        assert!(page.command().unwrap().len() >= MAX_CONTROL_COMMAND);
        assert_eq!(page.read_answer().unwrap_err().len(), MAX_CONTROL_ANSWER);
    }
}
