//! Answers: what each path of the server is answered with.
//!
//! | path | answer |
//! | --- | --- |
//! | `/` | the page with all processes |
//! | `/processes` | the same as JSON |
//! | `/process/ID`, `/process/ID/report` | a frame with buttons, and the report in it |
//! | `/process/ID/control` | a command to the program (POST) |
//! | `/debug/pprof/…`, `/pprof/…` | profiles, as Go's and gperftools' servers have them |
//! | `/metrics`, `/targets`, `/healthz` | for Prometheus and for supervisors |
//! | `/pid/N/…`, `/log/ID/…` | the profiles and metrics of that process |

use super::Shared;
use super::guard::Right;
use super::http::{Method, Request, Response};
use super::{fetch, metrics, pages};

/// Answers a request.
pub(super) fn answer(shared: &Shared, request: &Request) -> Response {
    match request.narrowed() {
        Some(narrowed) if is_of_a_process(&narrowed.path) => answer_to(shared, &narrowed),
        _ => answer_to(shared, request),
    }
}

/// Whether a path has its answer of each process.
fn is_of_a_process(path: &str) -> bool {
    let is_pprof = path.starts_with("/debug/pprof") || path.starts_with("/pprof/");
    is_pprof || path == "/metrics"
}

fn answer_to(shared: &Shared, request: &Request) -> Response {
    let path = request.path.as_str();
    if path == "/healthz" && matches!(request.method, Method::Get | Method::Head) {
        return Response::text("ok\n");
    }
    let is_control = path.starts_with("/process/") && path.ends_with("/control");
    let is_symbol = matches!(path, "/debug/pprof/symbol" | "/pprof/symbol");
    let needed = match request.method {
        Method::Get | Method::Head if !is_control => Right::Read,
        // A question that is too long for a query: it changes nothing.
        Method::Post if is_symbol => Right::Read,
        Method::Post if is_control => Right::Control,
        _ => {
            let allowed = if is_control { "POST" } else { "GET, HEAD" };
            return Response::error(405, &format!("only {allowed} here")).with("Allow", allowed);
        }
    };
    if let Err(refusal) = shared.guard.check(request, needed) {
        return refusal;
    }
    match path {
        "/" => pages::index(),
        "/processes" => pages::processes(shared),
        "/metrics" => metrics::metrics(shared, request),
        "/targets" => metrics::targets(shared, request),
        // The links of the index count from its folder.
        "/debug/pprof" => Response::moved(&format!("pprof/?{}", request.raw_query)),
        "/debug/pprof/" => fetch::index(shared, request),
        "/debug/pprof/heap" => fetch::profile(shared, request, fetch::Kind::Heap),
        "/debug/pprof/allocs" => fetch::profile(shared, request, fetch::Kind::Allocs),
        "/pprof/heap" => fetch::text(shared, request),
        "/debug/pprof/cmdline" => fetch::command_line(shared, request, "\0"),
        "/pprof/cmdline" => fetch::command_line(shared, request, "\n"),
        "/debug/pprof/symbol" | "/pprof/symbol" => fetch::symbol(shared, request),
        _ => {
            let mut words = path
                .strip_prefix("/process/")
                .unwrap_or_default()
                .split('/');
            let process = words.next().and_then(|id| shared.table.by_id(id));
            match (process, words.next(), words.next()) {
                (Some(process), None, None) => pages::process(&process),
                (Some(process), Some("report"), None) => pages::report(shared, &process),
                (Some(process), Some("control"), None) => pages::control(&process, request),
                _ => Response::error(404, "nothing is here; / lists the processes"),
            }
        }
    }
}
