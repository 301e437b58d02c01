//! The coarse history of a log that rotated: what is shown of it, what is left out, and its bytes.

use std::path::{Path, PathBuf};

use crate::common::encoded::{alloc, start};
use crate::common::history::{folder, json, ok};
use crate::common::write;
use heapprof_core::{CoarseEntry, CoarseHistory, Estimate, LargestStacks, Weight};
use heapprof_format::{
    Checkpoint, CoarseMoment, Encoder, FILE_HEADER, MAX_FRAME_LEN, Record, Stack, Sums, WalkEnd,
};
use heapprof_symbolizer::profile_of_log;

const MB: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * S;

fn moment(time_ns: u64, bytes: u64, largest: &[(u32, u64)]) -> CoarseMoment {
    CoarseMoment {
        time_ns,
        bytes,
        bytes_error: 0,
        objects: bytes / MB,
        highest: bytes.saturating_add(MB),
        resident: bytes.saturating_mul(2),
        largest: largest.to_vec(),
    }
}

/// A log that has detail from the fifth hour on, with 50 blocks of a megabyte in use then, and one
/// more an hour later. Two stacks, of two functions.
fn rotated(moments: &[CoarseMoment]) -> Vec<u8> {
    with_late(moments, &[])
}

/// The same log, with moments behind its checkpoint.
fn with_late(moments: &[CoarseMoment], late: &[CoarseMoment]) -> Vec<u8> {
    of_process(31, moments, late)
}

fn of_process(pid: u32, moments: &[CoarseMoment], late: &[CoarseMoment]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    start(&mut encoder, pid, S, vec![]);
    let mut bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 9,
        time_ns: 300 * MINUTE,
        peak_ns: 299 * MINUTE,
        peak_bytes: i128::from(51 * MB) << 32,
        intervals: (1, 1),
        requested: Sums::default(),
        ..Checkpoint::default()
    }));
    for number in 0..2 {
        encoder.record(&Record::Stack(Stack {
            number,
            end: WalkEnd::Root,
            frames: vec![0x10, 0x1001 + 0x100 * u64::from(number)],
            interrupted: vec![],
            labels: vec![("tenant".into(), format!("t{number}"))],
        }));
    }
    for it in moments {
        encoder.record(&Record::CoarseMoment(it.clone()));
    }
    bytes.extend_from_slice(encoder.finish());
    for id in 1..=50 {
        alloc(&mut encoder, 4 * MINUTE, id, MB);
    }
    encoder.record(&Record::CheckpointEnd {
        time_ns: 300 * MINUTE,
    });
    for it in late {
        encoder.record(&Record::CoarseMoment(it.clone()));
    }
    alloc(&mut encoder, 360 * MINUTE, 51, MB);
    bytes.extend_from_slice(encoder.finish());
    bytes
}

/// A log with a moment an hour, in a folder.
pub(crate) fn log(folder: &Path) -> PathBuf {
    let moments: Vec<CoarseMoment> = (1..=5)
        .map(|hour| {
            // The second stack is known at first only.
            let second: &[(u32, u64)] = if hour < 3 { &[(1, 2 * MB)] } else { &[] };
            let first = [(0, hour * 8 * MB)];
            moment(
                hour * 60 * MINUTE,
                hour * 10 * MB,
                &[&first, second].concat(),
            )
        })
        .collect();
    write(folder, "coarse.heaplog", &rotated(&moments))
}

#[test]
fn timeline_marks_the_time_before_detail_as_coarse() {
    let folder = folder();
    let log = log(folder.path()).display().to_string();
    let text = ok(&["timeline", &log, "--steps", "10", "--width", "100"]);
    let (coarse, detail) = text
        .split_once("in detail, since then:")
        .expect("both parts");
    let head = "coarse, from before the log's oldest kept segment: moments 60 min apart";
    assert!(coarse.starts_with(head), "{coarse}");
    assert!(coarse.contains("up to 48.6 MiB"), "{coarse}");
    let row = "  3600.000 s: 9.5 MiB in use, up to 10.5 MiB before, 19.1 MiB resident; at least: ";
    assert!(coarse.contains(row), "{coarse}");
    let resident = coarse.lines().find(|line| line.starts_with("resident"));
    assert!(
        resident.is_some_and(|line| line.contains("up to 95.4 MiB")),
        "{coarse}"
    );
    assert!(detail.contains("18000.000 s"), "{detail}");
    for width in ["60", "100"] {
        let text = ok(&["timeline", &log, "--width", width]);
        let coarse = text
            .lines()
            .take_while(|line| !line.starts_with("in detail"));
        let widest = coarse.map(|line| line.chars().count()).max();
        assert!(widest <= width.parse().ok(), "{text}");
    }

    let page = folder.path().join("page.html").display().to_string();
    ok(&["report", &log, "-o", &page]);
    let page = std::fs::read_to_string(page).expect("a page");
    let data = page
        .split_once(r#"type="application/json">"#)
        .expect("data")
        .1;
    let data = data.split_once("</script>").expect("its end").0;
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let shown = data["coarse"].as_array().expect("moments");
    assert_eq!((shown.len(), &data["from_s"]), (5, &18000.0.into()));
    assert_eq!(shown[1]["time_s"], 7200.0);
    assert_eq!(
        (&shown[1]["bytes"], &shown[1]["highest"]),
        (&20e6.into(), &21e6.into())
    );
    assert_eq!(shown[1]["resident"], 40_000_000);
    assert_eq!(shown[1]["sites"].as_array().map(Vec::len), Some(2));
    let notes = data["notes"].to_string();
    assert!(
        notes.contains("of the time before, `timeline`, "),
        "{notes}"
    );

    let document = json(&["timeline", &log, "--json"]);
    let coarse = &document["coarse"];
    assert_eq!(coarse["until_ns"], 300 * MINUTE);
    let moments = coarse["moments"].as_array().expect("moments");
    let sites = |hour: usize| {
        moments[hour - 1]["largest"]
            .as_array()
            .expect("sites")
            .len()
    };
    assert_eq!((moments.len(), sites(2), sites(3)), (5, 2, 1));
    assert_eq!(moments[1]["highest_in_use_bytes"], 21e6);
    assert_eq!(moments[1]["largest"][1]["least_in_use_bytes"], 2e6);
    // By group or by site, the curves in detail are what they are without.
    assert_eq!(document["steps"].as_array().map(Vec::len), Some(200));
}

#[test]
fn tables_and_pictures_of_the_timeline_begin_with_coarse_moments() {
    let folder = folder();
    let log = log(folder.path()).display().to_string();
    let csv = ok(&["timeline", &log, "--csv", "--steps", "2", "--top", "1"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].ends_with(",coarse"), "{csv}");
    let columns = lines[0].split(',').count();
    assert!(
        lines.iter().all(|line| line.split(',').count() == columns),
        "{csv}"
    );
    assert_eq!(
        lines[2], "7200.000000,20000000,0,21000000,,,,40000000,1",
        "{csv}"
    );
    assert_eq!(lines.len(), 1 + 5 + 2);
    let marks = lines[1..]
        .iter()
        .filter_map(|line| line.split(',').next_back());
    assert_eq!(marks.collect::<String>(), "1111100");

    let svg = ok(&["timeline", &log, "--svg", "--steps", "2"]);
    let marked = svg.matches("coarse: the highest between moments").count();
    assert_eq!(marked, 2, "{svg}");
    let curve = svg
        .split_once("<path class=\"coarse\" d=\"")
        .expect("a curve")
        .1;
    let curve = curve.split_once('"').expect("its end").0;
    // The whole run is 6 hours, from 100 to 940; detail begins with the fifth.
    assert!(
        curve.starts_with("M100.0 ") && curve.ends_with("H800.0"),
        "{curve}"
    );
    assert_eq!(curve.matches('V').count(), 5);
    assert!(svg.contains(">0 h</text>"), "{svg}");
    // Without a coarse history, all is detail.
    let whole = write(folder.path(), "whole.heaplog", &rotated(&[]));
    let whole = whole.display().to_string();
    let csv = ok(&["timeline", &whole, "--csv", "--steps", "2"]);
    assert!(
        csv.lines().skip(1).all(|line| line.ends_with(",0")),
        "{csv}"
    );
    assert!(!ok(&["timeline", &whole, "--svg"]).contains("coarse"));
}

#[test]
fn info_says_from_when_on_there_is_detail_and_from_when_on_moments() {
    let folder = folder();
    let log = log(folder.path()).display().to_string();
    let document = json(&["info", "--json", &log]);
    let history = &document["run"]["coarse_history"];
    assert_eq!(history["moments"], 5);
    assert_eq!(
        (&history["since_ns"], &history["until_ns"]),
        (&(60 * MINUTE).into(), &(300 * MINUTE).into())
    );
    let whole = write(folder.path(), "whole.heaplog", &rotated(&[]));
    let whole = whole.display().to_string();
    let document = json(&["info", "--json", &whole]);
    assert!(document["run"]["coarse_history"].is_null());
    let said = |log: &str| ok(&["info", log, "--width", "300"]);
    let text = said(&log);
    assert!(
        text.contains("every moment from 18000.000 s on\n"),
        "{text}"
    );
    assert!(
        text.contains("5 moments from 3600.000 s on: of the time before"),
        "{text}"
    );
    let text = said(&whole);
    assert!(text.contains("nothing before that"), "{text}");
}

/// Joins the log with a moment an hour with that of another process, which has these moments.
fn join_with(moments: &[CoarseMoment], folder: &Path) -> String {
    let first = log(folder).display().to_string();
    let other = write(folder, "other.heaplog", &of_process(32, moments, &[]));
    let joined = folder.join("joined.heaplog").display().to_string();
    ok(&["join", "-o", &joined, &first, &other.display().to_string()]);
    joined
}

#[test]
fn joined_logs_have_one_history() {
    let folder = folder();
    let moments = [
        CoarseMoment {
            bytes_error: 3000,
            ..moment(90 * MINUTE, 5 * MB, &[(1, MB), (0, 4 * MB)])
        },
        moment(300 * MINUTE, 50 * MB, &[]),
    ];
    let joined = join_with(&moments, folder.path());
    let document = json(&["timeline", "--json", &joined]);
    let coarse = &document["coarse"];
    assert_eq!(coarse["joined"], true);
    let moments = coarse["moments"].as_array().expect("moments").iter();
    let rows = moments.map(|it| {
        let number = |key: &str| it[key].as_f64().expect("a number");
        let minute = number("time_ns") / MINUTE as f64;
        let highest = number("highest_in_use_bytes") / 1e6;
        (
            minute,
            number("in_use_bytes") / 1e6,
            highest,
            number("in_use_error"),
        )
    });
    let expected = [
        // The other process is known by the most up to its first moment alone.
        (60.0, 10.0, 11.0 + 6.0, 0.0),
        (90.0, 10.0 + 5.0, 21.0 + 6.0, 3000.0),
        (120.0, 20.0 + 5.0, 21.0 + 51.0, 3000.0),
        (180.0, 30.0 + 5.0, 31.0 + 51.0, 3000.0),
        (240.0, 40.0 + 5.0, 41.0 + 51.0, 3000.0),
        // Both have detail.
        (300.0, 50.0 + 50.0, 51.0 + 51.0, 0.0),
    ];
    assert_eq!(rows.collect::<Vec<_>>(), expected);
    let largest = &coarse["moments"][2]["largest"];
    let bytes = [0, 1, 2, 3].map(|n| largest[n]["least_in_use_bytes"].as_f64());
    assert_eq!(bytes, [16e6, 4e6, 2e6, 1e6].map(Some));
    let text = ok(&["timeline", &joined, "--width", "100"]);
    let head = "coarse, from before all logs have detail: moments 30 min to 60 min apart\n";
    assert!(text.starts_with(head), "{text}");
    let row = "  5400.000 s: 14.3 MiB ± 5.7 KiB in use, at most 25.7 MiB before; at least: ";
    assert!(text.contains(row), "{text}");
    let text = ok(&["info", &joined, "--width", "300"]);
    let words = "6 moments from 3600.000 s on: of the time before, `timeline`, `top -m growth` and";
    assert!(text.contains(words), "{text}");
    let growth = json(&["top", "-m", "growth", "--json", &joined]);
    assert_eq!(growth["coarse"]["before_bytes"], 10e6);
    let svg = ok(&["timeline", "--svg", &joined]);
    assert!(svg.contains("coarse: no more between moments"), "{svg}");
}

#[test]
fn a_log_without_a_history_leaves_the_joined_one_out() {
    let folder = folder();
    let joined = join_with(&[], folder.path());
    let text = ok(&["info", &joined, "--width", "300"]);
    let words = "a process's own log may show moments";
    assert!(text.contains(words), "{text}");
    let document = json(&["timeline", "--json", &joined]);
    assert!(document.get("coarse").is_none());
}

#[test]
fn growth_states_what_is_known_of_the_whole_run() {
    let folder = folder();
    let log = log(folder.path()).display().to_string();
    let document = json(&["top", "-m", "growth", "--json", &log]);
    let coarse = &document["coarse"];
    assert_eq!(coarse["since_ns"], 60 * MINUTE);
    assert_eq!(
        (&coarse["before_bytes"], &coarse["after_bytes"]),
        (&10e6.into(), &51e6.into())
    );
    assert_eq!(coarse["bytes_per_second"], 41e6 / (300.0 * 60.0));
    assert_eq!(coarse["most_error"], 0.0);
    let sites = coarse["sites"].as_array().expect("sites");
    assert_eq!(sites.len(), 2);
    assert_eq!(sites[0]["before_bytes"], 8e6);
    assert_eq!(sites[0]["after_bytes"], 51e6);
    // The other one has nothing left.
    assert_eq!(sites[1]["after_bytes"], 0.0);
    let text = ok(&["top", "-m", "growth", &log]);
    assert!(
        text.contains("9.5 MiB in use at 3600.000 s, 48.6 MiB at the end"),
        "{text}"
    );
    // Growth of blocks, and that of a part, are not known.
    let objects = json(&["top", "-m", "growth-objects", "--json", &log]);
    assert!(objects.get("coarse").is_none());
    let part = json(&[
        "top",
        "-m",
        "growth",
        "--json",
        "--where",
        "tenant=t0",
        &log,
    ]);
    assert!(part.get("coarse").is_none());
    let part = json(&["timeline", "--json", "--where", "tenant=t0", &log]);
    assert!(part.get("coarse").is_none());
}

#[test]
fn moments_that_make_no_sense_are_left_out() {
    let good = moment(
        60 * MINUTE,
        10 * MB,
        &[(0, MB), (7, MB), (u32::MAX, u64::MAX)],
    );
    let moments = [
        good.clone(),
        moment(60 * MINUTE, 1, &[]),  // as late as the one before
        moment(59 * MINUTE, 1, &[]),  // earlier
        moment(301 * MINUTE, 1, &[]), // of the time in detail
        moment(u64::MAX / 1000 * 1000, u64::MAX, &[(1, u64::MAX); 64]),
    ];
    let profile = profile_of_log(&rotated(&moments), |_| ()).expect("a log");
    let expected = CoarseMoment {
        largest: vec![(0, MB)],
        ..good.clone()
    };
    assert_eq!(profile.coarse, [expected]);
    // Numbers beyond all memory.
    let folder = folder();
    let huge = CoarseMoment {
        bytes: u64::MAX,
        bytes_error: u64::MAX,
        objects: u64::MAX,
        highest: u64::MAX,
        resident: u64::MAX,
        largest: vec![(0, u64::MAX), (1, u64::MAX)],
        ..good.clone()
    };
    let log = write(folder.path(), "huge.heaplog", &rotated(&[huge]));
    let log = log.display().to_string();
    ok(&["timeline", &log]);
    ok(&["top", "-m", "growth", &log]);
    // Outside of a checkpoint.
    let bytes = with_late(&[], &[good]);
    let profile = profile_of_log(&bytes, |_| ()).expect("a log");
    assert!(profile.coarse.is_empty());
}

/// A year of a large heap: as many bytes in each segment, and in memory.
#[test]
fn a_year_takes_less_than_210_kilobytes_of_each_segment() {
    let mut history = CoarseHistory::new(MINUTE, CoarseHistory::MOST);
    let mut encoder = Encoder::new();
    let mut longest = 0;
    let mut in_use = Estimate::default();
    for _ in 0..20_000 {
        in_use.add(&Weight::of(1 << 20, 512 << 10));
    }
    let minutes = 365 * 24 * 60;
    for minute in 1..=minutes {
        // Numbers of stacks up to 100,000, and gigabytes.
        let stack = |n: u32| {
            (
                n * 12_345 + minute as u32 % 7,
                (40 << 30) / u64::from(n + 1),
            )
        };
        let largest = LargestStacks::of((0..8).map(stack));
        history.resident(50 << 30);
        let entry = history.entry(minute * MINUTE + minute % 1_000_000, &in_use, largest);
        history.add(entry);
        if minute % 5_000 == 0 || minute == minutes {
            for it in history.entries() {
                encoder.record(&Record::CoarseMoment(written(it)));
            }
            longest = longest.max(encoder.finish().len());
        }
    }
    assert!((150_000..210_000).contains(&longest), "{longest} bytes");
    assert!(longest < MAX_FRAME_LEN);
    // The library reckons with so many bytes for a moment.
    assert!(longest <= CoarseHistory::MOST * 96, "{longest} bytes");
}

fn written(entry: &CoarseEntry) -> CoarseMoment {
    CoarseMoment {
        time_ns: entry.time_ns,
        bytes: entry.bytes,
        bytes_error: entry.bytes_error,
        objects: entry.objects,
        highest: entry.highest,
        resident: entry.resident,
        largest: entry.largest.iter().collect(),
    }
}
