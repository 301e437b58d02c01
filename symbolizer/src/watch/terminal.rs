//! Terminal: its raw mode and its second screen, keys and signals.
//!
//! Danger: system calls on the terminal. The terminal is given back as it was found in every way
//! out: at the end, on a signal, in a panic, and when the bound on memory ends the process. So
//! [`restore`] takes neither memory nor a lock.
//!
//! ```text
//!   poll ─┬─ keyboard    keys
//!         ├─ signalfd    ends, a change of size, stops
//!         └─ eventfd     another thread has news
//! ```

use std::io::{self, Stdout};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;

use ratatui::Frame;
use ratatui::backend::CrosstermBackend;

use super::keyboard::Keyboard;
use super::state::Key;

/// The terminal's second screen, without a cursor.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
/// Its first screen, with the cursor, and in plain text.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// Signals that are waited for.
const SIGNALS: [libc::c_int; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// The terminal's settings, as they were found.
static FOUND: OnceLock<libc::termios> = OnceLock::new();
/// True while the terminal is ours.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is ours.
pub(super) struct Terminal {
    cells: ratatui::Terminal<CrosstermBackend<Stdout>>,
    signals: OwnedFd,
    wake: Wake,
    keyboard: Keyboard,
}

/// Something to do for the one that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Key(Key),
    /// A signal asks to end, or the terminal is gone.
    End,
    /// A signal asks to stop.
    Suspend,
    /// The process was continued: the screen may have anything on it.
    Continued,
}

/// Wakes the thread that waits for the terminal.
#[derive(Debug, Clone)]
pub(super) struct Wake(Arc<OwnedFd>);

impl Wake {
    pub(super) fn wake(&self) {
        let one = 1u64;
        // SAFETY: the descriptor is open as long as `self` is, and eight bytes are there.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// Gives the terminal back as it was found, if it is ours. Takes no memory and no lock.
pub fn restore() {
    if !IS_TAKEN.swap(false, SeqCst) {
        return;
    }
    let mut rest = LEAVE;
    while !rest.is_empty() {
        // SAFETY: `rest` is that long.
        let written = unsafe { libc::write(libc::STDOUT_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ => break,
        }
    }
    if let Some(found) = FOUND.get() {
        // SAFETY: the settings were read from this terminal.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, found) };
    }
}

impl Terminal {
    /// Takes the terminal of standard input and output. To be called while the process has one
    /// thread: signals are blocked from here on.
    pub(super) fn take() -> io::Result<Terminal> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                restore();
                before(info);
            }));
        });
        // SAFETY: a new descriptor; a failure is checked for.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let terminal = Terminal {
            signals: block_signals()?,
            wake: Wake(Arc::new(owned(wake)?)),
            keyboard: Keyboard::default(),
            cells: ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))?,
        };
        enter()?;
        Ok(terminal)
    }

    pub(super) fn waker(&self) -> Wake {
        self.wake.clone()
    }

    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.cells.draw(draw).map(|_| ())
    }

    /// Draws everything the next time, also what has not changed.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        self.cells.clear()
    }

    /// Stops the process, as a shell's Ctrl-Z does, until it is continued.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        // SAFETY: a signal to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
        self.take_again()
    }

    /// Takes the terminal again, after the process was stopped.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        IS_TAKEN.store(false, SeqCst);
        enter()?;
        self.forget()
    }

    /// Waits for something to do, so long at most; without a limit if that is none.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<Vec<Event>> {
        let asked = |fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polled = [
            asked(libc::STDIN_FILENO),
            asked(self.signals.as_raw_fd()),
            asked(self.wake.0.as_raw_fd()),
        ];
        let limit = limit.map_or(-1, |limit| {
            i32::try_from(limit.as_millis()).unwrap_or(i32::MAX)
        });
        // SAFETY: three descriptors that are open, and room for what is found.
        let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
        let mut events = Vec::new();
        if found < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(events),
                _ => Err(error),
            };
        }
        if polled[1].revents != 0 {
            events.extend(self.signals_that_came());
        }
        if polled[2].revents != 0 {
            let mut count = 0u64;
            // SAFETY: the descriptor is open, and there is room for eight bytes.
            unsafe { libc::read(self.wake.0.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        if polled[0].revents != 0 {
            events.extend(self.keys_that_came());
        }
        Ok(events)
    }

    /// The keys that were pressed, or the end: the terminal is gone.
    fn keys_that_came(&mut self) -> Vec<Event> {
        let mut bytes = [0u8; 1024];
        // SAFETY: room for as many bytes as are asked for. There are some, or there is an end.
        let read =
            unsafe { libc::read(libc::STDIN_FILENO, bytes.as_mut_ptr().cast(), bytes.len()) };
        match usize::try_from(read) {
            Ok(read @ 1..) => {
                let keys = self.keyboard.keys_of(&bytes[..read]);
                keys.into_iter().map(Event::Key).collect()
            }
            Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Vec::new(),
            _ => vec![Event::End],
        }
    }

    fn signals_that_came(&self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            let mut info = std::mem::MaybeUninit::<libc::signalfd_siginfo>::zeroed();
            let size = size_of_val(&info);
            // SAFETY: the descriptor is open, and there is room for one.
            let read =
                unsafe { libc::read(self.signals.as_raw_fd(), info.as_mut_ptr().cast(), size) };
            if usize::try_from(read) != Ok(size) {
                return events;
            }
            // SAFETY: the kernel filled it, and all of its fields are integers.
            let signal = unsafe { info.assume_init() }.ssi_signo;
            events.extend(match i32::try_from(signal) {
                // A change of size: what follows draws at the new size.
                Ok(libc::SIGWINCH) | Err(_) => None,
                Ok(libc::SIGTSTP) => Some(Event::Suspend),
                Ok(libc::SIGCONT) => Some(Event::Continued),
                Ok(_) => Some(Event::End),
            });
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Raw mode and the second screen.
fn enter() -> io::Result<()> {
    let mut found = std::mem::MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: room for the settings.
    if unsafe { libc::tcgetattr(libc::STDIN_FILENO, found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled by the call above.
    let found = unsafe { found.assume_init() };
    let mut raw = *FOUND.get_or_init(|| found);
    // SAFETY: settings that were read from the terminal.
    unsafe { libc::cfmakeraw(&raw mut raw) };
    IS_TAKEN.store(true, SeqCst);
    // SAFETY: as above.
    if unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const raw) } != 0 {
        return Err(io::Error::last_os_error());
    }
    use std::io::Write as _;
    let mut out = io::stdout().lock();
    out.write_all(ENTER)?;
    out.flush()
}

/// A descriptor that can be read once a signal came. No handler is installed.
fn block_signals() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is room for a signal set; the first call initialises it, and the signals exist.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in SIGNALS {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    owned(fd)
}

/// A descriptor that a system call has just made.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: new, so nobody else has it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
