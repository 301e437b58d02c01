//! Fetched profiles: the endpoints of Go's `net/http/pprof` and of gperftools' server.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::export::pprof::{Fetched, write_fetched};
use crate::export::{Options, gperftools};
use crate::memory;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;

use super::Shared;
use super::http::{Request, Response};
use super::process::{Answer, Process, State};

/// The longest time that a difference may cover, in seconds.
const LONGEST: u64 = 3600;
/// An answer stands for so long if nothing was recorded meanwhile.
const STANDS: Duration = Duration::from_secs(1);

/// An answer takes so many times the memory of its log's state, at most.
const COPIES: u64 = 4;

/// The two profiles that Go has: they differ in the number that is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Heap,
    Allocs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Allocs => "allocs",
        }
    }

    fn options(self) -> Options {
        Options {
            metric: Measure::Basic(match self {
                Kind::Heap => Metric::InUseBytes,
                Kind::Allocs => Metric::AllocatedBytes,
            }),
            ..Options::default()
        }
    }
}

fn chosen(shared: &Shared, request: &Request) -> Result<Arc<Process>, Response> {
    let (pid, id) = (request.parameter("pid"), request.parameter("log"));
    let chosen = shared.table.chosen(pid.as_deref(), id.as_deref());
    chosen.map_err(|(status, why)| Response::error(status, why.trim_end()))
}

/// `heap` and `allocs`.
pub(super) fn profile(shared: &Shared, request: &Request, kind: Kind) -> Response {
    let number = |name| match request.parameter(name).as_deref() {
        None | Some("") => Ok(0),
        Some(text) => text.parse::<u64>().map_err(|_| {
            Response::error(
                400,
                &format!("{name} is no whole number: {}", Printable(text)),
            )
        }),
    };
    let (debug, seconds) = match (number("debug"), number("seconds")) {
        (Ok(debug), Ok(seconds)) => (debug, seconds),
        (Err(refusal), _) | (_, Err(refusal)) => return refusal,
    };
    if debug > 0 && seconds > 0 {
        return Response::error(400, "seconds and debug do not go together");
    }
    if seconds > LONGEST {
        return Response::error(400, &format!("seconds is at most {LONGEST}"));
    }
    if debug > 0 {
        return text(shared, request);
    }
    let process = match chosen(shared, request) {
        Ok(process) => process,
        Err(refusal) => return refusal,
    };
    let answered = match seconds {
        0 => whole(shared, &process, kind),
        seconds => difference(shared, &process, kind, seconds),
    };
    let name = match seconds {
        0 => kind.name().to_owned(),
        _ => format!("{}-delta", kind.name()),
    };
    match answered {
        Ok(body) => Response::of("application/octet-stream", body).with(
            "Content-Disposition",
            format!("attachment; filename=\"{name}\""),
        ),
        Err(why) => Response::error(503, &why),
    }
}

/// Works on the state of a process with everything that its log has now, within the bounds of work
/// at once and of memory.
///
/// # Errors
/// In words: why nothing is worked on, or those of `work`.
fn with_fresh<T>(
    shared: &Shared,
    process: &Arc<Process>,
    work: impl FnOnce(&mut State) -> Result<T, String>,
) -> Result<T, String> {
    // In this order: who waits for a log that is busy keeps nobody from others.
    let mut state = process.lock();
    let slot = shared.slot_of(&shared.work)?;
    process.freshen(&mut state);
    let result = match has_memory_for(shared, &state) {
        true => work(&mut state),
        false => Err("the log needs more memory than is left: see --max-memory".into()),
    };
    process.count(&state);
    drop((state, slot));
    shared.table.unused().note(process, true);
    result
}

/// Whether an answer about the state has room: its profile, its message and that as bytes.
fn has_memory_for(shared: &Shared, state: &State) -> bool {
    let has_room = || memory::left() > COPIES * state.bytes();
    has_room() || {
        shared.table.unused().forget_all();
        has_room()
    }
}

fn whole(shared: &Shared, process: &Arc<Process>, kind: Kind) -> Result<Vec<u8>, String> {
    with_fresh(shared, process, |state| {
        whole_of(shared, process, state, kind)
    })
}

fn whole_of(
    shared: &Shared,
    process: &Process,
    state: &mut State,
    kind: Kind,
) -> Result<Vec<u8>, String> {
    let (records, generation) = (state.records(), state.generation());
    if let Some(answer) = &state.answer
        && (answer.what, answer.records, answer.generation) == (kind.name(), records, generation)
        && answer.at.elapsed() < STANDS
    {
        return Ok(answer.body.clone());
    }
    let fetched = Fetched {
        time_ns: now_ns(),
        duration_ns: 0,
        before: None,
    };
    let body = written(shared, process, state, kind, &fetched)?;
    state.answer = Some(Answer {
        what: kind.name(),
        records,
        generation,
        at: Instant::now(),
        body: body.clone(),
    });
    Ok(body)
}

/// The change in so many seconds from now.
fn difference(
    shared: &Shared,
    process: &Arc<Process>,
    kind: Kind,
    seconds: u64,
) -> Result<Vec<u8>, String> {
    let before = with_fresh(shared, process, |state| state.before())?;
    let began = Instant::now();
    let duration = Duration::from_secs(seconds);
    while began.elapsed() < duration {
        if shared.is_over() {
            return Err("the server ends".into());
        }
        std::thread::sleep(
            (duration - began.elapsed().min(duration)).min(Duration::from_millis(200)),
        );
    }
    let fetched = Fetched {
        time_ns: now_ns(),
        duration_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        before: Some(&before),
    };
    with_fresh(shared, process, |state| {
        written(shared, process, state, kind, &fetched)
    })
}

fn written(
    shared: &Shared,
    process: &Process,
    state: &mut State,
    kind: Kind,
    fetched: &Fetched<'_>,
) -> Result<Vec<u8>, String> {
    let profile = state.profile()?;
    let symbols = state.symbols(&profile, || shared.search_for(process));
    let mut body = Vec::new();
    write_fetched(&profile, symbols, &kind.options(), fetched, &mut body)
        .map_err(|error| error.to_string())?;
    Ok(body)
}

fn now_ns() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The profile as gperftools' text, with addresses.
pub(super) fn text(shared: &Shared, request: &Request) -> Response {
    let process = match chosen(shared, request) {
        Ok(process) => process,
        Err(refusal) => return refusal,
    };
    let written = with_fresh(shared, &process, |state| {
        let mut body = Vec::new();
        let (names, options) = (Symbols::default(), Options::default());
        gperftools::write(&state.profile()?, &names, &options, &mut body)
            .map_err(|error| error.to_string())?;
        Ok(body)
    });
    match written {
        Ok(body) => Response::text(body),
        Err(why) => Response::error(503, &why),
    }
}

/// The words of the command line.
pub(super) fn command_line(shared: &Shared, request: &Request, between: &str) -> Response {
    match chosen(shared, request) {
        Ok(process) => Response::text(process.args().join(between)),
        Err(refusal) => refusal,
    }
}

/// Names of addresses: the lines `0xADDRESS name` for `0xADDRESS+0xADDRESS…`. Without addresses it
/// says that there are names.
pub(super) fn symbol(shared: &Shared, request: &Request) -> Response {
    let body = String::from_utf8_lossy(&request.body);
    let asked = match request.body.is_empty() {
        true => request.raw_query.as_str(),
        false => &body,
    };
    let addresses: Vec<u64> = asked
        .split(['+', '&', '\n', ' '])
        .filter_map(|word| u64::from_str_radix(word.trim().strip_prefix("0x")?, 16).ok())
        .collect();
    if addresses.is_empty() {
        return Response::text("num_symbols: 1\n");
    }
    let process = match chosen(shared, request) {
        Ok(process) => process,
        Err(refusal) => return refusal,
    };
    let lines = with_fresh(shared, &process, |state| {
        let profile = state.profile()?;
        let symbols = state.symbols(&profile, || shared.search_for(&process));
        Ok(lines_of(&addresses, &profile, symbols))
    });
    match lines {
        Ok(lines) => Response::text(lines),
        Err(why) => Response::error(503, &why),
    }
}

/// A line for each address that has a name.
fn lines_of(addresses: &[u64], profile: &Profile, symbols: &Symbols) -> String {
    let mut lines = String::from("num_symbols: 1\n");
    for &address in addresses {
        let named = [address, address.wrapping_sub(1)]
            .into_iter()
            .find_map(|avma| {
                let place = profile.place(avma, profile.run.duration_ns);
                let frame = symbols.frames(place).last()?;
                Some(frame.function.as_ref()?.demangled().to_owned())
            });
        if let Some(name) = named {
            lines.push_str(&format!("{address:#x} {}\n", Printable(&name)));
        }
    }
    lines
}

/// The head of the index.
const INDEX: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head><body>
<h1>/debug/pprof/</h1>
<p>heap: what is in use first; allocs: what was allocated first; ?seconds=N: the change in N seconds;
?debug=1: text. If several processes run, ?pid=N or /pid/N/debug/pprof/heap chooses one.</p>
<table>
<tr><th>count</th><th>profile</th><th></th><th></th><th></th><th>process</th></tr>
";

/// `/debug/pprof/`: the profiles of each process, for people.
pub(super) fn index(shared: &Shared, request: &Request) -> Response {
    let token = request.parameter("token").unwrap_or_default();
    let token = match token.is_empty() {
        true => String::new(),
        false => format!("&token={}", html(&token)),
    };
    let mut page = String::from(INDEX);
    for (process, summary) in shared.table.named_by(request) {
        let which = format!("pid={}&log={}{token}", summary.pid, process.id);
        let link = |path: &str, more: &str, text: &str| {
            format!("<td><a href=\"{path}?{which}{more}\">{text}</a></td>")
        };
        if !summary.state.is_of_process() {
            page.push_str(&format!(
                "<tr><td></td><td></td><td></td><td></td><td></td><td>{}, {}</td></tr>\n",
                html(&Printable(&process.log()).to_string()),
                summary.state.name(),
            ));
            continue;
        }
        let damaged = match summary.faults.is_empty() {
            true => "",
            false => ", damaged",
        };
        page.push_str(&format!(
            "<tr><td>{}</td>{}{}{}{}<td>{} {}, {}{damaged}</td></tr>\n",
            summary.numbers.in_use_objects,
            link("heap", "", "heap"),
            link("allocs", "", "allocs"),
            link("heap", "&debug=1", "text"),
            link("cmdline", "", "cmdline"),
            html(&Printable(&summary.name).to_string()),
            summary.pid,
            summary.state.name(),
        ));
    }
    page.push_str("</table>\n</body></html>\n");
    Response::of("text/html; charset=utf-8", page)
        .with("Content-Security-Policy", "default-src 'none'")
}

/// Text within a page: whatever a log names, it is no mark-up.
fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::html;

    #[test]
    fn a_name_is_no_mark_up() {
        assert_eq!(html("a<b>&\"c\""), "a&lt;b&gt;&amp;&quot;c&quot;");
    }
}
