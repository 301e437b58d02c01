//! A report's page, against a naive model: what its own script makes of the numbers in it, run in
//! node.

use std::path::Path;
use std::process::Command;

use crate::common::encoded::{alloc, free, stack, start};
use crate::common::history::{ByStack, History, MS, S, STACKS, folder, json, ok, server_file};
use crate::common::processes::{begin, load, put};
use crate::common::{LogBuilder, heapprof, stderr, write};
use heapprof_format::{Checkpoint, Encoder, FILE_HEADER, Record};
use heapprof_symbolizer::Bytes;
use serde_json::Value;

/// Returns the content of a page.
fn read(page: &Path) -> Value {
    searched(page, "")
}

/// Returns the content of a page, with the stacks that a text finds.
fn searched(page: &Path, text: &str) -> Value {
    read_by(page, &[text])
}

/// Returns the content of a page, with the stacks that a regular expression finds.
fn matched(page: &Path, pattern: &str) -> Value {
    read_by(page, &[pattern, "regex"])
}

fn read_by(page: &Path, words: &[&str]) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("node")
        .arg(root.join("tests/readers/report_numbers.js"))
        .arg(root.join("src/report/script"))
        .arg(page)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("node: {error}; run scripts/install-deps"));
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The page of a log, read.
pub(crate) fn report(log: &str, args: &[&str]) -> Value {
    let folder = folder();
    let page = folder.path().join("page.html");
    let out = ["report", log, "-o", page.to_str().unwrap()];
    ok(&[&out[..], args].concat());
    read(&page)
}

/// Returns the numbers of one moment by the stack of the name: blocks and bytes in use, and
/// allocated since the first moment.
fn by_stack(moment: &Value) -> ByStack {
    let groups = moment["groups"].as_array().unwrap().iter();
    let stack_of = |name: &str| {
        let mut stacks = 0..STACKS;
        stacks.find(|n| name.contains(&format!("{:x}", 0x1000 + 16 * n)))
    };
    let number = |value: &Value| value.as_f64().unwrap() as u64;
    let four = |group: &Value| {
        let (in_use, allocated) = (&group["in_use"], &group["allocated"]);
        [&in_use[0], &in_use[1], &allocated[0], &allocated[1]].map(number)
    };
    let known = groups.filter_map(|group| Some((stack_of(group["name"].as_str()?)?, four(group))));
    known.filter(|(_, four)| *four != [0; 4]).collect()
}

fn total(by: &ByStack, which: usize) -> f64 {
    by.values().map(|four| four[which] as f64).sum()
}

/// Steps of half a second.
const STEPS: usize = 20;

#[test]
fn the_page_has_the_heap_at_every_moment() {
    let (_folder, log, truth) = server_file(1);
    let said = report(&log, &["--steps", "20"]);
    let moments = said["moments"].as_array().unwrap();
    assert_eq!(
        moments.len(),
        1 + STEPS + 1 + 2,
        "the beginning, the steps, the peak, two other spikes"
    );
    assert_eq!(by_stack(&moments[0]), ByStack::new());
    for (step, moment) in moments[1..=STEPS].iter().enumerate() {
        let end = (step as u64 + 1) * S / 2;
        assert_eq!(moment["time"].as_f64().unwrap(), end as f64 / 1e9);
        assert_eq!(by_stack(moment), truth.at(end), "at {end}");
    }
    let peak = &moments[STEPS + 1];
    assert_eq!(by_stack(peak), truth.at_record(truth.peak_record()));
    assert_eq!(peak["time"], 2.01);
    for (moment, time) in moments[STEPS + 2..].iter().zip([2000, 2020]) {
        assert_eq!(moment["time"].as_f64(), Some(time as f64 / 1e3));
        assert_eq!(by_stack(moment), truth.at(time * MS), "at {time} ms");
    }
    let highest = total(&by_stack(peak), 1);
    assert_eq!(said["data"]["peak"]["bytes"], highest);
    let curve = said["curve"].as_array().unwrap();
    for (step, bytes) in curve.iter().take(STEPS + 1).enumerate() {
        let there = truth.at(step as u64 * S / 2);
        let there = if step == 0 { 0.0 } else { total(&there, 1) };
        assert_eq!(bytes.as_f64().unwrap(), there, "step {step}");
    }
}

#[test]
fn views_are_what_they_say() {
    let (_folder, log, truth) = server_file(1);
    let said = report(&log, &["--steps", "20"]);
    // From 5 s to the end: the requests are gone, the leak goes on.
    let (before, after) = (truth.at(5 * S), truth.at(10 * S));
    let view = |name: &str| said["views"][name].clone();
    let change = |sign: f64| -> f64 {
        let stacks = 0..STACKS;
        let of = |by: &ByStack, stack| by.get(&stack).map_or(0.0, |four: &[u64; 4]| four[1] as f64);
        stacks
            .map(|n| (sign * (of(&after, n) - of(&before, n))).max(0.0))
            .sum()
    };
    for (name, expected) in [
        ("in_use", total(&after, 1)),
        ("grown", change(1.0)),
        ("shrunk", change(-1.0)),
        ("allocated", total(&after, 3) - total(&before, 3)),
    ] {
        let view = view(name);
        assert_eq!(view["total"], expected, "{name}");
        let sites = view["sites"].as_array().unwrap();
        let values: Vec<f64> = sites.iter().map(|site| site[1].as_f64().unwrap()).collect();
        assert_eq!(values.iter().sum::<f64>(), expected, "{name}");
        assert!(values.is_sorted_by(|a, b| a >= b), "{values:?}");
        for tree in view["trees"].as_array().unwrap() {
            assert_eq!(tree["root"], expected, "{name}");
            for width in tree["widths"].as_array().unwrap() {
                assert!(
                    (width.as_f64().unwrap() - 1.0).abs() < 1e-9 || expected == 0.0,
                    "{tree}"
                );
            }
        }
    }
    assert!(change(1.0) > 0.0);
    let said = report(&log, &["--steps", "5"]);
    assert_eq!(said["nearest"], serde_json::json!([0, 0, 2, 5]));
}

/// Found stacks are shown alone, or left out. Sums, errors, sites and tree are of the stacks shown.
#[test]
fn what_is_found_alone_or_left_out() {
    let (folder, log, _) = server_file(4096);
    let map = folder.path().join("perf.map");
    std::fs::write(
        &map,
        "10 8 main\n1000 10 Parse::json\n1010 10 draw\n1020 10 Parse::xml\n1030 10 log\n",
    )
    .unwrap();
    let page = folder.path().join("page.html");
    let [map, out] = [&map, &page].map(|path| path.to_str().unwrap());
    ok(&["report", &log, "--perf-map", map, "-o", out]);
    let part = |text: &str, what: &str| searched(&page, text)["found"][what].clone();
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
    let sites = |value: &Value| -> Vec<String> {
        let sites = value["sites"].as_array().unwrap().iter();
        let mut names: Vec<String> = sites.map(|it| it[0].as_str().unwrap().into()).collect();
        names.sort();
        names
    };

    let all = part("", "mark");
    assert_eq!(sites(&all), ["Parse::json", "Parse::xml", "draw", "log"]);
    let (only, without) = (part("PARSE::", "only"), part("PARSE::", "without"));
    assert_eq!(sites(&only), ["Parse::json", "Parse::xml"]);
    assert_eq!(sites(&without), ["draw", "log"]);
    for key in ["total", "variance", "root"] {
        let (a, b) = (number(&only, key), number(&without, key));
        assert!(a > 0.0 && b > 0.0, "{key}: {a} {b}");
        let sum = number(&all, key);
        assert!((a + b - sum).abs() <= 1e-9 * sum, "{key}: {a} + {b}, {sum}");
    }
    assert_eq!(part("parse::", "mark"), all, "marked, all are there");
    // A caller counts as well as a site.
    assert_eq!(part("main", "only"), all);
    assert_eq!(part("main", "without")["total"], 0.0);
    assert_eq!(part("nowhere", "only")["total"], 0.0);
    assert_eq!(part("nowhere", "without"), all);

    let of_pattern = |pattern: &str| matched(&page, pattern)["found"]["only"].clone();
    assert_eq!(sites(&of_pattern("^parse::(x|y)")), ["Parse::xml"]);
    assert_eq!(sites(&of_pattern("draw|log$")), ["draw", "log"]);
    let left_out = read(&page)["left_out"].clone();
    let draw = number(&part("draw", "only"), "total");
    assert_eq!(left_out["draw"], number(&all, "total") - draw);
    assert_eq!(left_out["main"], 0);
}

/// A link to what is chosen chooses it, and a link to what this page has not, nothing.
#[test]
fn a_link_leads_to_what_was_chosen() {
    let (_folder, log, _) = server_file(1);
    let said = report(&log, &["--steps", "20"]);
    let chosen = |more: Value| {
        let mut all = serde_json::json!({"view": "grown", "unit": "blocks", "a": 1, "b": 20});
        let more = more.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(more);
        all
    };
    let search = serde_json::json!({
        "search": "a&b=c “d”",
        "found": "only",
        "is_regex": true,
        "left_out": [said["data"]["texts"][0]],
        "zoom": [0, 0.5],
    });
    assert_eq!(said["links"][0], chosen(search));
    assert_eq!(said["links"][1], chosen(serde_json::json!({})));
    assert_eq!(said["links"][2], serde_json::json!({}));
}

/// The largest are shown with their callers; nothing is missing from any site.
#[test]
fn stacks_whose_callers_are_left_out_are_at_their_sites() {
    let (_folder, log, truth) = server_file(1);
    let said = report(&log, &["--steps", "20", "--stacks", "2"]);
    let groups = said["data"]["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 4, "here each stack has a site of its own");
    let texts = said["data"]["texts"].to_string();
    for group in &groups[2..] {
        assert_eq!(group["stacks"], 1);
        assert_eq!(group["stack"].as_array().unwrap().len(), 2);
    }
    assert!(texts.contains("(2 stacks with less)"), "{texts}");
    assert_eq!(by_stack(&said["moments"][STEPS]), truth.at(10 * S));
    let out = heapprof(&["report", &log, "--stacks", "2", "-o", "/dev/null"]);
    assert!(stderr(&out).contains("2 of 4 stacks"), "{}", stderr(&out));
}

#[test]
fn sampled_numbers_have_their_errors() {
    let (_folder, log, _) = server_file(4096);
    let said = report(&log, &["--steps", "20"]);
    let timeline = json(&["timeline", &log, "--steps", "20", "--json"]);
    for step in 0..STEPS {
        let error = said["moments"][step + 1]["error"].as_f64().unwrap();
        let expected = timeline["steps"][step]["in_use_error"].as_f64().unwrap();
        assert!(
            (error - expected).abs() <= expected * 0.01,
            "{error} {expected}"
        );
        assert!(expected > 0.0);
    }
    // Nothing has shrunk, and that number has no error. The error of the growth is less than the
    // errors of both moments together.
    let error = |view: &str| said["views"][view]["error"].as_f64().unwrap();
    let of = |step: usize| said["moments"][step]["error"].as_f64().unwrap();
    assert_eq!(error("shrunk"), 0.0);
    assert!(error("grown") > 0.0 && error("grown") < of(STEPS / 2) + of(STEPS));
    assert_eq!(said["data"]["is_exact"], false);
    assert_eq!(said["data"]["percent"], 95.0);
}

/// The known part of a log that rotated begins with the blocks in use at that time. These blocks
/// are no growth.
#[test]
fn of_a_log_that_rotated_the_beginning_is_not_nothing() {
    const MB: u64 = 1_000_000;
    let mut encoder = Encoder::new();
    start(&mut encoder, 31, 31 * S, vec![]);
    let mut bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(&mut encoder);
    for id in 1..=10 {
        alloc(&mut encoder, 4 * S, id, MB);
    }
    encoder.record(&Record::CheckpointEnd { time_ns: 5 * S });
    for id in 1..=5 {
        free(&mut encoder, 6 * S, id);
    }
    alloc(&mut encoder, 9 * S, 11, MB);
    bytes.extend_from_slice(encoder.finish());
    let folder = folder();
    let log = write(folder.path(), "s.heaplog", &bytes);
    let said = report(log.to_str().unwrap(), &["--steps", "4"]);
    let bytes_at = |moment: usize, what: &str| {
        let groups = said["moments"][moment]["groups"].as_array().unwrap();
        groups
            .iter()
            .map(|group| group[what][1].as_f64().unwrap())
            .sum::<f64>()
    };
    assert_eq!(said["moments"][0]["time"], 5.0);
    assert_eq!(bytes_at(0, "in_use"), 10e6);
    assert_eq!(bytes_at(4, "in_use"), 6e6);
    assert_eq!(bytes_at(0, "allocated"), 0.0);
    assert_eq!(
        bytes_at(4, "allocated"),
        1e6,
        "since the beginning of what is known"
    );
    let notes = said["data"]["notes"].to_string();
    assert!(notes.contains("the log rotated"), "{notes}");
    assert!(notes.contains("has no end"), "{notes}");
}

/// Names are of files that anybody may have written.
#[test]
fn a_name_ends_no_script() {
    const NAME: &str = "</script><script>alert(1)</script><!--";
    let folder = folder();
    let mut h = History::new(1);
    h.alloc(0, 100, 0);
    h.at(S);
    let log = write(folder.path(), "s.heaplog", &h.end().0);
    let map = folder.path().join("perf.map");
    std::fs::write(&map, format!("0 100000 {NAME}\n")).unwrap();
    let title = ["--title", NAME, "--perf-map", map.to_str().unwrap()];
    let said = report(log.to_str().unwrap(), &title);
    assert_eq!(said["scripts_count"], 2);
    assert_eq!(said["data"]["title"], NAME);
    assert_eq!(said["moments"][1]["groups"][0]["name"], NAME);
}

/// A pattern that matches nothing is told, whatever another one matches.
#[test]
fn a_suppression_that_matches_nothing_is_told() {
    let (folder, log, _) = server_file(1);
    let page = folder.path().join("page.html");
    let known = folder.path().join("known.supp");
    for (others, is_used) in [("", false), ("leak:[0x1010]\n", true)] {
        write(
            folder.path(),
            "known.supp",
            format!("{others}leak:nowhere\n").as_bytes(),
        );
        let [page, known] = [&page, &known].map(|path| path.to_str().unwrap());
        let out = heapprof(&["report", "--suppressions", known, "-o", page, &log]);
        assert!(out.status.success(), "{}", stderr(&out));
        let said = stderr(&out);
        assert!(
            said.contains("leak:nowhere (") && said.contains("matches nothing"),
            "{said}"
        );
        assert_eq!(
            said.contains("suppressed: leak:[0x1010]: "),
            is_used,
            "{said}"
        );
        std::fs::remove_file(page).unwrap();
    }
}

#[test]
fn the_page_is_beside_nobody_and_over_nothing() {
    let (folder, log, _) = server_file(1);
    let program = env!("CARGO_BIN_EXE_heapprof");
    let run = |args: &[&str]| {
        let mut command = Command::new(program);
        command.arg("report").args(args).current_dir(folder.path());
        command.output().unwrap()
    };
    let out = run(&["s.heaplog"]);
    assert!(out.status.success(), "{}", stderr(&out));
    assert!(stderr(&out).contains("s.html: "), "{}", stderr(&out));
    let page = std::fs::read_to_string(folder.path().join("s.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    // Nothing in it is asked of anybody.
    let asks = ["http://", "https://", "src=", "href=", "@import", "url("];
    let own = page.replace("http://www.w3.org/2000/svg", "");
    assert!(asks.iter().all(|what| !own.contains(what)));
    assert_eq!(
        std::fs::read(&log).unwrap(),
        std::fs::read(folder.path().join("s.heaplog")).unwrap()
    );

    let out = run(&["s.heaplog", "-o", "s.heaplog"]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    let dump = "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0x10\nMAPPED_LIBRARIES:\n";
    write(folder.path(), "a.heap", dump.as_bytes());
    let out = run(&["a.heap"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        stderr(&out).contains("a dump holds the heap at one moment"),
        "{}",
        stderr(&out)
    );
    assert!(!folder.path().join("a.html").exists());
    let out = run(&["s.heaplog", "--steps", "1000", "--stacks", "20000"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(stderr(&out).contains("at most 5000000"), "{}", stderr(&out));
    for steps in ["0", "1001"] {
        assert_eq!(run(&["s.heaplog", "--steps", steps]).status.code(), Some(2));
    }
}

/// As the command line writes them.
#[test]
fn bytes_are_written_as_everywhere() {
    let (_folder, log, _) = server_file(1);
    let said = report(&log, &[]);
    let values = [
        0.0,
        1.0,
        1023.0,
        1024.0,
        1535.0,
        1_047_552.0,
        16.5 * 1_048_576.0,
        5e12,
    ];
    let expected: Vec<String> = values
        .iter()
        .map(|&value| Bytes(value).to_string())
        .collect();
    assert_eq!(said["texts"], serde_json::json!(expected));
    let durations = [
        "0 µs", "3 µs", "12 ms", "3.4 s", "1.5 min", "2.0 h", "2.3 days",
    ];
    assert_eq!(said["durations"], serde_json::json!(durations));
    let ends = ["/a/b/c.rs:1", "…/src/main.rs:250", "…ename.cpp:7", "a"];
    assert_eq!(said["ends"], serde_json::json!(ends));
}

#[test]
fn a_page_of_several_processes_is_of_all_of_them() {
    let folder = folder();
    let [first, second] = [40, 41].map(|pid| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        load(&mut log, 0, 0x1000);
        let stack = log.stack(&[0x1101, 0x1201]);
        log.alloc(stack, 1000 * u64::from(pid));
        log.wait(2 * S);
        // One was killed.
        let bytes = if pid == 40 { log.cut() } else { log.end() };
        put(folder.path(), &format!("{pid}.heaplog"), &bytes)
    });
    let said = report(&second, &[&first]);
    let data = &said["data"];
    assert_eq!(data["who"], "server, 2 processes");
    assert_eq!(data["peak"]["bytes"], 81_000.0);
    assert_eq!(data["processes"][1]["pid"], 41);
    let notes = data["notes"].to_string();
    assert!(
        notes.contains("logs without an end: 1, and its process is not seen"),
        "{notes}"
    );
    assert!(notes.contains("joined, as if they were one: 2"), "{notes}");
}

/// A browser runs the script that the page was made with, and no other.
#[test]
fn the_pages_policy_names_its_script_and_its_style_by_their_hashes() {
    let folder = folder();
    let (_log_folder, log, _) = server_file(1);
    let path = folder.path().join("page.html");
    ok(&["report", &log, "-o", path.to_str().unwrap()]);
    let page = std::fs::read_to_string(&path).unwrap();
    let (_, policy) = page
        .split_once("Content-Security-Policy\" content=\"")
        .unwrap();
    let (policy, _) = policy.split_once('"').unwrap();
    let hash = |tag: &str| {
        let (_, content) = page.split_once(&format!("<{tag}>")).unwrap();
        let (content, _) = content.split_once(&format!("</{tag}>")).unwrap();
        write(folder.path(), "content", content.as_bytes());
        let command = "openssl dgst -sha256 -binary content | base64";
        let mut shell = Command::new("sh");
        let out = shell
            .args(["-c", command])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}; run scripts/install-deps",
            stderr(&out)
        );
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    let expected = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'",
        hash("script"),
        hash("style")
    );
    assert_eq!(policy, expected);
    // Such a policy forbids handlers and styles in attributes.
    let (body, _) = page.split_once("<script").unwrap();
    let (_, body) = body.split_once("</style>").unwrap();
    for tag in body.split('<').map(|tag| tag.split('>').next().unwrap()) {
        assert!(!tag.contains(" style=") && !tag.contains(" on"), "{tag}");
    }
}

/// The page adds up by the program's labels, also of stacks that have no numbers of their own, and
/// finds a label.
#[test]
fn the_page_adds_up_and_finds_by_label() {
    let mut log = LogBuilder::new(1);
    log.begins(begin(7, 1));
    load(&mut log, 0, 0x10000);
    for (offset, tenant, size) in [(0x10, "acme", 1), (0x20, "acme", 20), (0x20, "bolt", 300)] {
        let stack = log.labelled(&[0x10000, 0x10100, 0x10200 + offset], &[("tenant", tenant)]);
        log.alloc(stack, size);
    }
    let plain = log.stack(&[0x10000, 0x10100, 0x10200]);
    log.alloc(plain, 4000);
    let folder = folder();
    let log = put(folder.path(), "a.heaplog", &log.end());
    for stacks in ["1", "100"] {
        let said = report(&log, &["--steps", "5", "--stacks", stacks]);
        let expected = serde_json::json!({"(none)": 4000, "acme": 21, "bolt": 300});
        let by_tenant = &said["groupings"]["label:tenant"][0];
        assert_eq!(*by_tenant, expected, "--stacks {stacks}");
    }
    let page = folder.path().join("page.html");
    ok(&["report", &log, "-o", page.to_str().unwrap()]);
    let found = &searched(&page, "tenant=ACME")["found"];
    assert_eq!(found["only"]["total"], 21);
    assert_eq!(found["without"]["total"], 4300);
    assert_eq!(found["mark"]["total"], 4321);
}
