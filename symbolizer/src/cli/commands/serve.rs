//! `heapprof serve`: shows logs while they grow, over HTTP.

use std::io::{self, Write as _};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::memory;
use heapprof_symbolizer::serve::{Options, Server, Source};
use heapprof_symbolizer::{Printable, raise_limit_of_files};

use crate::cli::inputs::process::log_that_is_there;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// Serve live profiles over HTTP: pages, /debug/pprof/heap and allocs, /metrics
///
/// Follows the logs of running programs, which pay nothing for it. `go tool pprof`, Parca, Grafana
/// Alloy and the OpenTelemetry Collector fetch /debug/pprof/heap and /debug/pprof/allocs
/// (?seconds=N: what changes in N seconds; ?pid=N: of that process). Prometheus scrapes /metrics
/// and discovers processes at /targets; a browser shows all processes at /. Listens on 127.0.0.1
/// only, unless --listen names another address and a token is given. Takes the socket that systemd
/// passes (LISTEN_FDS). SIGTERM and SIGINT end it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folders whose logs are followed as they come and go, logs (.heaplog), or process ids of
    /// programs that run under heapprof [default: the current folder]
    #[arg(value_name = "DIR|LOG|PID")]
    sources: Vec<PathBuf>,

    /// Address and port; port 0: one that is free, which is printed
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7070")]
    listen: String,

    /// A file with the token, in one line [default: the variable HEAPPROF_SERVE_TOKEN, or else a
    /// random one that is printed]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    places: SymbolArgs,
}

/// The shortest token that is taken.
const SHORTEST_TOKEN: usize = 16;

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    raise_limit_of_files();
    memory::share_between_threads();
    let until = ending_signals()
        .map_err(|error| Failure::Unfulfilled(format!("cannot wait for signals: {error}")))?;
    let given = given_token(args.token_file.as_deref())?;
    let listener = listener(&args.listen)?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::Unfulfilled(format!("the socket has no address: {error}")))?;
    let is_loopback = address.ip().is_loopback();
    if !is_loopback && given.is_none() {
        return Err(Failure::Senseless(format!(
            "{address} can be reached from elsewhere, and profiles tell command lines and paths: give a token by --token-file FILE or HEAPPROF_SERVE_TOKEN, or listen on 127.0.0.1"
        )));
    }
    let mut sources = Vec::new();
    for source in &args.sources {
        sources.push(source_of(source)?);
    }
    if sources.is_empty() {
        sources.push(Source::Folder(".".into()));
    }
    let is_given = given.is_some();
    let token = match given {
        Some(token) => token,
        None => random_token()?,
    };
    let options = Options {
        sources,
        token: token.clone(),
        reading_needs_token: !is_loopback,
        search: args.places.search_path()?,
        program: std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into()),
        report_arguments: args.places.words(),
        uses_kept_names: args.places.uses_kept_names(),
    };
    let failed =
        |error: io::Error| Failure::Unfulfilled(format!("cannot serve on {address}: {error}"));
    let server = Server::new(listener, options).map_err(failed)?;
    match (is_loopback, is_given) {
        (true, false) => {
            say::note(&format_args!("http://{address}/ for this machine only"));
            say::note(&format_args!(
                "http://{address}/?token={token} with buttons to pause, mark and dump"
            ));
        }
        (true, true) => say::note(&format_args!(
            "http://{address}/ for this machine only; ?token=… for buttons"
        )),
        (false, _) => say::note(&format_args!(
            "http://{address}/, with the token; it is not encrypted"
        )),
    }
    let _ = io::stderr().flush();
    server.run(until.as_fd()).map_err(failed)
}

/// A folder, a log, or the log of a process.
fn source_of(named: &Path) -> Result<Source, Failure> {
    let asked = |why: String| {
        Failure::Unfulfilled(format!("{}: {why}", Printable(&named.to_string_lossy())))
    };
    match std::fs::metadata(named) {
        Ok(meta) if meta.is_dir() => return Ok(Source::Folder(named.into())),
        Ok(meta) if meta.is_file() => return Ok(Source::Log(named.into())),
        Ok(_) => return Err(asked("neither a folder nor a log nor a process".into())),
        Err(_) => {}
    }
    let pid = named.to_str().and_then(|text| text.parse::<u32>().ok());
    let Some(pid) = pid.filter(|&pid| pid > 0) else {
        return Err(asked("there is no such folder, log or process".into()));
    };
    let refused = |why| Failure::Refused { pid, why };
    log_that_is_there(pid).map(Source::Log).map_err(refused)
}

/// The token that the user gave.
fn given_token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let (token, from) = match file {
        Some(file) => {
            let read = std::fs::read_to_string(file);
            let token = read.map_err(|error| {
                Failure::Unfulfilled(format!("--token-file {}: {error}", file.display()))
            })?;
            (token, format!("--token-file {}", file.display()))
        }
        None => match std::env::var("HEAPPROF_SERVE_TOKEN") {
            Ok(token) => (token, "HEAPPROF_SERVE_TOKEN".into()),
            Err(_) => return Ok(None),
        },
    };
    let token = token.trim().to_owned();
    let is_sound =
        token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    match is_sound {
        true => Ok(Some(token)),
        false => Err(Failure::Senseless(format!(
            "{from}: a token has at least {SHORTEST_TOKEN} letters, digits and signs without spaces; `openssl rand -hex 16` makes one"
        ))),
    }
}

fn random_token() -> Result<String, Failure> {
    let mut bytes = [0u8; 16];
    // SAFETY: room for as many bytes as are asked for.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    match usize::try_from(got) == Ok(bytes.len()) {
        true => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        false => Err(Failure::Unfulfilled(
            "no random numbers for a token: give one by --token-file".into(),
        )),
    }
}

/// The socket that systemd passed, or one of that address.
fn listener(address: &str) -> Result<TcpListener, Failure> {
    let passed = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u32>().ok())
    };
    if passed("LISTEN_PID") == Some(std::process::id())
        && let Some(count) = passed("LISTEN_FDS")
    {
        return passed_socket(count);
    }
    let refused = |why: &dyn std::fmt::Display| {
        Failure::Unfulfilled(format!("cannot listen on {}: {why}", Printable(address)))
    };
    let mut addresses = address
        .to_socket_addrs()
        .map_err(|error| refused(&format_args!("{error}; write it as 127.0.0.1:7070")))?;
    let first = addresses
        .next()
        .ok_or_else(|| refused(&"it has no address"))?;
    TcpListener::bind(first).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            refused(&"another program listens there; --listen 127.0.0.1:0 takes a free port")
        }
        _ => refused(&error),
    })
}

/// The one socket that systemd passed.
fn passed_socket(count: u32) -> Result<TcpListener, Failure> {
    const FIRST: i32 = 3;
    let wrong =
        |why: &str| Failure::Unfulfilled(format!("the socket that was passed (LISTEN_FDS): {why}"));
    if count != 1 {
        return Err(wrong("one is needed; give the unit one ListenStream="));
    }
    let option = |name| {
        let mut value: libc::c_int = 0;
        let mut length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: room for one integer, with its length; a number that is no socket fails.
        let got = unsafe {
            libc::getsockopt(
                FIRST,
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        (got == 0).then_some(value)
    };
    let is_internet = matches!(
        option(libc::SO_DOMAIN),
        Some(libc::AF_INET | libc::AF_INET6)
    );
    if !is_internet || option(libc::SO_ACCEPTCONN) != Some(1) {
        return Err(wrong(
            "it is no TCP socket that listens; write ListenStream=127.0.0.1:7070 and Accept=no",
        ));
    }
    // SAFETY: checked to be a socket; the protocol gives it to this process, and nobody else here
    // has it.
    let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
    // SAFETY: the descriptor is open, and the flag takes an integer.
    unsafe { libc::fcntl(FIRST, libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(socket.into())
}

/// A descriptor that can be read once a signal asks for the end. No handler is installed. To be
/// called while the process has one thread.
fn ending_signals() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is room for a signal set; the first call initialises it, and the signals exist.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
    };
    match fd {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: a new descriptor that nobody else has.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}
