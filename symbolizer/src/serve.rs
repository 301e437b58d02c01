//! Server: logs that grow, over HTTP, as profiles, metrics and pages.
//!
//! ```text
//!   folders, logs ─> Table ─> Process: follower, names, recent past ─┬─> fetch    /debug/pprof/…
//!      (looked at once a second)                                     ├─> metrics  /metrics
//!   connection ─> http ─> guard ─> answers ──────────────────────────┴─> pages    /, /process/…
//! ```
//!
//! The profiled programs pay nothing: all of this reads their logs. A thread serves a connection,
//! and the number of connections is bounded. The memory of a process is that of its blocks in use,
//! its stacks and their names. A process that is gone has a summary only, until it is asked for.
//!
//! Imports: `resolve`, `control`, `model`, `read`, `naming`, `export`, `report`.
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

use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::resolve::SearchPath;

use guard::Guard;
use http::{Connection, Method, NoRequest, Response};
pub use table::Source;
use table::Table;

/// Connections at once.
const MOST_CONNECTIONS: usize = 128;
/// With more connections than this, none is kept alive.
const FEW_CONNECTIONS: usize = MOST_CONNECTIONS / 2;
/// Reports that are rendered at once.
const MOST_REPORTS: usize = 2;
/// How long a request for a report waits for others.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the logs are looked at.
const LOOK: Duration = Duration::from_secs(1);
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
    address: String,
    is_over: AtomicBool,
    connections: AtomicUsize,
    reports: AtomicUsize,
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

    /// A turn to render a report, once one is free; `None`: none is for long.
    fn report_turn(&self) -> Option<Turn<'_>> {
        let until = Instant::now() + PATIENCE;
        loop {
            let turn = Turn::of(&self.reports, MOST_REPORTS);
            if turn.is_some() || self.is_over() || Instant::now() >= until {
                return turn;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One of so many at once.
struct Turn<'a>(&'a AtomicUsize);

impl Turn<'_> {
    fn of(count: &AtomicUsize, most: usize) -> Option<Turn<'_>> {
        let taken = count.fetch_update(Relaxed, Relaxed, |n| (n < most).then_some(n + 1));
        taken.ok().map(|_| Turn(count))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Server {
    /// A server on a socket that listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(listener: TcpListener, options: Options) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let shared = Shared {
            table: Table::of(options.sources),
            guard: Guard::of(&options.token, options.reading_needs_token),
            search: Box::new(options.search),
            program: options.program,
            report_arguments: options.report_arguments,
            address: listener.local_addr()?.to_string(),
            is_over: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            reports: AtomicUsize::new(0),
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
                while !shared.is_over() {
                    shared.table.look(|| shared.is_over());
                    std::thread::sleep(LOOK);
                    shared.table.find();
                }
            })?;
        let result = self.accept(until);
        self.shared.is_over.store(true, Relaxed);
        let deadline = Instant::now() + GRACE;
        while self.shared.connections.load(Relaxed) > 0 && Instant::now() < deadline {
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
            let Some(_turn) = Turn::of(&shared.connections, MOST_CONNECTIONS) else {
                shared.refused.fetch_add(1, Relaxed);
                return; // the connection is closed
            };
            if let Ok(mut connection) = Connection::of(stream) {
                serve(&shared, &mut connection);
            }
        };
        if self.shared.connections.load(Relaxed) >= MOST_CONNECTIONS {
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
        let is_crowded = shared.connections.load(Relaxed) > FEW_CONNECTIONS;
        let keeps_alive = request.keeps_alive && !is_crowded && !shared.is_over();
        let with_body = request.method != Method::Head;
        if connection.send(&response, with_body, keeps_alive).is_err() || !keeps_alive {
            return;
        }
    }
}
