//! The past in a log, besides the four numbers: peaks, temporary blocks, heaptime, slack, growth.

use crate::common::history::{MS, S, STACKS, US, json, ok, own, play, server_file, steps};
use crate::common::{LogBuilder, heapprof, stderr, stdout};
use heapprof_symbolizer::Temporary;
use heapprof_symbolizer::{ReadRequest, profile_of_view};
use proptest::prelude::*;

proptest! {
    #[test]
    fn the_past_of_any_history(steps in steps()) {
        const WITHIN: u64 = 10 * MS;
        let (log, truth) = play(&steps);
        let pasts = Some(Temporary::within(WITHIN));
        let request = ReadRequest { pasts, ..ReadRequest::default() };
        let profile = profile_of_view(&log, &request, |_| {}).unwrap();
        prop_assert_eq!(profile.pasts.len(), profile.rows.len());
        let peak_record = truth.peak_record();
        for stack in 0..STACKS {
            // peak objects, bytes; temporary objects, bytes; slack; block-µs, byte-µs
            let mut seen = [0u64; 7];
            for (row, past) in profile.rows.iter().zip(&profile.pasts) {
                if row.stack == stack {
                    let heaptime = &past.heaptime;
                    let add = [
                        past.peak.objects(), past.peak.bytes(),
                        past.temporary.objects(), past.temporary.bytes(),
                        past.slack.bytes(),
                        (heaptime.object_seconds() * 1e6).round() as u64,
                        (heaptime.byte_seconds() * 1e6).round() as u64,
                    ];
                    for (sum, n) in seen.iter_mut().zip(add) { *sum += n; }
                }
            }
            let mut expected = [0u64; 7];
            for b in truth.blocks.iter().filter(|b| b.stack == stack) {
                let lived = (b.went.map_or(truth.end, |w| w.0) - b.came.0) / US;
                let at_peak = u64::from(b.came.1 <= peak_record && b.went.is_none_or(|w| w.1 > peak_record));
                let temporary = u64::from(b.went.is_some_and(|w| w.0 - b.came.0 <= WITHIN));
                let live = u64::from(b.went.is_none());
                let add = [at_peak, at_peak * b.size, temporary, temporary * b.size, live * b.slack, lived, lived * b.size];
                for (sum, n) in expected.iter_mut().zip(add) { *sum += n; }
            }
            prop_assert_eq!(seen, expected, "stack {}", stack);
            let died = truth.blocks.iter().filter(|b| b.stack == stack && b.went.is_some()).count() as u64;
            let lifetimes = profile.lifetimes.get(stack as usize);
            prop_assert_eq!(lifetimes.map_or(0, |l| l.died_samples()), died);
        }
    }
}

#[test]
fn top_shows_what_the_past_tells() {
    let (_folder, file, _) = server_file(1);
    assert_eq!(own(&file, "peak"), [1_000_001.0, 100_000.0, 50_000.0]);
    assert_eq!(own(&file, "temporary"), [3_000_001.0]);
    assert_eq!(own(&file, "temporary-objects"), [3.0]);
    assert_eq!(own(&file, "slack"), [2400.0, 60.0]);
    // 100,000 bytes for 10 s; 50,000 for 3 s; 500 for 5 + 4 + 3 + 2 + 1 s; the spikes for 1 ms
    // each.
    assert_eq!(
        own(&file, "heaptime"),
        [1_000_000.0, 150_000.0, 7500.0, 3000.001]
    );
    assert_eq!(own(&file, "heaptime-objects")[..3], [1000.0, 30.0, 15.0]);
    let lifetime = ok(&["top", &file, "--metric", "lifetime"]);
    assert!(lifetime.contains("outlives"), "{lifetime}");
    let of_requests = lifetime
        .lines()
        .find(|l| l.contains("3.00 s"))
        .expect("a mean of 3 s");
    assert!(
        of_requests.split_whitespace().any(|word| word == "10"),
        "{lifetime}"
    );
    let none = ok(&["top", &file, "--metric", "temporary", "--within", "500us"]);
    assert!(none.contains("nothing: temporary is 0"), "{none}");
}

/// JSON and CSV have the lifetimes of the table. A number that is no sum has no total there.
#[test]
fn lifetimes_say_on_what_they_rest_in_every_form() {
    let (_folder, file, _) = server_file(1);
    let document: serde_json::Value =
        serde_json::from_str(&ok(&["top", &file, "-m", "lifetime", "--json", "-n", "0"])).unwrap();
    assert!(document["total"].is_null() && document["total_error"].is_null());
    let sites = document["sites"].as_array().unwrap();
    // Ten requests of 5,000 bytes, all freed after 3 s.
    let requests = sites
        .iter()
        .find(|site| {
            site["lifetime_mean_s"]
                .as_f64()
                .is_some_and(|s| (s - 3.0).abs() < 1e-9)
        })
        .expect("a mean of 3 s");
    assert_eq!(
        [
            &requests["samples"],
            &requests["freed_samples"],
            &requests["live_samples"]
        ],
        [10, 10, 0]
    );
    let most = requests["lifetime_90_percent_s"].as_f64().unwrap();
    assert!((2.7..3.3).contains(&most), "{most}");
    for key in ["self", "self_error", "cumulative", "cumulative_error"] {
        assert!(requests[key].is_null(), "{key}");
    }
    let csv = ok(&["top", &file, "-m", "lifetime", "--csv"]);
    let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    let line = csv.lines().find(|line| line.contains(",3,10,")).unwrap();
    let cells: Vec<&str> = line.split(',').collect();
    let cell = |name: &str| cells[header.iter().position(|column| *column == name).unwrap()];
    assert_eq!(
        (cell("samples"), cell("freed-samples"), cell("live-samples")),
        ("10", "10", "0")
    );
    assert_eq!(
        (cell("self-lifetime"), cell("cumulative-lifetime")),
        ("", "")
    );
    assert!(!cell("lifetime-90-percent-s").is_empty());
}

#[test]
fn pprof_has_the_four_first_and_then_the_past() {
    use heapprof_symbolizer::export::pprof::proto;
    use prost::Message;
    use std::io::Read;
    let (folder, file, _) = server_file(1);
    let out = folder.path().join("x.pb.gz");
    ok(&["export", &file, "-f", "pprof", "-o", out.to_str().unwrap()]);
    let bytes = std::fs::read(&out).unwrap();
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(&bytes[..])
        .read_to_end(&mut raw)
        .unwrap();
    let message = proto::Profile::decode(&raw[..]).unwrap();
    let text = |index: i64| message.string_table[index as usize].as_str();
    let types: Vec<&str> = message.sample_type.iter().map(|t| text(t.r#type)).collect();
    assert_eq!(
        types,
        [
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space",
            "peak_objects",
            "peak_space",
            "temporary_objects",
            "temporary_space",
            "heaptime_objects",
            "heaptime_space",
            "slack_space",
            "growth_objects",
            "growth_space"
        ]
    );
    assert_eq!(text(message.default_sample_type), "inuse_space");
    let sum = |i: usize| message.sample.iter().map(|s| s.value[i]).sum::<i64>();
    assert!(message.sample.iter().all(|s| s.value.len() == types.len()));
    assert_eq!((sum(4), sum(5)), (111, 1_150_001));
    assert_eq!(sum(9), 1_160_500);
    if std::process::Command::new("go")
        .arg("version")
        .output()
        .is_ok()
    {
        let shown = std::process::Command::new("go")
            .args(["tool", "pprof", "-top", "-sample_index=heaptime_space"])
            .arg(&out)
            .output()
            .unwrap();
        let shown = stdout(&shown);
        assert!(shown.contains("Type: heaptime_space"), "{shown}");
        assert!(shown.contains("1160500"), "{shown}");
    }
}

/// Ten seconds in which stack 3 leaks 500 bytes a second from the fifth on, and stack 1 gives back.
#[test]
fn growth_is_a_slope_with_its_error() {
    let (_folder, file, truth) = server_file(1);
    // By definition: the slope of the least-squares line through the curve, in steps of a
    // millisecond.
    let slope = |stack: u32, from: u64, to: u64| {
        let middle = (from + to) as f64 / 2e9;
        let (mut above, mut below) = (0.0, 0.0);
        for t in (from..to).step_by(MS as usize) {
            let in_use = truth.at(t).get(&stack).map_or(0, |four| four[1]) as f64;
            let off = (t + MS / 2) as f64 / 1e9 - middle;
            above += off * in_use;
            below += off * off;
        }
        above / below
    };
    let grown = own(&file, "growth");
    let mut expected: Vec<f64> = (1..STACKS).map(|stack| slope(stack, 0, 10 * S)).collect();
    expected.sort_by(|a, b| b.total_cmp(a));
    // Stack 0 was there at the very start: no growth, not listed.
    for (grown, expected) in grown.iter().zip(&expected) {
        assert!(
            (grown - expected).abs() < 2.0 + 1e-3 * expected.abs(),
            "{grown} {expected}"
        );
    }
    assert_eq!(grown.len(), 3);
    let window = json(&[
        "top", &file, "--json", "-m", "growth", "--from", "5s", "--to", "9s",
    ]);
    let sites = window["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 1, "only the leak: {window}");
    let leak = sites[0]["self"].as_f64().unwrap();
    assert!((leak - slope(3, 5 * S, 9 * S)).abs() < 2.0, "{leak}");
    assert_eq!(window["unit"], "bytes/second");
    // A block that comes before the window and goes in it makes the heap shrink.
    let window = json(&[
        "top", &file, "--json", "-m", "growth", "--from", "3s", "--to", "4500ms",
    ]);
    let sites = window["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 1, "only the requests: {window}");
    let gone = sites[0]["self"].as_f64().unwrap();
    let expected = slope(1, 3 * S, 4500 * MS);
    assert!(
        expected < 0.0 && (gone - expected).abs() < 2e-3 * expected.abs(),
        "{gone} {expected}"
    );
    let text = ok(&["top", &file, "-m", "growth"]);
    assert!(text.contains("exact") && text.contains('-'), "{text}");
    // Sampled: 5 small blocks of the leak make no growth that is sure.
    let (_folder, file, _) = server_file(4096);
    let text = ok(&["top", &file, "-m", "growth"]);
    assert!(text.contains("noise") && text.contains("± "), "{text}");
}

/// An hour in which one site allocates all at the start, and another one leaks. Both slopes are
/// more than noise, and only the second one matters.
#[test]
fn a_growth_that_is_real_is_of_a_size_that_matters() {
    for (interval, leaks) in [(4096, "real"), (1, "exact")] {
        let mut log = LogBuilder::new(interval);
        log.module("/bin/server", 0x1000, 0x1000);
        let (early, leak) = (
            log.stack(&[0x1010, 0x1100, 0x1020]),
            log.stack(&[0x1010, 0x1200, 0x1020]),
        );
        for _ in 0..300 {
            log.alloc(early, 1000);
        }
        for _ in 0..300 {
            log.wait(12 * S);
            log.alloc(leak, 100);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.heaplog");
        std::fs::write(&file, log.end()).unwrap();
        let file = file.to_str().unwrap();
        let verdicts = |text: &str| {
            let words = text.split_whitespace();
            let verdicts = words.filter(|it| ["real", "small", "noise", "exact"].contains(it));
            verdicts.map(str::to_owned).collect::<Vec<_>>()
        };
        let text = ok(&["top", file, "-m", "growth"]);
        let table = text.split("growth: ").nth(1).unwrap();
        let (lines, said) = table.split_once("small: less than 1 %").unwrap();
        let lines =
            lines.trim_end_matches("  real: more than 3 standard errors from no growth at all; ");
        assert_eq!(verdicts(lines), [leaks, "small"], "{text}");
        assert!(said.contains("0.1 % of what all have in use"), "{text}");
        let text = ok(&["tree", file, "-m", "growth", "--min", "0"]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.iter().any(|line| verdicts(line) == ["small"]),
            "{text}"
        );
        assert!(lines.iter().any(|line| verdicts(line) == [leaks]), "{text}");
    }
}

/// An early burst has a slope downwards, and does not shrink any more.
#[test]
fn a_burst_that_is_over_is_past() {
    for (interval, leaks) in [(4096, "real"), (1, "exact")] {
        let mut log = LogBuilder::new(interval);
        log.module("/bin/server", 0x1000, 0x1000);
        let sites = [0x1100, 0x1200].map(|frame| log.stack(&[0x1010, frame, 0x1020]));
        let mut burst = Vec::new();
        for second in 0..100 {
            log.wait(S);
            log.alloc(sites[0], 3000);
            match second {
                10 => burst.extend((0..200).map(|_| log.alloc(sites[1], 1000))),
                20 => burst.drain(..).for_each(|block| log.free(block)),
                _ => {}
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.heaplog");
        std::fs::write(&file, log.end()).unwrap();
        let file = file.to_str().unwrap();
        let text = ok(&["top", file, "-m", "growth", "--width", "0"]);
        let of = |site: &str| text.lines().find(|line| line.contains(site));
        assert!(
            of("+0xff]").is_some_and(|line| line.contains(leaks)),
            "{text}"
        );
        assert!(
            of("+0x1ff]").is_some_and(|line| line.contains("past")),
            "{text}"
        );
    }
}

/// A burst at the very end is no growth over the run, and neither is one on a table.
#[test]
fn a_burst_at_the_end_is_late() {
    for (interval, leaks) in [(4096, "real"), (1, "exact")] {
        let mut log = LogBuilder::new(interval);
        log.module("/bin/server", 0x1000, 0x1000);
        let sites = [0x1100, 0x1200, 0x1300].map(|frame| log.stack(&[0x1010, frame, 0x1020]));
        for _ in 0..150 {
            log.alloc(sites[2], 2000);
        }
        for second in 0..100 {
            log.wait(S);
            log.alloc(sites[0], 3000);
            if second == 96 {
                (0..200).for_each(|_| _ = log.alloc(sites[1], 1000));
                (0..500).for_each(|_| _ = log.alloc(sites[2], 1999));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.heaplog");
        std::fs::write(&file, log.end()).unwrap();
        let file = file.to_str().unwrap();
        let text = ok(&["top", file, "-m", "growth", "--width", "0"]);
        for (site, verdict) in [("+0xff]", leaks), ("+0x1ff]", "late"), ("+0x2ff]", "late")] {
            let line = text.lines().find(|line| line.contains(site));
            assert!(line.is_some_and(|line| line.contains(verdict)), "{text}");
        }
        assert!(text.contains("late: came near the end"), "{text}");
    }
}

/// `top` adds up by site, and `tree` by path. The whole is the same, and each node is the sum of
/// its own part and its children.
#[test]
fn trees_show_what_the_past_tells() {
    let (_folder, file, _) = server_file(1);
    for metric in [
        "peak",
        "peak-objects",
        "temporary",
        "temporary-objects",
        "heaptime",
        "heaptime-objects",
        "slack",
        "growth",
        "growth-objects",
    ] {
        let document = json(&["tree", &file, "--json", "-m", metric]);
        let top = json(&["top", &file, "--json", "-m", metric, "-n", "0"]);
        assert_eq!(document["metric"], metric);
        assert_eq!(document["unit"], top["unit"]);
        let total = document["tree"]["amount"]["total"].as_f64().unwrap();
        let expected = top["total"].as_f64().unwrap();
        assert!(
            (total - expected).abs() <= 1e-9 * expected.abs(),
            "{metric}: {total} {expected}"
        );
        let mut nodes = vec![&document["tree"]];
        let mut leaves = 0;
        while let Some(node) = nodes.pop() {
            let children = node["children"].as_array().unwrap();
            let amounts = children.iter().map(|child| &child["amount"]);
            let below: f64 = amounts
                .clone()
                .map(|amount| amount["total"].as_f64().unwrap())
                .sum();
            let own = node["amount"]["self"].as_f64().unwrap();
            let total = node["amount"]["total"].as_f64().unwrap();
            assert!((own + below - total).abs() < 1e-6, "{metric}: {node}");
            let largest_first = amounts.map(|amount| amount["total"].as_f64().unwrap());
            assert!(largest_first.is_sorted_by(|a, b| a >= b), "{metric}");
            leaves += usize::from(children.is_empty());
            nodes.extend(children);
        }
        assert!(leaves >= STACKS as usize, "{metric}: {leaves}");
    }
    // The three spikes, and nothing else.
    let text = ok(&["tree", &file, "-m", "temporary", "--min", "0"]);
    let lines: Vec<&str> = text.lines().skip_while(|l| !l.is_empty()).collect();
    assert_eq!(lines[1], "temporary: 2.9 MiB", "{text}");
    assert!(lines[2..].iter().all(|l| l.contains("100.0%")), "{text}");
    let text = ok(&["tree", &file, "-m", "temporary", "--within", "500us"]);
    assert!(text.contains("nothing: temporary is 0"), "{text}");
    // Growth and shrinkage: verdicts in place of shares, and shrinkage is counted.
    let text = ok(&["tree", &file, "-m", "growth"]);
    assert!(text.contains(" exact  ") && !text.contains('%'), "{text}");
    let text = ok(&[
        "tree", &file, "-m", "growth", "--from", "3s", "--to", "4500ms",
    ]);
    assert!(text.contains("nothing: nothing grew"), "{text}");
    let text = ok(&["tree", &file, "-m", "growth", "--from", "3s", "--to", "9s"]);
    assert!(
        text.contains("1 smaller or shrinking, together -"),
        "{text}"
    );
}

#[test]
fn every_metric_of_the_past_is_exported_where_there_is_a_place_for_it() {
    let (folder, file, _) = server_file(1);
    let export = |format: &str, metric: &str| ok(&["export", &file, "-f", format, "-m", metric]);
    let folded = |metric: &str| -> u64 {
        let text = export("folded", metric);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    };
    for (metric, sum) in [
        ("peak", 1_150_001),
        ("peak-objects", 111),
        ("temporary", 3_000_001),
        ("temporary-objects", 3),
        ("heaptime", 1_160_500),
        // In milliseconds: 100 × 10 s, 10 × 3 s, 5 + 4 + 3 + 2 + 1 s, 3 × 1 ms.
        ("heaptime-objects", 1_045_003),
        ("slack", 2460),
    ] {
        assert_eq!(folded(metric), sum, "{metric}");
        assert!(export("flamegraph", metric).contains("</svg>"));
        let json: serde_json::Value = serde_json::from_str(&export("speedscope", metric)).unwrap();
        assert_eq!(json["profiles"][0]["name"], metric);
        assert_eq!(json["profiles"][0]["endValue"], sum);
        let csv = export("csv", metric);
        let header = csv.lines().next().unwrap();
        assert!(
            header.ends_with(&format!(",{metric},{metric}-error")),
            "{header}"
        );
        let column = csv
            .lines()
            .skip(1)
            .map(|line| line.rsplit(',').nth(1).unwrap());
        let total: f64 = column.map(|number| number.parse::<f64>().unwrap()).sum();
        let scale = if metric == "heaptime-objects" {
            1000.0
        } else {
            1.0
        };
        assert!((total * scale - sum as f64).abs() < 1.0, "{metric} {total}");
        assert!(export("callgrind", metric).contains("events: Bytes Objects"));
    }
    let json: serde_json::Value = serde_json::from_str(&export("json", "peak")).unwrap();
    assert_eq!(json["past"]["peak"]["value"], 1_150_001.0);
    assert_eq!(json["past"]["heaptime"]["unit"], "byte-seconds");
    let rows = json["rows"].as_array().unwrap().iter();
    let slack: f64 = rows
        .map(|row| row["past"]["slack"]["value"].as_f64().unwrap())
        .sum();
    assert_eq!(slack, 2460.0);
    let out = heapprof(&["export", &file, "-f", "gperftools", "-m", "heaptime"]);
    assert!(
        stderr(&out).contains("gperftools has no place for heaptime"),
        "{}",
        stderr(&out)
    );
    let dump = folder.path().join("d.heap");
    std::fs::write(&dump, ok(&["export", &file, "-f", "gperftools"])).unwrap();
    let out = heapprof(&[
        "export",
        dump.to_str().unwrap(),
        "-f",
        "folded",
        "-m",
        "heaptime",
    ]);
    assert!(
        stderr(&out).contains("a dump holds the heap at one moment"),
        "{}",
        stderr(&out)
    );
}
