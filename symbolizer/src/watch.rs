//! Watch: a log that grows, in a terminal.
//!
//! ```text
//!   a thread      log ─> looking ─> Snapshot ─┐ (news)
//!   main thread   terminal ─> keys ──> State ─┴─> draw ─> terminal
//! ```
//!
//! `state`, `table` and `draw` know neither terminal nor clock. The log is looked at once a
//! second at most, and less often if a look takes long. The screen is drawn when something has
//! changed, and once a second while the process runs. The profiled program pays nothing.
//!
//! Imports: `resolve`, `control`, `presence`, `history`, `model`, `read`, `naming`, `analysis`.
//!
//! Not here: the command line (`cli`).

mod comparison;
mod draw;
mod followed_log;
mod keyboard;
mod rates;
mod snapshot;
mod state;
mod table;
mod terminal;
#[cfg(test)]
mod test_snapshots;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::{Duration, Instant, SystemTime};

use crate::control::Attached;
use crate::history::temporary::Temporary;
use crate::model::measure::Measure;
use crate::resolve::SearchPath;

use draw::palette::Palette;
use followed_log::{FollowedLog, Look};
use snapshot::Snapshot;
use state::{Action, State};
pub use terminal::restore as restore_terminal;
use terminal::{Event, Terminal, Wake};

/// The shortest time between two looks, and between two drawings without a change.
const SECOND: Duration = Duration::from_secs(1);
/// Between two looks is so many times the time that a look takes, but no more than
/// [`LONGEST_PAUSE`].
const PAUSE: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Options: the log, its process, and what is shown at first.
#[derive(Debug)]
pub struct Options {
    /// The log.
    pub log: PathBuf,
    /// The process, if the user named it: in a container, it has another number than in its log.
    pub pid: Option<u32>,
    /// Where names come from.
    pub search: SearchPath,
    /// The metric at first.
    pub measure: Measure,
    /// The definition of a temporary block.
    pub temporary: Temporary,
    /// Text that lines must have at first; empty: any.
    pub filter: String,
    /// Whether text is coloured.
    pub is_coloured: bool,
}

/// News for the main thread.
enum News {
    Snapshot(Box<Snapshot>),
    /// There is nothing to show, and why.
    Nothing(String),
    /// The program's answer to a command.
    Answer(Result<String, String>),
    /// The log is followed no longer.
    Over,
}

/// Shows a log until the user quits. To be called while the process has one thread.
///
/// # Errors
/// Those of the terminal.
pub fn watch(options: Options) -> io::Result<()> {
    let mut state = State::new(options.log.clone(), options.measure, options.filter);
    let palette = Palette {
        is_coloured: options.is_coloured,
    };
    let mut terminal = Terminal::take()?;
    let (tell, news) = mpsc::channel();
    let follower = NewsSender {
        tell: tell.clone(),
        wake: terminal.waker(),
    };
    let looking = FollowedLog::at(options.log.clone(), options.temporary, options.search);
    let (compare, compared) = mpsc::channel();
    std::thread::Builder::new()
        .name("follow".into())
        .spawn(move || {
            let follower = Follows(follower);
            follow(looking, &follower.0, &compared);
        })?;
    loop {
        take_news(&mut state, &news)?;
        terminal.draw(|frame| draw::draw(&mut state, palette, now_ns(), frame))?;
        let limit = state.is_running().then_some(SECOND);
        for event in terminal.wait(limit)? {
            let action = match event {
                Event::Key(key) => state.press(key),
                Event::End => Some(Action::Quit),
                Event::Suspend => Some(Action::Suspend),
                Event::Continued => {
                    terminal.take_again()?;
                    None
                }
            };
            match action {
                None => {}
                Some(Action::Quit) => return Ok(()),
                // If nobody takes it, the next news tell that the thread has ended.
                Some(Action::Compare(with_now)) => drop(compare.send(with_now)),
                Some(Action::Suspend) => terminal.suspend()?,
                Some(Action::Redraw) => terminal.forget()?,
                Some(Action::Ask(command)) => {
                    let sender = NewsSender {
                        tell: tell.clone(),
                        wake: terminal.waker(),
                    };
                    ask(
                        &options.log,
                        options.pid.unwrap_or(state.pid()),
                        command,
                        sender,
                    )?;
                }
            }
        }
    }
}

/// Takes what other threads have told.
fn take_news(state: &mut State, news: &Receiver<News>) -> io::Result<()> {
    loop {
        match news.try_recv() {
            Ok(News::Snapshot(snapshot)) => state.take(snapshot),
            Ok(News::Nothing(why)) => state.answered(Err(why)),
            Ok(News::Answer(answer)) => state.answered(answer),
            Err(TryRecvError::Empty) => return Ok(()),
            Ok(News::Over) | Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that reads the log has ended"));
            }
        }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

/// Tells the main thread news, and wakes it.
struct NewsSender {
    tell: Sender<News>,
    wake: Wake,
}

impl NewsSender {
    /// False if nobody listens any more.
    fn tell(&self, news: News) -> bool {
        let is_heard = self.tell.send(news).is_ok();
        self.wake.wake();
        is_heard
    }
}

/// Tells at its end, also in a panic, that the log is followed no longer.
struct Follows(NewsSender);

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.tell(News::Over);
    }
}

/// Follows the log as long as somebody listens. `compared` says when to compare.
fn follow(mut looking: FollowedLog, sender: &NewsSender, compared: &Receiver<bool>) {
    let began = Instant::now();
    loop {
        let look_began = Instant::now();
        let look = looking.look(began.elapsed());
        let is_heard = match look {
            Look::Same => true,
            Look::New(snapshot) => sender.tell(News::Snapshot(snapshot)),
            Look::Nothing(why) => sender.tell(News::Nothing(why)),
        };
        if !is_heard {
            return;
        }
        let took = look_began.elapsed();
        let pause = SECOND.saturating_sub(took).max(took * PAUSE);
        match compared.recv_timeout(pause.min(LONGEST_PAUSE)) {
            Ok(with_now) => looking.compare(with_now),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Leaves a command for the program, and tells the answer when it comes.
fn ask(log: &Path, pid: u32, command: String, sender: NewsSender) -> io::Result<()> {
    let name = log.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let thread = std::thread::Builder::new().name("ask".into());
    thread.spawn(move || {
        let answer = Attached::to(pid).and_then(|it| it.ask_writer_of(&name, &command));
        let answer = answer.map_err(|why| format!("process {pid}: {why}"));
        sender.tell(News::Answer(answer));
    })?;
    Ok(())
}
