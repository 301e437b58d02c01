//! Pages: the list of processes, and the frame with buttons around the report of one.
//!
//! The report is the page of `heapprof report`. Another process renders it, so that neither a large
//! nor a damaged log costs the server more than an answer that it cannot give. A page runs one
//! script, which its policy names by hash, and shows names as text only.

use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heapprof_core::{NoByteNumber, byte_number};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::control::Attached;
use crate::model::printable::Printable;
use crate::report::base64;

use super::Shared;
use super::http::{Request, Response};
use super::process::Process;

const STYLE: &str = include_str!("page.css");
const INDEX: &str = include_str!("index.html");
const INDEX_SCRIPT: &str = include_str!("index.js");
const FRAME: &str = include_str!("frame.html");
const FRAME_SCRIPT: &str = include_str!("frame.js");
/// The content type of pages.
const HTML: &str = "text/html; charset=utf-8";
/// The longest time for a report.
const REPORT_TIME: Duration = Duration::from_secs(120);
/// The largest report.
const MOST_REPORT: u64 = 256 << 20;

/// `/`.
pub(super) fn index() -> Response {
    page(INDEX, INDEX_SCRIPT)
}

/// `/process/ID`.
pub(super) fn process(_: &Process) -> Response {
    page(FRAME, FRAME_SCRIPT)
}

fn page(frame: &str, script: &str) -> Response {
    let body = frame
        .replace("/* style */", STYLE)
        .replace("/* script */", script);
    let source = |text: &str| format!("'sha256-{}'", base64(&Sha256::digest(text)));
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; frame-src 'self'; \
         frame-ancestors 'self'; base-uri 'none'; form-action 'none'",
        source(script),
        source(STYLE)
    );
    Response::of(HTML, body).with("Content-Security-Policy", policy)
}

/// `/processes`: all processes as JSON.
pub(super) fn processes(shared: &Shared) -> Response {
    // Each as text at once: values take ten times as much, and there may be thousands.
    let processes: Vec<String> = (shared.table.all().iter())
        .map(|process| {
            let summary = process.summary();
            let numbers = &summary.numbers;
            json!({
                "id": process.id,
                "log": Printable(&process.log()).to_string(),
                "name": Printable(&summary.name).to_string(),
                "command": Printable(&summary.args.join(" ")).to_string(),
                "pid": summary.pid,
                "forked_from": summary.forked_from,
                "state": summary.state.name(),
                "ending": summary.ending,
                "started_ms": summary.started_ns / 1_000_000,
                "duration_s": summary.duration_ns as f64 / 1e9,
                "in_use_bytes": numbers.in_use_bytes,
                "in_use_error_bytes": summary.in_use_error.round(),
                "inherited_in_use_bytes": summary.inherited_bytes,
                "in_use_objects": numbers.in_use_objects,
                "allocated_bytes": numbers.allocated_bytes,
                "allocated_objects": numbers.allocated_objects,
                "in_use_past_bytes": match summary.state.is_running() {
                    true => &summary.past[..],
                    false => &[],
                },
                "growth_bytes_per_second": summary.growth.map(|(growth, _)| growth),
                "growth_error_bytes_per_second": summary.growth.map(|(_, error)| error),
                "log_bytes": summary.log_bytes,
                "damaged_places": summary.damage,
                "faults": summary.faults,
                "left_out_records": summary.left_out,
                "resident_bytes": summary.resident,
                "error": summary.error.as_deref().map(|error| Printable(error).to_string()),
            })
            .to_string()
        })
        .collect();
    let (processes, left_out) = (processes.join(","), shared.table.left_out());
    let document = format!("{{\"left_out\":{left_out},\"processes\":[{processes}]}}");
    Response::of("application/json", document)
}

/// `/process/ID/report`.
pub(super) fn report(shared: &Shared, process: &Arc<Process>) -> Response {
    let slot = match shared.slot_of(&shared.reports) {
        Ok(slot) => slot,
        Err(why) => return Response::error(503, &why),
    };
    let mut command = Command::new(&shared.program);
    command
        .args(["report", "--output", "-"])
        .args(&shared.report_arguments)
        .arg("--")
        .arg(&process.path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match output_of(command, shared) {
        Ok(page) => {
            let page = Response::of(HTML, page).until_sent(slot);
            page.with("Content-Security-Policy", "frame-ancestors 'self'")
        }
        Err(why) => Response::error(503, &format!("there is no report: {}", Printable(&why))),
    }
}

/// The standard output of a command, within bounds of time and size.
fn output_of(mut command: Command, shared: &Shared) -> Result<Vec<u8>, String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("no pipe".into());
    };
    let read = |pipe: Box<dyn Read + Send>, most: u64| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(most).read_to_end(&mut bytes);
            bytes
        })
    };
    let out = read(Box::new(out), MOST_REPORT);
    let err = read(Box::new(err), 4096);
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if began.elapsed() < REPORT_TIME && !shared.is_over() => {
                std::thread::sleep(Duration::from_millis(20));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let (out, err) = (
        out.join().unwrap_or_default(),
        err.join().unwrap_or_default(),
    );
    match status {
        Some(status) if status.success() => Ok(out),
        Some(_) => Err(String::from_utf8_lossy(&err).trim().to_owned()),
        None => Err("it took too long".into()),
    }
}

/// `/process/ID/control`: gives the program a command.
pub(super) fn control(process: &Arc<Process>, request: &Request) -> Response {
    let command = request.field("command").unwrap_or_default();
    let (verb, rest) = command.split_once(' ').unwrap_or((&command, ""));
    let why = match verb {
        _ if command.contains(|c: char| c.is_control()) => "command is one line of text",
        "mark" if rest.trim().is_empty() => "a marker needs a name: mark NAME",
        "interval" if rest.trim().is_empty() => "an interval needs a number: interval BYTES",
        "status" | "start" | "stop" | "interval" | "mark" | "dump" => "",
        _ => "command is one of: status, start, stop, interval BYTES, mark NAME, dump REASON",
    };
    if !why.is_empty() {
        return Response::error(400, why);
    }
    let command = match command.strip_prefix("interval ").map(byte_number) {
        Some(Ok(bytes)) => format!("interval {bytes}"),
        // The program says what is too many.
        Some(Err(NoByteNumber::TooMany)) | None => command,
        Some(Err(why)) => return Response::error(400, &format!("interval: {why}")),
    };
    let pid = process.summary().pid;
    let asked =
        Attached::to(pid).and_then(|attached| attached.ask_writer_of(&process.log(), &command));
    match asked {
        Ok(answer) => Response::text(format!("{answer}\n")),
        Err(why) => Response::error(409, &format!("process {pid}: {why}")),
    }
}
