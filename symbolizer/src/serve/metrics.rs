//! Metrics: `/metrics` in Prometheus' text form, and `/targets` for its discovery over HTTP.
//!
//! Only processes that run have series: a folder may have thousands of logs of processes that are
//! gone, and Prometheus keeps what it scraped of these.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use crate::memory;
use crate::model::metric::Metric;
use crate::model::printable::Printable;

use super::Shared;
use super::http::{Request, Response};
use super::process::{Process, Summary};

/// The content type of the text form.
const TEXT_FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A metric of each process: name, type, help, and its value.
type Of = fn(&Summary) -> Option<f64>;
const OF_PROCESSES: [(&str, &str, &str, Of); 13] = [
    (
        "heapprof_in_use_bytes",
        "gauge",
        "Bytes allocated and not freed, estimated from samples.",
        |s| Some(s.numbers.get(Metric::InUseBytes) as f64),
    ),
    (
        "heapprof_in_use_standard_error_bytes",
        "gauge",
        "Standard error of the bytes in use.",
        |s| Some(s.in_use_error),
    ),
    (
        "heapprof_inherited_in_use_bytes",
        "gauge",
        "Bytes in use that a forked process has from its parent, which has them, too.",
        |s| Some(s.inherited_bytes as f64),
    ),
    (
        "heapprof_in_use_objects",
        "gauge",
        "Blocks allocated and not freed, estimated from samples.",
        |s| Some(s.numbers.get(Metric::InUseObjects) as f64),
    ),
    (
        "heapprof_allocated_bytes_total",
        "counter",
        "Bytes allocated since the start.",
        |s| Some(s.numbers.get(Metric::AllocatedBytes) as f64),
    ),
    (
        "heapprof_allocated_objects_total",
        "counter",
        "Blocks allocated since the start.",
        |s| Some(s.numbers.get(Metric::AllocatedObjects) as f64),
    ),
    (
        "heapprof_resident_bytes",
        "gauge",
        "Resident memory of the process, as the kernel has it.",
        |s| s.resident.map(|bytes| bytes as f64),
    ),
    ("heapprof_log_bytes", "gauge", "Length of the log.", |s| {
        Some(s.log_bytes as f64)
    }),
    (
        "heapprof_log_damaged_places_total",
        "counter",
        "Damaged places and missing frames in the log.",
        |s| Some(s.damage as f64),
    ),
    (
        "heapprof_log_faults",
        "gauge",
        "Faults of the log, as heapprof info lists them; 0: the log is whole.",
        |s| Some(s.faults.len() as f64),
    ),
    (
        "heapprof_sampling_interval_bytes",
        "gauge",
        "Mean interval between samples; 0: recording is stopped.",
        |s| s.interval.map(|bytes| bytes as f64),
    ),
    (
        "heapprof_process_start_time_seconds",
        "gauge",
        "When the log began, since 1970.",
        |s| Some(s.started_ns as f64 / 1e9),
    ),
    (
        "heapprof_left_out_records_total",
        "counter",
        "Records of the log that have no room in the memory of the server: numbers are too low.",
        |s| Some(s.left_out as f64),
    ),
];

/// `/metrics`.
pub(super) fn metrics(shared: &Shared, request: &Request) -> Response {
    let all = shared.table.all();
    // A target that was discovered is one process.
    let summaries: Vec<(String, Arc<Summary>)> = (shared.table.named_by(request).into_iter())
        .filter(|(_, summary)| summary.state.is_running())
        .map(|(process, summary)| (labels(&process, &summary), summary))
        .collect();
    let unread = (all.iter())
        .filter(|process| process.summary().state.is_no_log())
        .count();
    let mut text = String::new();
    for (name, kind, help, value) in OF_PROCESSES {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, summary) in &summaries {
            if let Some(value) = value(summary) {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
    }
    let name = "heapprof_lost_total";
    let _ = writeln!(
        text,
        "# HELP {name} Events that the profiler lost, by cause.\n# TYPE {name} counter"
    );
    for (labels, summary) in &summaries {
        for (counter, lost) in summary
            .counters
            .iter()
            .filter(|(counter, _)| counter.is_loss())
        {
            let cause = escaped(counter.describe());
            let _ = writeln!(text, "{name}{{{labels},cause=\"{cause}\"}} {lost}");
        }
    }
    let of_server = [
        (
            "heapprof_serve_logs",
            "gauge",
            "Logs that are followed.",
            all.len() as u64,
        ),
        (
            "heapprof_serve_logs_left_out",
            "gauge",
            "Logs of folders with too many.",
            shared.table.left_out() as u64,
        ),
        (
            "heapprof_serve_unread_files",
            "gauge",
            "Files that are no logs, or cannot be read.",
            unread as u64,
        ),
        (
            "heapprof_serve_running",
            "gauge",
            "Processes that run, of those asked for.",
            summaries.len() as u64,
        ),
        (
            "heapprof_serve_memory_bytes",
            "gauge",
            "Bytes that the server has allocated; --max-memory is their bound.",
            memory::taken(),
        ),
        (
            "heapprof_serve_unused_bytes",
            "gauge",
            "Bytes of logs in memory whose processes run no more.",
            shared.table.unused().bytes(),
        ),
        (
            "heapprof_serve_requests_total",
            "counter",
            "Requests that were answered.",
            shared.requests(),
        ),
        (
            "heapprof_serve_refused_connections_total",
            "counter",
            "Connections beyond the most at once.",
            shared.refused(),
        ),
    ];
    for (name, kind, help, value) in of_server {
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    Response::of(TEXT_FORM, text)
}

/// The labels of a process.
fn labels(process: &Process, summary: &Summary) -> String {
    format!(
        "pid=\"{}\",program=\"{}\",log=\"{}\"",
        summary.pid,
        escaped(&summary.name),
        escaped(&process.log())
    )
}

/// A label's value: whatever a log names, it stays within its quotes and its line.
fn escaped(text: &str) -> String {
    let printable = Printable(text).to_string();
    let mut out = String::new();
    for c in printable.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out
}

/// `/targets`: each process that runs, as a target to fetch profiles of.
pub(super) fn targets(shared: &Shared, request: &Request) -> Response {
    let host = request.header("host").unwrap_or(&shared.address);
    let targets: Vec<serde_json::Value> = (shared.table.all().iter())
        .map(|process| (process, process.summary()))
        .filter(|(_, summary)| summary.state.is_running())
        .map(|(process, summary)| {
            let pid = summary.pid.to_string();
            json!({
                "targets": [host],
                "labels": {
                    "__param_pid": pid,
                    "__param_log": process.id,
                    "pid": pid,
                    "program": Printable(&summary.name).to_string(),
                    "log": Printable(&process.log()).to_string(),
                },
            })
        })
        .collect();
    Response::of(
        "application/json",
        serde_json::Value::from(targets).to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn a_labels_value_stays_within_its_quotes() {
        assert_eq!(escaped("a\"} 1\nb\\"), "a\\\"} 1\\\\x0ab\\\\");
    }
}
