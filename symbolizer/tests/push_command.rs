//! `heapprof push` against receivers that take, refuse, wait and fail: what arrives adds up to the
//! log, and what does not is counted.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, UNIX_EPOCH};

use flate2::read::GzDecoder;
use heapprof_format::{Record, Start};
use heapprof_symbolizer::export::otlp::proto::{ProfilesData, Value};
use heapprof_symbolizer::export::pprof::proto;
use heapprof_symbolizer::{Metric, profile_of_log};
use prost::Message;

use crate::common::{LogBuilder, SERVER_TRUTH, server_log, stderr, write};
use crate::loopback::{Request, Server, free_port, ok, status};
use crate::otlp::keeps_the_rules;

type Taken = Arc<Mutex<Vec<Request>>>;

/// A receiver that takes everything.
fn receiver() -> (Server, Taken) {
    let taken = Taken::default();
    let of_server = Arc::clone(&taken);
    let server = Server::taking(move |request, stream| {
        of_server.lock().expect("no panic").push(request.clone());
        ok(stream, b"");
    });
    (server, taken)
}

fn push(args: &[&str]) -> Output {
    command(args).output().expect("heapprof can be started")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
    command.arg("push").args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).expect("gzip");
    out
}

/// The sums of a message: allocated blocks and bytes, blocks and bytes in use.
fn sums_of_otlp(request: &Request) -> [u64; 4] {
    assert_eq!(request.path(), "/v1development/profiles");
    assert_eq!(
        request.header("content-type").as_deref(),
        Some("application/x-protobuf")
    );
    assert_eq!(request.header("content-encoding").as_deref(), Some("gzip"));
    let data = ProfilesData::decode(&gunzip(&request.body)[..]).expect("protobuf");
    keeps_the_rules(&data);
    let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
    assert_eq!(profiles.len(), 4);
    [0, 1, 2, 3].map(|at| {
        let samples = profiles[at].samples.iter();
        samples.map(|sample| sample.values[0]).sum::<i64>() as u64
    })
}

fn sums_of_pprof(gzip: &[u8]) -> [u64; 4] {
    let profile = proto::Profile::decode(&gunzip(gzip)[..]).expect("pprof");
    assert_eq!(profile.string_table[0], "");
    [0, 1, 2, 3].map(|at| profile.sample.iter().map(|s| s.value[at]).sum::<i64>() as u64)
}

/// Returns the sums of a log of [`server_log`], in the order of a message.
fn truth() -> [u64; 4] {
    let [in_use_objects, in_use_bytes, objects, bytes] = SERVER_TRUTH;
    [objects, bytes, in_use_objects, in_use_bytes]
}

fn totals_of(log: &[u8]) -> [u64; 4] {
    let numbers = profile_of_log(log, |_| {}).expect("a log").numbers();
    Metric::ALL.map(|metric| numbers.get(metric))
}

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask_to_end(child: Child) -> Output {
    // SAFETY: no memory is involved; the child is ours and not reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    child.wait_with_output().expect("an output")
}

#[test]
fn a_finished_log_arrives_as_otlp_with_its_totals() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let (server, taken) = receiver();
    let log = log.to_str().expect("a name");
    let out = push(&[
        "--once",
        "-f",
        "otlp",
        "--to",
        &server.url,
        "--label",
        "zone=b",
        log,
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    let taken = taken.lock().expect("no panic");
    assert_eq!(taken.len(), 1);
    assert_eq!(sums_of_otlp(&taken[0]), truth());
    let data = ProfilesData::decode(&gunzip(&taken[0].body)[..]).expect("protobuf");
    let resource = data.resource_profiles[0]
        .resource
        .clone()
        .expect("a resource");
    let value = |key: &str| {
        let found = resource.attributes.iter().find(|known| known.key == key);
        found.and_then(|known| known.value.clone()?.value)
    };
    assert_eq!(value("zone"), Some(Value::StringValue("b".into())));
    assert_eq!(
        value("service.name"),
        Some(Value::StringValue("server".into()))
    );
    assert_eq!(value("process.pid"), Some(Value::IntValue(77)));
    let dictionary = data.dictionary.expect("a dictionary");
    assert_eq!(dictionary.function_table.len(), 1, "no names unless asked");
    assert!(
        stderr(&out).contains("sent 1 message (16 blocks and 8391976 bytes"),
        "{}",
        stderr(&out)
    );
}

#[test]
fn a_finished_log_arrives_at_pyroscope_by_both_ways() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(4096));
    let expected = totals_of(&server_log(4096));
    let log = log.to_str().expect("a name");

    let (server, taken) = receiver();
    let out = push(&[
        "--once",
        "--to",
        &server.url,
        "--name",
        "shop",
        "--label",
        "k=v w",
        log,
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    let request = taken.lock().expect("no panic")[0].clone();
    let path = request.path();
    assert!(
        path.starts_with(
            "/ingest?name=shop%7Bk%3Dv%20w%2Cpid%3D77%7D&from=1767225600&until=1767225601&"
        ),
        "{path}"
    );
    let boundary = request.header("content-type").expect("a type");
    let boundary = boundary
        .split_once("boundary=")
        .expect("a form")
        .1
        .to_owned();
    let find = |from: usize, what: &[u8]| {
        let found = request.body[from..]
            .windows(what.len())
            .position(|w| w == what);
        from + found.expect("a part of the form")
    };
    let begin = find(find(0, b"name=\"profile\""), b"\r\n\r\n") + 4;
    let end = find(begin, format!("\r\n--{boundary}").as_bytes());
    assert_eq!(sums_of_pprof(&request.body[begin..end]), expected);
    let config = find(find(end, b"name=\"sample_type_config\""), b"\r\n\r\n") + 4;
    let last = find(config, format!("\r\n--{boundary}--").as_bytes());
    let json: serde_json::Value =
        serde_json::from_slice(&request.body[config..last]).expect("JSON");
    assert_eq!(json["inuse_space"]["units"], "bytes");

    let (server, taken) = receiver();
    let out = push(&["--once", "-f", "pyroscope-push", "--to", &server.url, log]);
    assert!(out.status.success(), "{}", stderr(&out));
    let request = taken.lock().expect("no panic")[0].clone();
    assert_eq!(request.path(), "/push.v1.PusherService/Push");
    assert_eq!(
        request.header("content-type").as_deref(),
        Some("application/proto")
    );
    let message = PushRequest::decode(&gunzip(&request.body)[..]).expect("protobuf");
    assert_eq!(message.series.len(), 1);
    let labels: Vec<(&str, &str)> = (message.series[0].labels.iter())
        .map(|label| (label.name.as_str(), label.value.as_str()))
        .collect();
    let expected_labels = [
        ("__delta__", "false"),
        ("__name__", "memory"),
        ("pid", "77"),
        ("service_name", "server"),
    ];
    assert_eq!(labels, expected_labels);
    assert_eq!(
        sums_of_pprof(&message.series[0].samples[0].raw_profile),
        expected
    );
    assert_eq!(message.series[0].samples[0].id.len(), 36);
}

/// As Pyroscope defines them.
#[derive(Clone, PartialEq, prost::Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<Series>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Series {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Raw>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Raw {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
    #[prost(string, tag = "2")]
    id: String,
}

#[test]
fn what_is_allocated_adds_up_over_a_log_that_grows_and_one_that_comes_later() {
    let mut log = LogBuilder::new(4096);
    let stacks = [log.stack(&[0x9010, 0x1101]), log.stack(&[0x9010, 0x1201])];
    let mut cuts = Vec::new();
    for round in 0..6u64 {
        for n in 0..40 {
            let id = log.alloc(stacks[(n % 2) as usize], 100 + 977 * (n + round));
            if n % 3 == 0 {
                log.free(id);
            }
        }
        cuts.push(log.flush());
    }
    let bytes = log.end();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, taken) = receiver();
    let path = folder.path().to_str().expect("a name");
    let child = command(&["--every", "100ms", "-f", "otlp", "--to", &server.url, path])
        .spawn()
        .expect("heapprof can be started");
    let number = || taken.lock().expect("no panic").len();
    for (round, cut) in cuts.into_iter().enumerate() {
        write(folder.path(), "a.heaplog", &bytes[..cut]);
        wait_for("a message for each growth", || number() > round);
    }
    write(folder.path(), "a.heaplog", &bytes);
    write(folder.path(), "b.heaplog", &{
        let mut other = LogBuilder::new(1);
        other.start_of("/bin/other", 78, 1_767_225_600_000_000_000);
        let stack = other.stack(&[0x1]);
        other.alloc(stack, 5);
        other.end()
    });
    let out = ask_to_end(child);
    assert!(out.status.success(), "{}", stderr(&out));

    let (mut allocated, mut in_use, mut until) = ([0; 2], [0; 2], 0);
    let mut others = 0;
    for request in taken.lock().expect("no panic").iter() {
        let sums = sums_of_otlp(request);
        let data = ProfilesData::decode(&gunzip(&request.body)[..]).expect("protobuf");
        if format!("{:?}", data.resource_profiles[0].resource).contains("other") {
            assert_eq!(sums, [1, 5, 1, 5]);
            others += 1;
            continue;
        }
        let profile = &data.resource_profiles[0].scope_profiles[0].profiles[0];
        assert!(profile.time_unix_nano >= until, "times overlap");
        until = profile.time_unix_nano + profile.duration_nano;
        allocated = [allocated[0] + sums[0], allocated[1] + sums[1]];
        in_use = [sums[2], sums[3]];
    }
    let expected = totals_of(&bytes);
    assert_eq!(allocated, expected[..2], "what all messages allocated");
    assert_eq!(in_use, expected[2..], "what the last message has in use");
    assert_eq!(others, 1);
}

#[test]
fn a_receiver_that_asks_to_wait_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let taken = Taken::default();
    let of_server = Arc::clone(&taken);
    let server = Server::taking(move |request, stream| {
        let mut taken = of_server.lock().expect("no panic");
        taken.push(request.clone());
        match taken.len() {
            1 => {
                let _ = write!(
                    stream,
                    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
            }
            2 => status(stream, "503 Service Unavailable"),
            // Not HTTP at all.
            3 => drop(stream.write_all(b"\0\xff garbage\r\n\r\n")),
            _ => ok(stream, b""),
        }
    });
    let began = Instant::now();
    let out = push(&[
        "--once",
        "-f",
        "otlp",
        "--to",
        &server.url,
        log.to_str().expect("a name"),
    ]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "Retry-After is not honoured"
    );
    let taken = taken.lock().expect("no panic");
    assert_eq!(taken.len(), 4);
    assert!(
        taken.iter().all(|request| request.body == taken[0].body),
        "another id"
    );
    assert!(stderr(&out).contains("sent 1 message") && stderr(&out).contains("lost 0 messages"));
}

#[test]
fn what_is_refused_is_not_repeated_and_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let taken = Taken::default();
    let of_server = Arc::clone(&taken);
    let server = Server::taking(move |request, stream| {
        of_server.lock().expect("no panic").push(request.clone());
        status(stream, "401 Unauthorized");
    });
    let out = push(&["--once", "--to", &server.url, log.to_str().expect("a name")]);
    assert_eq!(out.status.code(), Some(1));
    let said = stderr(&out);
    let lost = "lost: 1 message (16 blocks and 8391976 bytes allocated): refused by the receiver";
    assert!(said.contains(lost) && said.contains("status 401"), "{said}");
    assert_eq!(
        taken.lock().expect("no panic").len(),
        1,
        "a refused message is not sent again"
    );
}

/// A failure that was told a moment ago does not keep the first loss for a minute.
#[test]
fn a_loss_is_told_at_once_after_a_failure() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "a.heaplog", &server_log(1));
    let taken = Taken::default();
    let of_server = Arc::clone(&taken);
    let server = Server::taking(move |request, stream| {
        let mut taken = of_server.lock().expect("no panic");
        taken.push(request.clone());
        match taken.len() {
            1..3 => status(stream, "503 Service Unavailable"),
            _ => status(stream, "401 Unauthorized"),
        }
    });
    let path = folder.path().to_str().expect("a name");
    let mut child = command(&["--every", "100ms", "--to", &server.url, path])
        .spawn()
        .expect("heapprof can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut said = Vec::new();
    let began = Instant::now();
    while let Some(Ok(line)) = lines.next() {
        said.push(line);
        if said
            .last()
            .is_some_and(|line| line.contains("lost: 1 message"))
        {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(40), "{said:#?}");
    assert!(said[0].contains("status 503"), "{said:#?}");
    child.kill().expect("it runs");
    child.wait().expect("an end");
}

#[test]
fn what_nobody_takes_is_counted_within_the_time_for_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let log = log.to_str().expect("a name");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let silent = Server::taking(|_, _| std::thread::sleep(Duration::from_secs(60)));
    for url in [&nobody, &silent.url] {
        let began = Instant::now();
        let out = push(&[
            "--once",
            "--end-within",
            "2s",
            "--timeout",
            "500ms",
            "--to",
            url,
            log,
        ]);
        assert_eq!(out.status.code(), Some(1));
        assert!(began.elapsed() < Duration::from_secs(15), "{url}");
        let said = stderr(&out);
        let lost =
            "lost: 1 message (16 blocks and 8391976 bytes allocated): left when the time was over";
        assert!(said.contains(lost), "{said}");
    }
}

#[test]
fn profiles_that_a_collector_rejects_and_answers_of_something_else_are_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let log = log.to_str().expect("a name");
    // partial_success { rejected_profiles: 3, error_message: "no" }
    let rejected = b"\x0a\x06\x08\x03\x12\x02no".to_vec();
    for (body, cause) in [
        (rejected, "taken only in part by the receiver"),
        (b"<html>hello".to_vec(), "no answer of the protocol"),
    ] {
        let server = Server::taking(move |_, stream| ok(stream, &body));
        let out = push(&["--once", "-f", "otlp", "--to", &server.url, log]);
        assert_eq!(out.status.code(), Some(1));
        assert!(stderr(&out).contains(cause), "{}", stderr(&out));
    }
}

#[test]
fn credentials_come_from_files_and_the_environment() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let log = log.to_str().expect("a name");
    let basic = write(folder.path(), "basic", b"me:secret\n");
    let headers = write(
        folder.path(),
        "headers",
        b"X-Scope-OrgID: team\nX-More: 1\n",
    );
    let (server, taken) = receiver();
    let mut command = command(&[
        "--once",
        "--to",
        &server.url,
        "--header",
        "X-Plain: yes",
        log,
    ]);
    command
        .arg("--basic-auth-file")
        .arg(&basic)
        .arg("--header-file")
        .arg(&headers);
    command.env("HEAPPROF_PUSH_HEADERS", "X-Env: 2");
    let out = command.output().expect("an output");
    assert!(out.status.success(), "{}", stderr(&out));
    let request = taken.lock().expect("no panic")[0].clone();
    for (name, value) in [
        ("authorization", "Basic bWU6c2VjcmV0"),
        ("x-scope-orgid", "team"),
        ("x-more", "1"),
        ("x-env", "2"),
        ("x-plain", "yes"),
    ] {
        assert_eq!(request.header(name).as_deref(), Some(value), "{name}");
    }
    let out = push(&["--once", "--to", "http://me:secret@127.0.0.1:1", log]);
    assert_eq!(out.status.code(), Some(2));
    assert!(
        stderr(&out).contains("give it in a file"),
        "{}",
        stderr(&out)
    );
    assert!(
        !stderr(&out).contains("secret@"),
        "the message repeats the password"
    );
}

#[test]
fn a_full_queue_loses_the_oldest_and_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..12u32 {
        let mut log = LogBuilder::new(1);
        log.start_of("/bin/many", 100 + number, 1_767_225_600_000_000_000);
        let stack = log.stack(&[0x1]);
        log.alloc(stack, 1000);
        write(folder.path(), &format!("{number}.heaplog"), &log.end());
    }
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let path = folder.path().to_str().expect("a name");
    let out = push(&[
        "--once",
        "--queue",
        "4KiB",
        "--end-within",
        "1s",
        "--to",
        &nobody,
        path,
    ]);
    assert_eq!(out.status.code(), Some(1));
    let said = stderr(&out);
    let of = |cause: &str| -> u64 {
        let line = said
            .lines()
            .rev()
            .find(|line| line.contains(cause))
            .expect(cause);
        let number = line.split("lost: ").nth(1).expect("a number");
        number
            .split(' ')
            .next()
            .expect("a number")
            .parse()
            .expect("a number")
    };
    let (queue, time) = (
        of("pushed out of the full queue"),
        of("left when the time was over"),
    );
    assert!(queue > 0 && time > 0, "{said}");
    assert_eq!(queue + time, 12, "each is counted once: {said}");
    assert!(
        said.contains("lost 12 messages (12 blocks and 12000 bytes allocated)"),
        "{said}"
    );
}

#[test]
fn what_is_in_use_is_an_average_over_the_time_of_a_message() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1]);
    let quiet = log.stack(&[0x2]);
    log.alloc(quiet, 500);
    let first = log.alloc(stack, 1000);
    log.record_at(100_000_000, |time_ns| Record::Marker {
        time_ns,
        name: "begin".into(),
    });
    let begin = log.flush();
    // From here on 1000 bytes for a quarter, 5000 for a half, 4000 for the last quarter.
    log.record_at(124_000_000, |time_ns| Record::Marker {
        time_ns,
        name: "a".into(),
    });
    log.alloc(stack, 4000);
    log.record_at(174_000_000, |time_ns| Record::Marker {
        time_ns,
        name: "b".into(),
    });
    log.free(first);
    log.record_at(200_000_000, |time_ns| Record::Marker {
        time_ns,
        name: "end".into(),
    });
    let bytes = log.end();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, taken) = receiver();
    let path = folder.path().to_str().expect("a name");
    write(folder.path(), "a.heaplog", &bytes[..begin]);
    let child = command(&["--every", "100ms", "-f", "otlp", "--to", &server.url, path])
        .spawn()
        .expect("heapprof can be started");
    let number = || taken.lock().expect("no panic").len();
    wait_for("the first message", || number() == 1);
    write(folder.path(), "a.heaplog", &bytes);
    wait_for("the second message", || number() == 2);
    assert!(ask_to_end(child).status.success());
    let taken = taken.lock().expect("no panic");
    assert_eq!(sums_of_otlp(&taken[0]), [2, 1500, 2, 1500]);
    assert_eq!(
        sums_of_otlp(&taken[1]),
        [1, 4000, 2 + 1, 500 + (1000 + 2 * 5000 + 4000) / 4],
        "one and a half blocks of a stack are two, and one of the other"
    );
    assert_eq!(taken.len(), 2);
}

#[test]
fn a_process_that_runs_and_allocates_nothing_is_sent_each_time() {
    let own = std::env::current_exe().expect("a path");
    let mut clock = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut clock) };
    let now = UNIX_EPOCH.elapsed().expect("a time after 1970");
    let mut log = LogBuilder::new(1);
    log.begins(Start {
        program: own.to_str().expect("a name").into(),
        pid: std::process::id(),
        // By this clock the process is older than its log, so it is the log's.
        wall_ns: now.as_nanos() as u64,
        monotonic_ns: (clock.tv_sec as u64 - 60) * 1_000_000_000,
        interval: 1,
        ..Start::default()
    });
    let stack = log.stack(&[0x1]);
    log.alloc(stack, 1000);
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "a.heaplog", &log.current_bytes());
    let (server, taken) = receiver();
    let path = folder.path().to_str().expect("a name");
    let child = command(&["--every", "100ms", "-f", "otlp", "--to", &server.url, path])
        .spawn()
        .expect("heapprof can be started");
    wait_for("messages of an idle process", || {
        taken.lock().expect("no panic").len() >= 4
    });
    assert!(ask_to_end(child).status.success());
    let taken = taken.lock().expect("no panic");
    assert_eq!(sums_of_otlp(&taken[0]), [1, 1000, 1, 1000]);
    let mut until = 0;
    for request in &taken[1..] {
        assert_eq!(sums_of_otlp(request), [0, 0, 1, 1000]);
        let data = ProfilesData::decode(&gunzip(&request.body)[..]).expect("protobuf");
        let profile = &data.resource_profiles[0].scope_profiles[0].profiles[2];
        assert!(profile.time_unix_nano >= until && profile.duration_nano > 0);
        until = profile.time_unix_nano + profile.duration_nano;
    }
}

#[test]
fn a_log_that_rotates_or_is_removed_is_sent_to_its_end() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1]);
    log.alloc(stack, 1000);
    let begin = log.flush();
    log.alloc(stack, 30);
    let bytes = log.cut();
    let folder = tempfile::tempdir().expect("a folder");
    let (server, taken) = receiver();
    let path = folder.path().to_str().expect("a name");
    write(folder.path(), "a.heaplog", &bytes[..begin]);
    let child = command(&["--every", "300ms", "-f", "otlp", "--to", &server.url, path])
        .spawn()
        .expect("heapprof can be started");
    wait_for("the first message", || {
        taken.lock().expect("no panic").len() == 1
    });
    // Between two looks the log gets its last bytes, and goes.
    let log = folder.path().join("a.heaplog");
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .expect("a file");
    file.write_all(&bytes[begin..]).expect("written");
    std::fs::remove_file(&log).expect("removed");
    wait_for("the rest", || taken.lock().expect("no panic").len() == 2);
    let out = ask_to_end(child);
    assert_eq!(sums_of_otlp(&taken.lock().expect("no panic")[1])[1], 30);
    // It had no end, so more may be missing.
    assert!(
        stderr(&out).contains("the end of 1 logs"),
        "{}",
        stderr(&out)
    );
}

/// Names that were found once are kept: the next message has them, also if their source is gone by
/// then.
#[test]
fn names_are_looked_up_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let map = folder.path().join("names.map");
    std::fs::write(&map, "1000 10 first_function\n").expect("a map");
    let mut log = LogBuilder::new(1);
    log.stack(&[0x1005]);
    log.alloc(0, 100);
    let path = write(folder.path(), "a.heaplog", &log.current_bytes());
    let (server, taken) = receiver();
    let mut command = command(&["--to", &server.url, "-f", "pyroscope-push", "--symbolize"]);
    let child = command
        .args(["--every", "100ms", "--perf-map"])
        .args([&map, &path])
        .spawn()
        .expect("heapprof can be started");
    let message = |index: usize| {
        let taken = taken.lock().expect("no panic");
        let bodies: Vec<String> = (taken.iter())
            .map(|request| PushRequest::decode(&gunzip(&request.body)[..]).expect("a request"))
            .map(|request| gunzip(&request.series[0].samples[0].raw_profile))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        bodies.get(index).cloned()
    };
    wait_for("a message", || message(0).is_some());
    assert!(message(0).expect("one").contains("first_function"));
    std::fs::write(&map, "2000 10 second_function\n").expect("a map");
    log.stack(&[0x2005, 0x1006]);
    log.alloc(1, 10);
    log.alloc(0, 10);
    std::fs::write(&path, log.current_bytes()).expect("a longer log");
    wait_for("another message", || message(1).is_some());
    let second = message(1).expect("two");
    assert!(second.contains("first_function") && second.contains("second_function"));
    ask_to_end(child);
}
