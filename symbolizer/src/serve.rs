//! Server: logs that grow, over HTTP, as profiles, metrics and pages.
//!
//! ```text
//!   folders, logs ─> Table ─> Process: follower, names, recent past ─┬─> fetch    /debug/pprof/…
//!      (looked at once a second)                                     ├─> metrics  /metrics
//!   connection ─> http ─> guard ─> answers ──────────────────────────┴─> pages    /, /process/…
//! ```
//!
//! The profiled programs pay nothing: all of this reads their logs. A thread serves a connection,
//! and the number of connections is bounded, as is that of profiles that are made at once. The
//! memory of a process is that of its blocks in use, its stacks and their names. A process that is
//! gone has a summary only, until it is asked for; all that are asked for have one bound.
//!
//! Imports: `memory`, `control`, `presence`, `resolve`, `model`, `read`, `naming`, `analysis`,
//! `export`, `report`, `input`.
//!
//! Not here: the command line, signals and the socket (`cli`).

mod answers;
mod fetch;
mod guard;
mod http;
mod log_state;
mod metrics;
mod pages;
mod process;
mod table;
mod unused;
mod work_slots;

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::num::NonZero;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::input::Input;
use crate::memory;
use crate::resolve::{KnownModules, SearchPath};

use guard::Guard;
use http::{Connection, Method, NoRequest, Response};
use process::Process;
pub use table::Source;
use table::Table;
use work_slots::{WorkSlot, WorkSlots};

/// Connections at once.
const MOST_CONNECTIONS: usize = 128;
/// With more connections than this, none is kept alive.
const FEW_CONNECTIONS: usize = MOST_CONNECTIONS / 2;
/// Reports that are rendered at once.
const MOST_REPORTS: usize = 2;
/// Profiles that are made at once: no more than there are processors, and no more than that.
const MOST_WORK: usize = 4;
/// How long a request waits for the work of others.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the logs are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How often free memory is given back.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// How long open connections may take when the server ends.
const GRACE: Duration = Duration::from_secs(3);

/// Options: the logs of a server, its rules, and the means for names and reports.
#[derive(Debug)]
pub struct Options {
    /// Where the logs are.
    pub sources: Vec<Source>,
    /// The token for control, and for reading if that needs one.
    pub token: String,
    /// Whether reading needs the token: the address is not a loopback one.
    pub reading_needs_token: bool,
    /// Where names come from.
    pub search: SearchPath,
    /// The program that renders reports: this one.
    pub program: PathBuf,
    /// Further arguments for its `report`.
    pub report_arguments: Vec<OsString>,
    /// Whether names count that were kept beside a log.
    pub uses_kept_names: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    table: Table,
    guard: Guard,
    search: Box<SearchPath>,
    program: PathBuf,
    report_arguments: Vec<OsString>,
    uses_kept_names: bool,
    address: String,
    is_over: AtomicBool,
    connections: WorkSlots,
    reports: WorkSlots,
    work: WorkSlots,
    requests: AtomicU64,
    refused: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// One of these slots, once one is free.
    ///
    /// # Errors
    /// In words: none is for long.
    fn slot_of(&self, slots: &WorkSlots) -> Result<WorkSlot, String> {
        let slot = slots.wait(PATIENCE, || self.is_over());
        slot.ok_or_else(|| "other requests are being answered; ask again in a moment".into())
    }

    /// Where the names of a process come from.
    fn search_for(&self, process: &Process) -> SearchPath {
        let mut search = SearchPath::clone(&self.search);
        if self.uses_kept_names {
            let log = Input::open_alone(&process.path).ok();
            let kept = log.and_then(|log| log.kept_names());
            search.kept.extend(kept.map(Arc::new));
        }
        search
    }
}

impl Server {
    /// A server on a socket that listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(listener: TcpListener, options: Options) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let shared = Shared {
            table: Table::of(options.sources),
            guard: Guard::of(&options.token, options.reading_needs_token),
            search: Box::new(SearchPath {
                known: Some(Arc::new(KnownModules::of(memory::for_reuse()))),
                ..options.search
            }),
            program: options.program,
            report_arguments: options.report_arguments,
            uses_kept_names: options.uses_kept_names,
            address: listener.local_addr()?.to_string(),
            is_over: AtomicBool::new(false),
            connections: WorkSlots::of(MOST_CONNECTIONS),
            reports: WorkSlots::of(MOST_REPORTS),
            work: WorkSlots::of(processors.min(MOST_WORK)),
            requests: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        Ok(Server {
            shared: Arc::new(shared),
            listener,
        })
    }

    /// Serves until the other descriptor can be read.
    ///
    /// # Errors
    /// Those of the system.
    pub fn run(&self, until: BorrowedFd<'_>) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.table.find();
        let looker = std::thread::Builder::new()
            .name("heapprof-look".into())
            .spawn(move || {
                let mut given_back = Instant::now();
                while !shared.is_over() {
                    shared.table.look(|| shared.is_over());
                    if given_back.elapsed() >= GIVE_BACK {
                        memory::give_back();
                        given_back = Instant::now();
                    }
                    std::thread::sleep(LOOK);
                    shared.table.find();
                }
            })?;
        let result = self.accept(until);
        self.shared.is_over.store(true, Relaxed);
        let deadline = Instant::now() + GRACE;
        while self.shared.connections.taken() > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(looker); // it is not waited for: it may be in the middle of a large log
        result
    }

    fn accept(&self, until: BorrowedFd<'_>) -> io::Result<()> {
        loop {
            let event = |fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            let mut events = [event(self.listener.as_raw_fd()), event(until.as_raw_fd())];
            // SAFETY: two initialised entries, which live through the call.
            let ready = unsafe { libc::poll(events.as_mut_ptr(), 2, -1) };
            if ready < 0 {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => continue,
                    error => return Err(error),
                }
            }
            if events[1].revents != 0 {
                return Ok(());
            }
            match self.listener.accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted => {}
                    // No descriptor is free: those that are there end soon.
                    _ => std::thread::sleep(Duration::from_millis(50)),
                },
            }
        }
    }

    /// Gives a connection a thread of its own, or refuses it.
    fn take(&self, stream: std::net::TcpStream) {
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            let Some(_turn) = shared.connections.take() else {
                shared.refused.fetch_add(1, Relaxed);
                return; // the connection is closed
            };
            if let Ok(mut connection) = Connection::of(stream) {
                serve(&shared, &mut connection);
            }
        };
        if self.shared.connections.taken() >= MOST_CONNECTIONS {
            self.shared.refused.fetch_add(1, Relaxed);
            return;
        }
        let builder = std::thread::Builder::new().name("heapprof-http".into());
        if builder.spawn(serve).is_err() {
            self.shared.refused.fetch_add(1, Relaxed);
        }
    }
}

/// Serves one connection to its end.
fn serve(shared: &Shared, connection: &mut Connection) {
    loop {
        let request = match connection.request(|| shared.is_over()) {
            Ok(request) => request,
            Err(NoRequest::Over) => return,
            Err(NoRequest::Refused(response)) => {
                let _ = connection.send(&response, true, false);
                return;
            }
        };
        shared.requests.fetch_add(1, Relaxed);
        let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            answers::answer(shared, &request)
        }));
        let response =
            answered.unwrap_or_else(|_| Response::error(500, "this is a fault of heapprof"));
        let is_crowded = shared.connections.taken() > FEW_CONNECTIONS;
        let keeps_alive = request.keeps_alive && !is_crowded && !shared.is_over();
        let with_body = request.method != Method::Head;
        if connection.send(&response, with_body, keeps_alive).is_err() || !keeps_alive {
            return;
        }
    }
}
