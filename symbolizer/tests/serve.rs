//! `heapprof serve`: its answers, its rules, and logs that grow, rotate, vanish or are damaged.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use heapprof_symbolizer::export::pprof::proto;
use heapprof_symbolizer::profile_of_pprof;
use prost::Message;

use crate::common::LogBuilder;

pub(crate) const TOKEN: &str = "0123456789abcdef0123";

/// A server that ends with the test.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn of(sources: &[&Path]) -> Server {
        Server::with(sources, &["--listen", "127.0.0.1:0"])
    }

    pub(crate) fn with(sources: &[&Path], options: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .arg("serve")
            .args(options)
            .args(sources)
            .env("HEAPPROF_SERVE_TOKEN", TOKEN)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let pipe = child.stderr.as_mut().unwrap();
        let mut byte = [0];
        while !said.ends_with('\n') && pipe.read(&mut byte).unwrap() == 1 {
            said.push(byte[0].into());
        }
        let address = said
            .split("http://")
            .nth(1)
            .unwrap_or_else(|| panic!("{said}"));
        let address = address.split('/').next().unwrap().to_owned();
        Server { child, address }
    }

    /// Sends bytes and returns all that comes back.
    fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The status and the body of the answer to a request with these headers.
    pub(crate) fn ask(&self, method: &str, target: &str, headers: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let host = match headers.contains("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address),
        };
        let request =
            format!("{method} {target} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    pub(crate) fn get(&self, target: &str) -> (u16, String) {
        let (status, body) = self.ask("GET", target, "");
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    pub(crate) fn pprof(&self, target: &str) -> proto::Profile {
        let (status, body) = self.ask("GET", target, "");
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        assert!(profile_of_pprof(&body).is_ok());
        let mut bytes = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut bytes).unwrap();
        proto::Profile::decode(&bytes[..]).unwrap()
    }

    /// Asks until the answer holds the text.
    pub(crate) fn until(&self, target: &str, text: &str) -> String {
        let began = Instant::now();
        loop {
            let (_, body) = self.get(target);
            if body.contains(text) {
                return body;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "no {text} in {body}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sums of a profile's four columns.
pub(crate) fn sums(profile: &proto::Profile) -> Vec<i64> {
    let columns = 0..profile.sample_type.len();
    let sum = |column: usize| {
        profile
            .sample
            .iter()
            .map(|sample| sample.value[column])
            .sum()
    };
    columns.map(sum).collect()
}

fn sample_types(profile: &proto::Profile) -> (Vec<&str>, &str) {
    let text = |index: i64| profile.string_table[index as usize].as_str();
    let types = profile
        .sample_type
        .iter()
        .map(|it| text(it.r#type))
        .collect();
    (types, text(profile.default_sample_type))
}

/// A log without an end.
fn growing() -> LogBuilder {
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    log.stack(&[0x1010, 0x1020]);
    log
}

#[test]
fn a_log_that_grows_is_fetched_as_go_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.heaplog");
    let mut log = growing();
    log.alloc(0, 1000);
    fs::write(&path, log.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/debug/pprof/", "heap?pid=77");
    let heap = server.pprof("/debug/pprof/heap?gc=1");
    let order = [
        "alloc_objects",
        "alloc_space",
        "inuse_objects",
        "inuse_space",
    ];
    assert_eq!(sample_types(&heap), (order.to_vec(), "inuse_space"));
    assert_eq!(sums(&heap), [1, 1000, 1, 1000]);
    let allocs = server.pprof("/debug/pprof/allocs?pid=77&debug=0");
    assert_eq!(sample_types(&allocs), (order.to_vec(), "alloc_space"));
    log.alloc(0, 500);
    fs::write(&path, log.current_bytes()).unwrap();
    assert_eq!(sums(&server.pprof("/debug/pprof/heap")), [2, 1500, 2, 1500]);
    let (status, text) = server.get("/debug/pprof/heap?debug=1");
    assert_eq!(status, 200);
    let first: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(first[..4], ["heap", "profile:", "2:", "1500"], "{text}");
    assert_eq!(server.get("/debug/pprof/cmdline").1, "server\0--fast");
    assert_eq!(server.get("/debug/pprof/symbol").1, "num_symbols: 1\n");
    let (_, index) = server.get("/debug/pprof/");
    assert!(
        index.contains("<tr><td>2</td><td><a href=\"heap?pid=77&log="),
        "{index}"
    );
    for wrong in [
        "debug=1&seconds=1",
        "seconds=x",
        "debug=-1",
        "seconds=100000",
    ] {
        let (status, why) = server.get(&format!("/debug/pprof/heap?{wrong}"));
        assert_eq!(status, 400, "{wrong}: {why}");
    }
}

#[test]
fn a_difference_has_what_came_and_went_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.heaplog");
    let mut log = growing();
    let first = log.alloc(0, 1000);
    fs::write(&path, log.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/debug/pprof/", "heap?pid=77");
    let delta = std::thread::scope(|scope| {
        let asked = scope.spawn(|| server.pprof("/debug/pprof/allocs?seconds=4"));
        std::thread::sleep(Duration::from_secs(2));
        log.alloc(0, 900);
        log.free(first);
        fs::write(&path, log.current_bytes()).unwrap();
        asked.join().unwrap()
    });
    assert_eq!(sums(&delta), [1, 900, 0, -100]);
    assert!(delta.duration_nanos >= 4_000_000_000);
}

#[test]
fn several_processes_are_listed_measured_and_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = growing();
    log.alloc(0, 1000);
    for name in [
        "a.heaplog",
        "b\"<script>.heaplog",
        "c.0001.heaplog",
        "c.heaplog",
    ] {
        fs::write(folder.path().join(name), log.current_bytes()).unwrap();
    }
    fs::write(folder.path().join("foreign.heaplog"), "no log").unwrap();
    let server = Server::of(&[folder.path()]);
    // An older segment is part of its log.
    let metrics = server.until("/metrics", "heapprof_serve_running 3");
    let line =
        "heapprof_in_use_bytes{pid=\"77\",program=\"server\",log=\"b\\\"<script>.heaplog\"} 1000\n";
    assert!(metrics.contains(line), "{metrics}");
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(metrics.contains(&format!("# HELP {name} ")), "{line}");
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{line}");
    }
    let (status, why) = server.get("/debug/pprof/heap");
    assert_eq!(status, 400);
    assert!(
        why.contains("?pid=77") && why.contains("choose one"),
        "{why}"
    );
    assert_eq!(server.get("/debug/pprof/heap?pid=78").0, 404);
    let targets: serde_json::Value = serde_json::from_str(&server.get("/targets").1).unwrap();
    assert_eq!(targets.as_array().unwrap().len(), 3);
    assert_eq!(targets[0]["targets"][0], server.address.as_str());
    let id = targets[0]["labels"]["__param_log"].as_str().unwrap();
    let of_one = server.get(&format!("/metrics?pid=77&log={id}")).1;
    assert_eq!(
        of_one.matches("\nheapprof_in_use_bytes{").count(),
        1,
        "{of_one}"
    );
    let chosen = server.pprof(&format!("/debug/pprof/heap?pid=77&log={id}"));
    assert_eq!(sums(&chosen)[3], 1000);
    let listed: serde_json::Value = serde_json::from_str(&server.get("/processes").1).unwrap();
    let foreign = listed["processes"].as_array().unwrap().iter();
    let foreign = foreign.filter(|it| it["log"] == "foreign.heaplog").count();
    assert_eq!(foreign, 1);
    // A log that went is forgotten.
    fs::remove_file(folder.path().join("a.heaplog")).unwrap();
    server.until("/metrics", "heapprof_serve_running 2");
}

#[test]
fn a_log_that_is_named_in_several_ways_is_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = growing();
    log.alloc(0, 1000);
    fs::write(folder.path().join("a.heaplog"), log.current_bytes()).unwrap();
    let beside = tempfile::tempdir().unwrap();
    let link = beside.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let dotted = folder.path().join(".");
    let server = Server::of(&[folder.path(), &dotted, &link, &link.join("a.heaplog")]);
    let metrics = server.until("/metrics", "heapprof_serve_running 1");
    let series = |line: &&str| line.starts_with("heapprof_in_use_bytes{");
    assert_eq!(metrics.lines().filter(series).count(), 1, "{metrics}");
    assert!(metrics.contains("heapprof_serve_logs 1\n"), "{metrics}");
}

#[test]
fn a_log_whose_name_is_no_utf8_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = growing();
    log.alloc(0, 1000);
    let name = std::ffi::OsStr::from_bytes(b"heapprof.gr\xfcn.1.heaplog");
    fs::write(folder.path().join(name), log.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/processes", "heapprof.gr\u{fffd}n.1.heaplog");
    let metrics = server.until("/metrics", "heapprof_serve_running 1");
    assert!(metrics.contains("heapprof_serve_logs 1\n"), "{metrics}");
}

#[test]
fn requests_of_other_sites_and_without_the_right_token_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = growing();
    log.alloc(0, 1000);
    fs::write(folder.path().join("a.heaplog"), log.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/metrics", "heapprof_serve_running 1");
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    let origin = format!("Origin: http://{}\r\n", server.address);
    for (method, target, headers, expected) in [
        ("GET", "/metrics", "", 200),
        ("HEAD", "/metrics", "", 200),
        ("GET", "/", "Host: localhost\r\n", 200),
        ("GET", "/metrics", "Host: evil.example\r\n", 403),
        (
            "GET",
            "/metrics",
            "Host: evil.example\r\nHost: localhost\r\n",
            400,
        ),
        (
            "GET",
            "/metrics",
            "Origin: http://evil.example\r\nOrigin: null\r\n",
            400,
        ),
        ("GET", "/metrics", "Origin: http://evil.example\r\n", 403),
        ("GET", "/metrics", "Origin: null\r\n", 403),
        ("GET", "/metrics", origin.as_str(), 200),
        (
            "GET",
            "/metrics",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
            403,
        ),
        ("GET", "/metrics", "Authorization: Bearer wrong\r\n", 401),
        ("GET", "/metrics?token=wrong", "", 401),
        (
            "GET",
            "/metrics",
            &format!("Host: pod.example\r\n{bearer}"),
            200,
        ),
        (
            "GET",
            &format!("/metrics?token={TOKEN}"),
            "Host: pod.example\r\n",
            200,
        ),
        ("POST", "/metrics", "", 405),
        ("DELETE", "/metrics", bearer.as_str(), 405),
        ("GET", "/nothing", "", 404),
        ("GET", "/healthz", "Host: probe\r\n", 200),
    ] {
        let (status, body) = server.ask(method, target, headers);
        let body = String::from_utf8_lossy(&body);
        assert_eq!(status, expected, "{method} {target} {headers}: {body}");
        assert!(method != "HEAD" || body.is_empty());
    }
    let targets: serde_json::Value = serde_json::from_str(&server.get("/targets").1).unwrap();
    let id = targets[0]["labels"]["__param_log"].as_str().unwrap();
    let control = format!("/process/{id}/control");
    assert_eq!(server.ask("POST", &control, "").0, 401);
    assert_eq!(server.ask("GET", &control, &bearer).0, 405);
    // The token is right, the command is not; then the program of the log does not run.
    assert_eq!(server.ask("POST", &control, &bearer).0, 400);
}

#[test]
fn the_report_is_that_of_heapprof_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.heaplog");
    let mut log = growing();
    log.alloc(0, 1000);
    fs::write(&path, log.current_bytes()).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/metrics", "heapprof_serve_running 1");
    let targets: serde_json::Value = serde_json::from_str(&server.get("/targets").1).unwrap();
    let id = targets[0]["labels"]["__param_log"].as_str().unwrap();
    let page = server.get(&format!("/process/{id}/report")).1;
    let written = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["report", "-o", "-"])
        .arg(&path)
        .output()
        .unwrap();
    assert_eq!(page, String::from_utf8(written.stdout).unwrap());
    for target in ["/".to_owned(), format!("/process/{id}")] {
        let answer = server.raw(format!("GET {target} HTTP/1.0\r\n\r\n").as_bytes());
        assert!(
            answer.contains("Content-Security-Policy: default-src 'none'; script-src 'sha256-")
        );
    }
}

#[test]
fn slow_and_senseless_clients_are_ended_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::of(&[folder.path()]);
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(20 << 10));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: 1\r\n".repeat(100));
    for (request, expected) in [
        (&b"\x16\x03\x01\x02\x00 hello\r\n\r\n"[..], "400"),
        (b"GET\r\n\r\n", "400"),
        (long.as_bytes(), "431"),
        (many.as_bytes(), "431"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "413",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "400",
        ),
        (
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "411",
        ),
    ] {
        let answer = server.raw(request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {expected} ")),
            "{answer}"
        );
    }
    // Connections that say nothing, or half a request.
    let mut idle: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(&server.address).unwrap())
        .collect();
    idle[0].write_all(b"GET /healthz HT").unwrap();
    assert_eq!(server.get("/healthz"), (200, "ok\n".into()));
    let mut said = String::new();
    idle[0]
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    idle[0].read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 408 "), "{said}");
    // Two requests at once.
    let answer = server
        .raw(b"GET /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!(answer.matches("\r\n\r\nok\n").count(), 2, "{answer}");
}

#[test]
fn logs_that_are_replaced_cut_and_damaged_stay_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.heaplog");
    let mut log = growing();
    log.alloc(0, 1000);
    let mut bytes = log.current_bytes();
    fs::write(&path, &bytes).unwrap();
    let server = Server::of(&[&path]);
    server.until("/metrics", "heapprof_serve_running 1");
    assert_eq!(sums(&server.pprof("/debug/pprof/heap"))[3], 1000);
    // Damage, and an intact frame behind it.
    let intact = bytes.len();
    log.alloc(0, 300);
    let longer = log.current_bytes();
    bytes.extend(b"damage");
    bytes.extend(&longer[intact..]);
    fs::write(&path, &bytes).unwrap();
    assert_eq!(sums(&server.pprof("/debug/pprof/heap"))[3], 1300);
    server.until("/metrics", "log=\"a.heaplog\"} 1\n");
    // Cut, and then another one's.
    fs::write(&path, &bytes[..intact]).unwrap();
    assert_eq!(sums(&server.pprof("/debug/pprof/heap"))[3], 1000);
    let mut other = growing();
    other.alloc(0, 7);
    let beside = folder.path().join("b");
    fs::write(&beside, other.current_bytes()).unwrap();
    fs::rename(&beside, &path).unwrap();
    assert_eq!(sums(&server.pprof("/debug/pprof/heap"))[3], 7);
    fs::remove_file(&path).unwrap();
    let listed = server.until("/processes", "the log is gone");
    assert!(listed.contains("\"in_use_bytes\":7"), "{listed}");
}

/// The entry of a log in the list of processes.
fn listed(server: &Server, log: &str) -> Option<serde_json::Value> {
    let listed: serde_json::Value = serde_json::from_str(&server.get("/processes").1).unwrap();
    let mut all = listed["processes"].as_array().unwrap().iter();
    all.find(|it| it["log"] == log).cloned()
}

#[test]
fn files_that_are_no_logs_are_told_from_processes() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = growing();
    log.alloc(0, 1000);
    let good = log.current_bytes();
    let mut of_another_version = good.clone();
    of_another_version[heapprof_format::FILE_HEADER.len() - 1] ^= 0x7f;
    for (name, bytes) in [
        ("good", &good[..]),
        ("text", b"heap log of yesterday\n"),
        ("empty", b""),
        ("header", &heapprof_format::FILE_HEADER[..]),
        ("version", &of_another_version),
    ] {
        fs::write(folder.path().join(name).with_extension("heaplog"), bytes).unwrap();
    }
    fs::create_dir(folder.path().join("folder.heaplog")).unwrap();
    let server = Server::of(&[folder.path()]);
    server.until("/metrics", "\nheapprof_serve_unread_files 3\n");
    server.until("/metrics", "\nheapprof_serve_running 1\n");
    for (name, state, why) in [
        ("good", "running", None),
        ("text", "not a log", Some("not a heapprof log")),
        ("empty", "empty", None),
        ("header", "empty", None),
        ("version", "unreadable", Some("log format version")),
        ("folder", "unreadable", Some("")),
    ] {
        let it = listed(&server, &format!("{name}.heaplog")).unwrap();
        assert_eq!(it["state"], state, "{it}");
        let error = it["error"].as_str();
        assert_eq!(error.is_some(), why.is_some(), "{it}");
        assert!(
            error.unwrap_or_default().contains(why.unwrap_or_default()),
            "{it}"
        );
    }
    // A program makes the file before its first record, and is seen soon after that.
    fs::write(folder.path().join("empty.heaplog"), &good).unwrap();
    let written = Instant::now();
    server.until("/metrics", "\nheapprof_serve_running 2\n");
    assert!(written.elapsed() < Duration::from_secs(8));
    fs::remove_file(folder.path().join("empty.heaplog")).unwrap();
    server.until("/metrics", "\nheapprof_serve_running 1\n");
    // One process: the others are none.
    assert_eq!(sums(&server.pprof("/debug/pprof/heap"))[3], 1000);
    for missing in ["pid=78", "pid=0"] {
        let (status, why) = server.get(&format!("/debug/pprof/heap?{missing}"));
        assert_eq!(status, 404);
        assert!(why.contains("?pid=77  running  server  ?log="), "{why}");
        assert!(why.contains("  good.heaplog\n"), "{why}");
        assert!(why.contains("\ntext.heaplog  not a log\n"), "{why}");
        assert!(!why.contains("pid=0"), "{why}");
    }
    let (_, index) = server.get("/debug/pprof/");
    assert!(index.contains("text.heaplog, not a log"), "{index}");
    assert!(!index.contains("pid=0"), "{index}");
}

/// Damage and cuts are told wherever the process is shown, in the words of `heapprof info`, and
/// nothing is called exact then.
#[test]
fn damage_and_cuts_are_told_as_info_tells_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.heaplog");
    let mut log = growing();
    log.alloc(0, 1000);
    let intact = log.current_bytes().len();
    log.alloc(0, 300);
    let whole = log.current_bytes();
    let mut damaged = whole[..intact].to_vec();
    damaged.extend(b"damage");
    damaged.extend(&whole[intact..]);
    fs::write(&path, &damaged).unwrap();
    let info = |path: &Path| {
        let ran = Command::new(env!("CARGO_BIN_EXE_heapprof"))
            .args(["info"])
            .arg(path)
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };
    let said = info(&path);
    let words = said.lines().find(|line| line.starts_with("  damaged: "));
    let words = words.unwrap_or_else(|| panic!("{said}")).trim();
    assert!(!said.contains("exact"), "{said}");

    let server = Server::of(&[&path]);
    server.until(
        "/metrics",
        "heapprof_log_faults{pid=\"77\",program=\"server\",log=\"a.heaplog\"} 1\n",
    );
    let it = listed(&server, "a.heaplog").unwrap();
    assert_eq!(it["faults"], serde_json::json!([words]));
    let comments = |target: &str| {
        let profile = server.pprof(target);
        let comments = profile.comment.iter();
        let comments = comments.map(|&it| profile.string_table[it as usize].clone());
        comments.collect::<Vec<String>>()
    };
    let said = comments("/debug/pprof/heap");
    assert!(said.iter().any(|line| line == words), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("exact")), "{said:?}");
    let id = it["id"].as_str().unwrap();
    let (_, page) = server.get(&format!("/process/{id}/report"));
    assert!(
        page.contains(words) && !page.contains("numbers are exact"),
        "{page}"
    );
    let (_, index) = server.get("/debug/pprof/");
    assert!(index.contains("server 77, running, damaged"), "{index}");

    // Cut within a frame: told once the file has not grown for a while.
    fs::write(&path, &whole[..whole.len() - 3]).unwrap();
    let cut = format!(
        "cut off at offset {intact}: {} bytes behind it",
        whole.len() - 3 - intact
    );
    assert!(info(&path).contains(&cut), "{}", info(&path));
    let listed = server.until("/processes", &cut);
    assert!(
        listed.contains("the log was cut while it was followed: "),
        "{listed}"
    );
    let said = comments("/debug/pprof/heap");
    assert!(said.iter().any(|line| line.starts_with(&cut)), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("exact")), "{said:?}");
    // Cut to nothing: what was known stays, with the reason.
    fs::write(&path, b"").unwrap();
    let listed = server.until("/processes", "\"log_bytes\":0");
    assert!(
        listed.contains("\"pid\":77") && listed.contains("the log was cut while"),
        "{listed}"
    );
}

/// The logs of many processes that have ended, all of which are asked for: they share one
/// bound, and each answer is right.
#[test]
fn ended_logs_share_one_bound_of_memory() {
    const STACKS: u64 = 400;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..30 {
        let mut log = LogBuilder::new(1);
        log.start_of("/bin/worker", 1000 + number, 0);
        for at in 0..STACKS {
            let frames: Vec<u64> = (0..30).map(|depth| 0x1000 + at * 0x100 + depth).collect();
            let stack = log.stack(&frames);
            log.alloc(stack, 100 + u64::from(number));
        }
        let name = format!("{number}.heaplog");
        std::fs::write(folder.path().join(name), log.end()).unwrap();
    }
    // An eighth of it may be kept: fewer than the logs.
    let options = ["--listen", "127.0.0.1:0", "--max-memory", "32MiB"];
    let server = Server::with(&[folder.path()], &options);
    server.until("/processes", "\"pid\":1029");
    let metric = |name: &str| -> u64 {
        let (_, text) = server.get("/metrics");
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let value = line.unwrap().rsplit(' ').next().unwrap();
        value.parse().unwrap()
    };
    let mut most = 0;
    for number in 0..30 {
        let target = format!("/debug/pprof/heap?pid={}", 1000 + number);
        let profile = server.pprof(&target);
        let in_use: i64 = profile.sample.iter().map(|sample| sample.value[3]).sum();
        assert_eq!(in_use, STACKS as i64 * (100 + number), "{target}");
        most = most.max(metric("heapprof_serve_unused_bytes"));
        assert!(metric("heapprof_serve_memory_bytes") < 32 << 20);
    }
    // One that was forgotten is read again.
    assert!(!server.pprof("/debug/pprof/heap?pid=1000").sample.is_empty());
    // The count holds what threads of connections leave to others.
    let before = metric("heapprof_serve_memory_bytes");
    for _ in 0..200 {
        server.pprof("/debug/pprof/heap?pid=1003");
    }
    let after = metric("heapprof_serve_memory_bytes");
    assert!(after < before + (3 << 20), "from {before} to {after} bytes");
    assert!(most > 3 << 20, "{most} bytes: some of the logs are kept");
    assert!(most <= 4 << 20, "{most} bytes");
}

/// `go tool pprof` asks for names beside the profile, without its query.
#[test]
fn a_process_has_its_endpoints_in_a_path_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for (name, pid, size) in [("a", 77, 1000), ("b", 78, 500)] {
        let mut log = LogBuilder::new(1);
        log.start_of("/bin/server", pid, 5);
        log.module("/bin/server", 0x1000, 0x1000);
        log.stack(&[0x1010, 0x1020]);
        log.alloc(0, size);
        let path = folder.path().join(name).with_extension("heaplog");
        fs::write(path, log.current_bytes()).unwrap();
    }
    let server = Server::of(&[folder.path()]);
    server.until("/metrics", "heapprof_serve_running 2");
    let (status, why) = server.get("/debug/pprof/symbol?0x1020");
    assert_eq!(status, 400);
    assert!(why.contains("/pid/N"), "{why}");
    let id = listed(&server, "b.heaplog").unwrap()["id"].clone();
    let of_log = format!("/log/{}", id.as_str().unwrap());
    for (prefix, size) in [("/pid/77", 1000), ("/pid/78", 500), (&of_log, 500)] {
        assert_eq!(
            sums(&server.pprof(&format!("{prefix}/debug/pprof/heap")))[3],
            size
        );
        for path in [
            "debug/pprof/symbol?0x1020",
            "debug/pprof/cmdline",
            "pprof/symbol?0x1020",
        ] {
            let (status, said) = server.get(&format!("{prefix}/{path}"));
            assert_eq!(status, 200, "{prefix}/{path}: {said}");
        }
        let (_, text) = server.get(&format!("{prefix}/pprof/heap"));
        let first: Vec<&str> = text.split_whitespace().take(4).collect();
        assert_eq!(first, ["heap", "profile:", "1:", &size.to_string()]);
        let (_, metrics) = server.get(&format!("{prefix}/metrics"));
        assert_eq!(metrics.matches("\nheapprof_in_use_bytes{").count(), 1);
        let (_, index) = server.get(&format!("{prefix}/debug/pprof/"));
        assert_eq!(index.matches(">heap</a>").count(), 1, "{index}");
        let moved = format!("GET {prefix}/debug/pprof?debug=0 HTTP/1.0\r\n\r\n");
        let moved = server.raw(moved.as_bytes());
        assert!(moved.starts_with("HTTP/1.1 301 "), "{moved}");
        assert!(moved.contains("\r\nLocation: pprof/?"), "{moved}");
        // The path decides, not the query.
        let (_, both) = server.get(&format!("{prefix}/pprof/heap?pid=1"));
        assert_eq!(both, text);
    }
    for nothing in [
        "/pid/79/debug/pprof/heap",
        "/pid//debug/pprof/heap",
        "/pid/77/processes",
    ] {
        assert_eq!(server.get(nothing).0, 404, "{nothing}");
    }
}

#[test]
fn it_ends_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut server = Server::of(&[folder.path()]);
        let _idle = TcpStream::connect(&server.address).unwrap();
        // SAFETY: no memory is involved; the process is a child that was not reaped.
        unsafe { libc::kill(server.child.id() as i32, signal) };
        assert!(server.child.wait().unwrap().success());
    }
}

#[test]
fn what_cannot_be_served_is_said_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str], token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
        command.arg("serve").args(args).current_dir(folder.path());
        command.env_remove("HEAPPROF_SERVE_TOKEN");
        if let Some(token) = token {
            command.env("HEAPPROF_SERVE_TOKEN", token);
        }
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let own = std::process::id().to_string();
    for (args, token, status, part) in [
        (&["--listen", "0.0.0.0:0"][..], None, 2, "--token-file"),
        (&["--listen", "0.0.0.0:0"], Some("short"), 2, "openssl rand"),
        (&["--listen", "nonsense"], None, 1, "127.0.0.1:7070"),
        (&["nowhere"], None, 1, "no such folder, log or process"),
        (&["4294967295"], None, 1, "there is no such process"),
        (&[&own], None, 1, "if it has a log, name the log"),
        (&["--token-file", "none"], None, 1, "--token-file none"),
    ] {
        let (code, text) = said(args, token);
        assert_eq!(code, Some(status), "{args:?}: {text}");
        assert!(text.contains(part), "{args:?}: {text}");
        assert!(!text.contains("heapprof ctl"), "{args:?}: {text}");
    }
    let open = Server::with(&[folder.path()], &["--listen", "0.0.0.0:0"]);
    let local = open.address.replace("0.0.0.0", "127.0.0.1");
    let mut stream = TcpStream::connect(&local).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn a_socket_that_systemd_passes_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let spawn = |listener: &dyn AsRawFd, sockets: &str| {
        let fd = listener.as_raw_fd();
        let mut command = Command::new("/bin/sh");
        // As systemd does: the number of the process, which exec keeps.
        command
            .args(["-c", "LISTEN_PID=$$ exec \"$0\" serve \"$1\""])
            .arg(env!("CARGO_BIN_EXE_heapprof"))
            .arg(folder.path())
            .env("LISTEN_FDS", sockets)
            .env("HEAPPROF_SERVE_TOKEN", TOKEN)
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec, one system call that is safe there.
        unsafe {
            command.pre_exec(move || match libc::dup2(fd, 3) {
                3 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        command.spawn().unwrap()
    };
    // A connection from before its start waits for it.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut early = TcpStream::connect(&address).unwrap();
    early.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let child = spawn(&listener, "1");
    drop(listener);
    let server = Server {
        child,
        address: address.clone(),
    };
    let mut answer = String::new();
    early.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    assert_eq!(server.get("/healthz"), (200, "ok\n".into()));
    drop(server);
    assert!(
        TcpStream::connect(&address).is_err(),
        "the socket outlives it"
    );

    let socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (passed, sockets, part) in [
        (&socket as &dyn AsRawFd, "1", "ListenStream=127.0.0.1:7070"),
        (&listener, "2", "one ListenStream="),
    ] {
        let output = spawn(passed, sockets).wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains(part), "{said}");
    }
}
