//! `heapprof serve` with logs that somebody else writes: mutated, cut, replaced while they are
//! read, and endless.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heapprof_format::{Encoder, FILE_HEADER, Record, Stack, Start, Thread, WalkEnd};

use crate::common::{LogBuilder, server_log};
use crate::serve::{Server, sums};

/// A number after the other, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % most.max(1)
    }
}

/// The seeds of the readers' fuzzing, and a whole log.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut paths: Vec<PathBuf> = ["log", "input", "join", "dump"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut seeds: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(seeds.len() > 3);
    seeds.extend([server_log(1), server_log(4096)]);
    seeds
}

/// Changes bytes, cuts, repeats and inserts.
fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..1 + numbers.below(6) {
        let (at, from) = (numbers.below(bytes.len()), numbers.below(bytes.len()));
        match numbers.below(5) {
            0 if !bytes.is_empty() => bytes[at] = numbers.below(256) as u8,
            1 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            2 => bytes.truncate(at),
            3 => {
                let end = (from + numbers.below(400)).min(bytes.len());
                let copied = bytes[from.min(end)..end].to_vec();
                bytes.splice(at..at, copied);
            }
            _ => bytes.extend((0..numbers.below(50)).map(|n| n as u8)),
        }
    }
}

fn peak_kib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1);
    number.unwrap().parse().unwrap()
}

#[test]
fn mutated_logs_are_served_while_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let (seeds, mut numbers) = (seeds(), Numbers(45));
    // One that stays as it is, and has its numbers to the end.
    let good = folder.path().join("good.heaplog");
    fs::write(&good, server_log(1)).unwrap();
    for (file, seed) in seeds.iter().take(6).enumerate() {
        fs::write(folder.path().join(format!("{file}.heaplog")), seed).unwrap();
    }
    let mut server = Server::of(&[folder.path()]);
    server.until("/processes", "5.heaplog");
    let mut statuses = std::collections::BTreeMap::new();
    for round in 0..60 {
        for file in 0..6 {
            let path = folder.path().join(format!("{file}.heaplog"));
            let mut bytes = seeds[numbers.below(seeds.len())].clone();
            mutate(&mut bytes, &mut numbers);
            match numbers.below(4) {
                // Replaced, as a rotation does.
                0 => {
                    let beside = folder.path().join("beside");
                    fs::write(&beside, &bytes).unwrap();
                    fs::rename(&beside, &path).unwrap();
                }
                // Appended to what is there.
                1 => {
                    let mut all = fs::read(&path).unwrap_or_default();
                    all.truncate(1 << 16);
                    all.extend(&bytes);
                    fs::write(&path, &all).unwrap();
                }
                2 => drop(fs::remove_file(&path)),
                _ => fs::write(&path, &bytes).unwrap(),
            }
        }
        let listed: serde_json::Value =
            serde_json::from_str(&server.get("/processes").1).expect("JSON");
        for it in listed["processes"].as_array().unwrap() {
            let id = it["id"].as_str().unwrap();
            let of = match (round + it["pid"].as_u64().unwrap() as usize) % 6 {
                0 => "/debug/pprof/allocs",
                1 => "/debug/pprof/heap?debug=1",
                2 => "/debug/pprof/symbol?0x1101+0x9010",
                3 => "/debug/pprof/cmdline",
                4 => "/metrics",
                _ => "/debug/pprof/heap",
            };
            let mark = if of.contains('?') { '&' } else { '?' };
            let (status, _) = server.ask("GET", &format!("{of}{mark}log={id}"), "");
            *statuses.entry(status).or_insert(0) += 1;
        }
        assert_eq!(server.child.try_wait().unwrap(), None, "round {round}");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each is answered: with what can be read, or with the reason.
    assert!(
        statuses
            .keys()
            .all(|status| [200, 404, 503].contains(status)),
        "{statuses:?}"
    );
    assert!(statuses[&200] > 100 && statuses.len() > 1, "{statuses:?}");
    let id = |log: &str| {
        let listed: serde_json::Value = serde_json::from_str(&server.get("/processes").1).unwrap();
        let all = listed["processes"].as_array().unwrap().clone();
        let found = all.into_iter().find(|it| it["log"] == log).unwrap();
        found["id"].as_str().unwrap().to_owned()
    };
    let heap = server.pprof(&format!("/debug/pprof/heap?log={}", id("good.heaplog")));
    assert_eq!(sums(&heap), [16, 8_391_976, 5, 8_390_736]);
    assert!(peak_kib(&server) < 200 << 10, "{} KiB", peak_kib(&server));
}

/// A log of frames of such records, without an end.
fn endless(pid: u32, count: u32, record: impl Fn(u32) -> Record) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.record(&Record::Start(Start {
        program: format!("/bin/endless{pid}"),
        pid,
        interval: 1,
        ..Start::default()
    }));
    let mut bytes = FILE_HEADER.to_vec();
    for number in 1..=count {
        encoder.record(&record(number));
        if number % 1000 == 0 {
            bytes.extend_from_slice(encoder.finish());
        }
    }
    bytes.extend_from_slice(encoder.finish());
    bytes
}

#[test]
fn endless_logs_take_bounded_memory_and_say_what_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(folder.path().join(name), bytes).unwrap();
    write(
        "stacks.heaplog",
        endless(1001, 300_000, |number| {
            Record::Stack(Stack {
                number,
                frames: (0..20).map(|n| u64::from(number) * 64 + n).collect(),
                interrupted: Vec::new(),
                end: WalkEnd::Root,
                labels: Vec::new(),
            })
        }),
    );
    write(
        "names.heaplog",
        endless(1002, 20_000, |number| {
            Record::Thread(Thread {
                number,
                tid: number,
                name: "n".repeat(2000),
            })
        }),
    );
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/good", 1003, 1_767_225_600_000_000_000);
    let stack = log.stack(&[0x1]);
    log.alloc(stack, 5);
    write("good.heaplog", log.current_bytes());

    let most = 96u64 << 20;
    let server = Server::with(
        &[folder.path()],
        &["--listen", "127.0.0.1:0", "--max-memory", "96MiB"],
    );
    let metrics = server.until("/metrics", "heapprof_serve_running 3");
    let left_out = |log: &str| -> f64 {
        let line = metrics.lines().find(|line| {
            line.starts_with("heapprof_left_out_records_total{") && line.contains(log)
        });
        let line = line.unwrap_or_else(|| panic!("{log} in {metrics}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(left_out("stacks.heaplog") > 100_000.0);
    assert!(left_out("names.heaplog") > 10_000.0);
    assert_eq!(left_out("good.heaplog"), 0.0);
    assert_eq!(
        sums(&server.pprof("/debug/pprof/heap?pid=1003")),
        [1, 5, 1, 5]
    );
    let evil = server.pprof("/debug/pprof/heap?pid=1001");
    let says = |text: &String| text.starts_with("left out: ");
    assert!(
        evil.string_table.iter().any(says),
        "{:?}",
        evil.string_table
    );
    assert!(peak_kib(&server) << 10 < most, "{} KiB", peak_kib(&server));
}
