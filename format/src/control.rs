//! Control page: the memory by which `heapprof ctl` sends a command to a running process.
//!
//! Model: one page of memory that both processes map, with room for one request. The client takes
//! the page, writes a command, increments `asked` and wakes the writer. The writer reads the
//! command, writes the answer, sets `answered` to `asked` and wakes the client. The page holds
//! words and no references: either side may vanish or write nonsense at any moment, and the other
//! goes on.
//!
//! ```text
//! magic | version pid | writer holder asked answered | status lengths | command | answer
//! ```
//!
//! Waiting and waking (futexes on `writer` and `answered`) are system calls and the two programs'
//! business.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes of the page.
pub const CONTROL_PAGE_LEN: usize = 4096;
/// Most bytes of a command.
pub const MAX_CONTROL_COMMAND: usize = 1024;
/// Most bytes of an answer; what is longer is cut.
const MAX_CONTROL_ANSWER: usize = 2816;
/// State of the writer, in [`ControlPage::writer`], in which it needs no waking.
pub const WRITER_AWAKE: u32 = 0;

const MAGIC: u64 = u64::from_le_bytes(*b"heapctl\x01");

/// See the module's text. All zero is a page that is not open yet.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ControlPage {
    magic: AtomicU64,
    /// Process id of the process that is controlled, as itself sees it.
    pid: AtomicU32,
    /// State of the writer, which it waits on. The writer sets a sleeping state before it sleeps;
    /// the thread that wakes it sets [`WRITER_AWAKE`].
    pub writer: AtomicU32,
    /// The client that has the page: a process id, or 0. Changed by clients.
    pub holder: AtomicU32,
    /// Number of the last command.
    asked: AtomicU32,
    /// Number of the last command that was answered: what those who ask wait on.
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
    /// For the process that is controlled: from here on it may be asked.
    pub fn open(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
        self.magic.store(MAGIC, Ordering::Release);
    }

    /// Whether it is a page of this version, and of that process.
    pub fn is_of(&self, pid: u32) -> bool {
        self.magic.load(Ordering::Acquire) == MAGIC && self.pid.load(Ordering::Relaxed) == pid
    }

    /// Whether a command waits for its answer.
    #[inline]
    pub fn is_asked(&self) -> bool {
        // Sequentially consistent, as is the change of `writer`: either the writer sees the command
        // before it sleeps, or the client sees that it sleeps.
        self.asked.load(Ordering::SeqCst) != self.answered.load(Ordering::SeqCst)
    }

    /// Writes a command, for the client that has the page. The caller must wake the writer. Returns
    /// the coming value of `answered`; `None` if the command is too long.
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

    /// For the writer: the command that waits.
    pub fn command(&self) -> Option<String> {
        self.is_asked()
            .then(|| get(&self.command, self.command_len.load(Ordering::Relaxed)))
    }

    /// Writes the answer, for the writer. The caller must wake the threads that wait on `answered`.
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

    /// Reads the answer, for the client, when `answered` says that it is there.
    ///
    /// # Errors
    /// With the words of the refusal.
    pub fn read_answer(&self) -> Result<String, String> {
        let text = get(&self.answer, self.answer_len.load(Ordering::Relaxed));
        match self.status.load(Ordering::Relaxed) {
            0 => Ok(text),
            _ => Err(text),
        }
    }
}

/// Writes what fits; returns how much.
fn put(room: &[AtomicU8], bytes: &[u8]) -> usize {
    for (place, &byte) in room.iter().zip(bytes) {
        place.store(byte, Ordering::Relaxed);
    }
    room.len().min(bytes.len())
}

/// Text of a length that somebody else states.
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
