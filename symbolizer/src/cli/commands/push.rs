//! `heapprof push`: sends profiles to a store every few seconds.

mod credentials;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use heapprof_symbolizer::push::{
    Cause, Delivery, DeliveryAccount, Grown, Logs, Protocol, Receiver, Subject, message_of,
};
use heapprof_symbolizer::resolve::SearchPath;
use heapprof_symbolizer::{Ending, GrowingNames, InputError, Symbols, raise_limit_of_files};

use crate::cli::inputs::process::log_of;
use crate::cli::inputs::signals::Signals;
use crate::cli::options::choice::choice;
use crate::cli::options::quantity;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;
use credentials::CredentialArgs;

/// How often losses and failures are told.
const TELL: Duration = Duration::from_secs(60);
/// Looks are not closer than this: each reads the logs that grew.
const LEAST_EVERY: u64 = 100_000_000;

/// Send profiles to Pyroscope or to an OpenTelemetry collector every few seconds
///
/// Follows the logs of running programs, also those that come and go in a folder. Each message has
/// what a process allocated since its last message, and what it had in use on average; all messages
/// together have the totals of the log. (`heapprof export --format otlp` has the metrics of the
/// past as well, which are no sums over spans of time.) A process that runs is in each, whether it
/// allocates or not. Functions have no names by default: a store finds these by build-id; with
/// --symbolize they are sent.
///
/// A message that does not arrive is sent again, after longer waits each time, or as the store
/// wishes (Retry-After). A bounded queue holds the messages that wait. Losses are counted and told,
/// once a minute and at the end, and the exit status is then 1. SIGINT, SIGTERM or SIGHUP sends the
/// rest and ends. Without a folder, the command also ends when each log has its end.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A folder of logs, a record log (.heaplog), or the number of a running process; a log may
    /// come later
    #[arg(value_name = "DIR|LOG|PID", required = true)]
    sources: Vec<PathBuf>,

    /// Address of the store, such as http://localhost:4040 (Pyroscope) or http://localhost:4318
    /// (OpenTelemetry); the path of the protocol is added
    #[arg(long, value_name = "URL")]
    to: String,

    /// Protocol
    #[arg(short, long, value_name = "PROTOCOL", default_value = "pyroscope", value_parser = choice::<Protocol>())]
    format: Protocol,

    /// Time between two looks at the logs
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = quantity::time, allow_negative_numbers = true)]
    every: u64,

    /// A label of all profiles (an attribute of the resource for OTLP); may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    label: Vec<(String, String)>,

    /// Name of the service [default: that of each program]
    #[arg(
        long,
        value_name = "SERVICE",
        default_value = "",
        hide_default_value = true
    )]
    name: String,

    /// Send the names of functions, files and lines, found on this machine
    #[arg(long)]
    symbolize: bool,

    /// Look once and send that: for a finished log
    #[arg(long)]
    once: bool,

    /// Send nothing of what was allocated before the first look: after a restart, that is sent
    /// already
    #[arg(long, conflicts_with = "once")]
    from_now: bool,

    #[command(flatten)]
    credentials: CredentialArgs,

    /// Longest time for one request
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = quantity::time, allow_negative_numbers = true, help_heading = "Delivery")]
    timeout: u64,

    /// Most bytes that wait for the store; the oldest messages make room
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = quantity::bytes, allow_negative_numbers = true, help_heading = "Delivery")]
    queue: u64,

    /// Longest time to send what is left at the end
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantity::time, allow_negative_numbers = true, help_heading = "Delivery")]
    end_within: u64,

    #[command(flatten)]
    places: SymbolArgs,
}

/// `key=value`, with a key that every store takes.
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE, such as zone=b")?;
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_part = |c: char| is_start(c) || c.is_ascii_digit() || c == '.';
    if !key.starts_with(is_start) || !key.chars().all(is_part) || key.starts_with("__") {
        return Err(
            "a key is of letters, digits, . and _, and begins with no digit and no __".into(),
        );
    }
    Ok((key.into(), value.into()))
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let senseless = |text: &str| Err(Failure::Senseless(text.into()));
    if args.every < LEAST_EVERY {
        return senseless("--every: 100ms at least, since each look reads the logs that grew");
    }
    if args.timeout == 0 {
        return senseless("--timeout: more than 0");
    }
    let timeout = Duration::from_nanos(args.timeout);
    let credentials = args.credentials.read()?;
    let receiver = Receiver::of(&args.to, args.format, &credentials, timeout)
        .map_err(|error| Failure::Senseless(format!("--to: {error}")))?;
    raise_limit_of_files();
    let roots = sources(args)?;
    // Before there is a second thread.
    let signals = Signals::block();
    if receiver.is_secret_in_the_clear() {
        say::note(&format_args!(
            "note: {} is not encrypted, and credentials go there",
            receiver.address()
        ));
    }
    let queue = usize::try_from(args.queue).unwrap_or(usize::MAX);
    let every = Duration::from_nanos(args.every);
    let mut push = Push {
        args,
        logs: Logs::of(roots),
        names: HashMap::new(),
        delivery: Delivery::to(receiver, queue),
        last_notice: LastNotice::default(),
    };
    if args.from_now {
        push.logs.grown(|_| (), unread);
    }
    let mut next = Instant::now();
    loop {
        push.look()?;
        push.tell();
        if args.once || push.logs.have_ended() {
            break;
        }
        // A look that took too long is not made up for.
        next = (next + every).max(Instant::now());
        if push.is_asked_to_end(&signals, next) {
            push.look()?;
            break;
        }
    }
    signals.unblock();
    push.finish()
}

/// The folders and files of the command line. The log of a process is asked of the process.
fn sources(args: &Args) -> Result<Vec<PathBuf>, Failure> {
    let of = |source: &PathBuf| {
        let is_there = source.try_exists().unwrap_or(true);
        let pid = source.to_str().and_then(|text| quantity::pid(text).ok());
        match pid.filter(|_| !is_there) {
            Some(pid) => log_of(pid).map_err(|why| Failure::Refused { pid, why }),
            None if args.once && !is_there => Err(Failure::Input(InputError::Open {
                path: source.clone(),
                source: ErrorKind::NotFound.into(),
            })),
            None => Ok(source.clone()),
        }
    };
    args.sources.iter().map(of).collect()
}

struct Push<'a> {
    args: &'a Args,
    logs: Logs,
    /// The names of each log that has not ended.
    names: HashMap<PathBuf, Names>,
    delivery: Delivery,
    last_notice: LastNotice,
}

/// The names of a log that were found so far, for the messages to come.
struct Names {
    /// Number and start of the process: another one's log may have the path later.
    process: (u32, u64),
    search: SearchPath,
    found: GrowingNames,
}

/// The losses and failures that the user was told of.
#[derive(Default)]
struct LastNotice {
    at: Option<Instant>,
    lost: u64,
    retries: u64,
    vanished: u64,
}

impl Push<'_> {
    /// Looks at the logs once, and puts what grew into the queue.
    fn look(&mut self) -> Result<(), Failure> {
        let Push {
            args,
            logs,
            names,
            delivery,
            ..
        } = self;
        let subject = Subject {
            service: args.name.clone(),
            labels: args.label.clone(),
        };
        let mut failed = None;
        logs.grown(
            |grown| {
                let sent = send(args, &grown, &subject, names, delivery);
                failed = failed.take().or(sent.err());
            },
            unread,
        );
        names.retain(|path, _| path.exists());
        failed.map_or(Ok(()), Err)
    }

    /// Waits until then; true: a signal asks to end.
    fn is_asked_to_end(&mut self, signals: &Signals, until: Instant) -> bool {
        loop {
            // Failures are told while they last, not only at looks.
            let step = until.min(Instant::now() + TELL);
            if signals.came_before(step) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            self.tell();
        }
    }

    /// Tells of losses and failures that are new: at once of the first failure and of the first
    /// loss, and then once a minute.
    fn tell(&mut self) {
        let account = self.delivery.account();
        let (lost, vanished) = (account.all_lost().messages, self.logs.vanished);
        let last = &mut self.last_notice;
        let is_new = (lost, account.retries, vanished) != (last.lost, last.retries, last.vanished);
        let is_first_loss = lost + vanished > 0 && last.lost + last.vanished == 0;
        let is_early = last.at.is_some_and(|at| at.elapsed() < TELL);
        if !is_new || (is_early && !is_first_loss) {
            return;
        }
        *last = LastNotice {
            at: Some(Instant::now()),
            lost,
            retries: account.retries,
            vanished,
        };
        if let Some(why) = &account.newest_failure {
            say::note(&format_args!("note: the store does not take all: {why}"));
        }
        say_losses(&account, vanished);
    }

    /// Sends what is left, and says what became of all.
    fn finish(self) -> Result<(), Failure> {
        let account = (self.delivery).finish(Duration::from_nanos(self.args.end_within));
        let lost = account.all_lost();
        say::note(&format_args!("sent {}, lost {lost}", account.sent));
        say_losses(&account, self.logs.vanished);
        if lost.messages == 0 && self.logs.vanished == 0 {
            return Ok(());
        }
        let why = account.newest_failure.unwrap_or_default();
        Err(Failure::Unfulfilled(match why.as_str() {
            "" => "not everything was sent".into(),
            why => format!("not everything was sent: {why}"),
        }))
    }
}

fn say_losses(account: &DeliveryAccount, vanished: u64) {
    for cause in Cause::ALL {
        let lost = account.lost_to(cause);
        if lost.messages > 0 {
            say::note(&format_args!("lost: {lost}: {}", cause.describe()));
        }
    }
    if vanished > 0 {
        say::note(&format_args!(
            "lost: the end of {vanished} logs, which went away before it was read"
        ));
    }
}

fn unread(error: &InputError) {
    say::note(&format_args!("note: {error}"));
}

/// Makes the message of what grew, and puts it into the queue.
fn send(
    args: &Args,
    grown: &Grown,
    subject: &Subject,
    names: &mut HashMap<PathBuf, Names>,
    delivery: &Delivery,
) -> Result<(), Failure> {
    let profile = &grown.profile;
    let run = &profile.run;
    let process = (run.pid, run.start_wall_ns);
    let of_path = names.remove(&grown.path);
    let mut of_log = match of_path.filter(|names| names.process == process) {
        Some(names) => names,
        None => Names {
            process,
            search: match args.symbolize {
                true => args.places.search_for(&grown.path)?,
                false => SearchPath::default(),
            },
            found: GrowingNames::default(),
        },
    };
    let none;
    let symbols = match args.symbolize {
        true => args
            .places
            .asking(|| of_log.found.of(profile, grown.generation, &of_log.search)),
        false => {
            none = Symbols::none(profile);
            &none
        }
    };
    let message = message_of(args.format, profile, symbols, &grown.increment, subject);
    let message = message.map_err(|source| Failure::Write {
        path: args.to.clone().into(),
        source,
    })?;
    delivery.add(message);
    // A log that has ended gets no more messages.
    if args.symbolize && !matches!(run.ending, Ending::Said(_)) {
        names.insert(grown.path.clone(), of_log);
    }
    Ok(())
}
