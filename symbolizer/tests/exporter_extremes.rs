//! The same tests for every exporter, on profiles at the edges: names of every kind in every place,
//! numbers that no double holds, recursion, nothing but one stack. Whatever goes in, the totals
//! come out, nothing is negative, and nothing speaks to a terminal.

use crate::common::totals::{agrees, cells, export, text};
use crate::common::{LogBuilder, frame};
use heapprof_symbolizer::export::Format;
use heapprof_symbolizer::resolve::{Frame, Name};
use heapprof_symbolizer::{
    Metric, Place, Profile, Symbols, WantedExtras, profile_of_log, profile_of_log_with,
};
use serde_json::Value;
use std::sync::Arc;

/// Returns names that could harm a reader of an export.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "<script>alert(1)</script>",
        "</title><svg onload=alert(1)>",
        "\" onmouseover=\"alert(1)",
        "it's \"quoted\" & co; <b>",
        "line\nbreak\r\nand\rmore",
        "\u{1b}]0;title\u{7}\u{1b}[2J",
        "\u{9b}31m",
        "a,b;c\td",
        "=HYPERLINK(\"http://x\",\"y\")",
        "+1",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\u{202e}desrever",
        "nul\0",
        "--- symbol",
        "---",
        "# comment",
        "calls=1 2",
        "fn=(1)",
        "(7)",
        "totals: 1 1",
        "]]>",
        "",
        " ",
        "\u{fffd}\u{fffd}",
        "函数",
    ]
    .map(String::from)
    .into();
    // Bytes that are not UTF-8, as a reader of UTF-8 replaces them.
    names.push(String::from_utf8_lossy(b"\xff\xfe\xc3(").into_owned());
    names.push("x".repeat(10_000));
    names
}

/// One stack through as many functions, files and modules as there are names, each with the name.
fn hostile() -> (Profile, Symbols) {
    let names = hostile_names();
    let mut log = LogBuilder::new(1);
    let base = |i: usize| 0x10_0000 * (i as u64 + 1);
    for (i, name) in names.iter().enumerate() {
        log.module(&format!("/bin/{name}"), base(i), 0x1000);
    }
    let frames: Vec<u64> = (0..names.len()).map(|i| base(i) + 0x101).collect();
    let stack = log.stack(&frames);
    log.alloc(stack, 4096);
    let freed = log.alloc(stack, 100);
    log.free(freed);
    let profile = profile_of_log_with(&log.end(), WantedExtras::ALL, |_| {}).expect("a good log");
    let places: Vec<Place> = profile.places(&profile.stacks[0]).collect();
    let named = |name: &String| Frame {
        column: Some(3),
        ..frame(name, name, 7, false)
    };
    let symbols = Symbols::given(
        &profile,
        places
            .into_iter()
            .zip(names.iter().map(|name| vec![named(name)])),
    );
    (profile, symbols)
}

/// All profiles at the edges, with what they are.
fn edges() -> Vec<(&'static str, Profile, Symbols)> {
    let mut edges = Vec::new();
    let (profile, symbols) = hostile();
    edges.push(("hostile names", profile, symbols));

    // One stack of one frame, and one without any.
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1000]);
    log.alloc(stack, 1);
    let none = log.stack(&[]);
    log.alloc(none, 1);
    let profile = profile_of_log(&log.end(), |_| {}).expect("a good log");
    let symbols = Symbols::none(&profile);
    edges.push(("one frame", profile, symbols));

    // main -> walk -> walk -> (inlined) step -> walk -> malloc
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    let stack = log.stack(&[0x1010, 0x1021, 0x1031, 0x1021, 0x1041]);
    for _ in 0..5 {
        log.alloc(stack, 64);
    }
    let profile = profile_of_log_with(&log.end(), WantedExtras::ALL, |_| {}).expect("a good log");
    let symbols = Symbols::given(
        &profile,
        [
            (0x1010, vec![frame("malloc", "m.c", 1, false)]),
            (0x1020, vec![frame("walk", "w.c", 2, false)]),
            (
                0x1030,
                vec![
                    frame("step", "w.c", 9, true),
                    frame("walk", "w.c", 3, false),
                ],
            ),
            (0x1040, vec![frame("main", "w.c", 4, false)]),
        ]
        .map(|(avma, frames)| (profile.place(avma, 0), frames)),
    );
    edges.push(("recursion", profile, symbols));

    // Sums that no double holds: past 2^53, and odd. A block is at most 2^47 - 1 bytes.
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    for i in 0..3 {
        let stack = log.stack(&[0x1010, 0x1021 + 16 * i]);
        for _ in 0..101 {
            log.alloc(stack, (1 << 47) - 1 - 2 * i);
        }
    }
    let profile = profile_of_log_with(&log.end(), WantedExtras::ALL, |_| {}).expect("a good log");
    let symbols = Symbols::none(&profile);
    edges.push(("large numbers", profile, symbols));

    let profile = Profile::default();
    let symbols = Symbols::none(&profile);
    edges.push(("nothing", profile, symbols));
    edges
}

#[test]
fn totals_come_out_of_every_format() {
    for (what, profile, symbols) in edges() {
        if what == "nothing" {
            continue;
        }
        if what == "large numbers" {
            let bytes = profile.numbers().in_use_bytes;
            assert!(bytes > 1 << 55 && bytes as f64 as u64 != bytes, "{bytes}");
        }
        for format in Format::ALL {
            for metric in Metric::ALL {
                agrees(format, &profile, &symbols, metric);
            }
        }
    }
}

#[test]
fn what_is_json_is_json_and_has_nothing_negative() {
    fn check(value: &Value, at: &str) {
        match value {
            Value::Number(number) => {
                // A frame's -1 is "no library"; a free is its allocation's weight negated.
                let is_free = at.contains("nativeAllocations.weight");
                let is_none = number.as_i64() == Some(-1)
                    && (at.contains("address") || at.contains("resource"));
                let number = number.as_f64().expect("finite");
                assert!(number >= 0.0 || is_free || is_none, "{number} at {at}");
            }
            Value::Array(list) => list.iter().for_each(|value| check(value, at)),
            Value::Object(map) => map
                .iter()
                .for_each(|(key, value)| check(value, &format!("{at}.{key}"))),
            _ => {}
        }
    }
    for (what, profile, symbols) in edges() {
        for format in [
            Format::Json,
            Format::Speedscope,
            Format::Dhat,
            Format::Firefox,
        ] {
            let text = text(format, &profile, &symbols, Metric::AllocatedBytes);
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{} of {what}: {error}", format.name()));
            check(&value, format.name());
        }
    }
}

#[test]
fn what_is_text_has_nothing_negative_and_nothing_that_a_terminal_obeys() {
    for (what, profile, symbols) in edges() {
        for format in Format::ALL {
            if format.is_binary() {
                continue;
            }
            let text = text(format, &profile, &symbols, Metric::InUseBytes);
            let bad = text
                .chars()
                .find(|&c| c.is_control() && !matches!(c, '\n' | '\t'));
            assert_eq!(bad, None, "{} of {what}", format.name());
            // Only the dumps' maps lines are tabbed, and nothing of ours has tabs in names.
            assert!(!text.contains('\t'), "{} of {what}", format.name());
        }
        // Numbers stand at the ends of lines there.
        for format in [Format::Folded, Format::Callgrind, Format::Gperftools] {
            let text = text(format, &profile, &symbols, Metric::AllocatedBytes);
            for line in text.lines() {
                let last = line.rsplit(' ').next().unwrap_or_default();
                assert!(
                    last.parse::<i64>().is_ok_and(|n| n >= 0) || last.parse::<i64>().is_err(),
                    "{} of {what}: {line}",
                    format.name()
                );
            }
        }
    }
}

/// A reader that starts anew at each line is never led to believe that a name is one.
#[test]
fn a_name_never_begins_a_line() {
    let (profile, symbols) = hostile();
    let lines = |format| -> Vec<String> {
        let text = text(format, &profile, &symbols, Metric::InUseBytes);
        text.lines().map(String::from).collect()
    };
    assert_eq!(lines(Format::Folded).len(), 1);
    let csv = lines(Format::Csv);
    assert_eq!(csv.len(), 2);
    for line in &csv {
        let cells = cells(line);
        assert_eq!(cells.len(), 11, "{line}");
        for cell in cells {
            assert!(
                !cell.starts_with(['=', '+', '-', '@', '\t', '\r']),
                "{cell}"
            );
        }
    }
    let callgrind = lines(Format::Callgrind);
    let positions = callgrind.iter().filter(|line| line.starts_with("fn="));
    // Nothing and a blank are both unknown.
    assert_eq!(positions.count(), hostile_names().len() - 1);
    assert_eq!(
        callgrind
            .iter()
            .filter(|l| l.starts_with("totals:"))
            .count(),
        1
    );
    // Every line is one of the kinds that the format has.
    for line in callgrind.iter().filter(|line| !line.is_empty()) {
        let kinds = [
            "# callgrind",
            "version:",
            "creator:",
            "pid:",
            "cmd:",
            "desc:",
            "positions:",
            "events:",
            "summary:",
            "ob=(",
            "fl=(",
            "fn=(",
            "cob=(",
            "cfi=(",
            "cfn=(",
            "calls=",
            "totals:",
        ];
        let is_cost = line.split(' ').all(|word| word.parse::<u64>().is_ok());
        assert!(
            is_cost || kinds.iter().any(|kind| line.starts_with(kind)),
            "{line}"
        );
    }
    for format in [Format::Gperftools, Format::Symbolized, Format::Jemalloc] {
        for line in lines(format) {
            assert!(
                !line.starts_with("# comment") && !line.starts_with("=HYPER"),
                "{}: {line}",
                format.name()
            );
        }
    }
    assert_eq!(
        lines(Format::Symbolized)
            .iter()
            .filter(|l| *l == "---" || *l == "--- symbol")
            .count(),
        2
    );
}

/// XML: every tag closes, every attribute is quoted, and nothing but inferno's own script runs.
#[test]
fn a_flame_graph_is_well_formed_and_runs_nothing_of_a_name() {
    for (what, profile, symbols) in edges() {
        let svg = text(Format::Flamegraph, &profile, &symbols, Metric::InUseBytes);
        well_formed(&svg).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(svg.matches("<script").count() <= 1, "{what}");
        assert!(
            !svg.contains("<script>alert") && !svg.contains("<svg onload"),
            "{what}"
        );
        assert!(!svg.contains("onmouseover=\"alert"), "{what}");
    }
}

/// As strict as is needed here: names of elements nest, values are quoted, `&` begins an entity.
fn well_formed(xml: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        entities(&rest[..at])?;
        rest = &rest[at..];
        let end = if rest.starts_with("<![CDATA[") {
            rest.find("]]>").ok_or("open CDATA")? + 3
        } else if rest.starts_with("<!--") {
            rest.find("-->").ok_or("open comment")? + 3
        } else {
            let mut quote = None;
            let end = rest.char_indices().find(|&(_, c)| match (quote, c) {
                (None, '"' | '\'') => {
                    quote = Some(c);
                    false
                }
                (Some(q), c) if q == c => {
                    quote = None;
                    false
                }
                (None, '>') => true,
                _ => false,
            });
            let end = end.ok_or("an open tag")?.0 + 1;
            let tag = &rest[1..end - 1];
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/', '\n'])
                .next()
                .unwrap_or("");
            if tag.starts_with('/') {
                let opened = open.pop();
                if opened != Some(name) {
                    return Err(format!("</{name}> closes {opened:?}"));
                }
            } else if !tag.starts_with(['?', '!']) {
                if tag[1..].contains('<') {
                    return Err(format!("a tag in a tag: {tag:.80}"));
                }
                entities(tag)?;
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
            end
        };
        rest = &rest[end..];
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("never closed: {open:?}")),
    }
}

fn entities(text: &str) -> Result<(), String> {
    for after in text.split('&').skip(1) {
        let name = after.split(';').next().unwrap_or("");
        let is_known = ["amp", "lt", "gt", "quot", "apos"].contains(&name) || name.starts_with('#');
        if !is_known || !after.contains(';') {
            return Err(format!("a bare &: {after:.40}"));
        }
    }
    Ok(())
}

#[test]
fn a_recursive_function_counts_each_block_once() {
    let (_, profile, symbols) = edges().swap_remove(2);
    let whole = profile.numbers().in_use_bytes;
    assert_eq!(whole, 320);
    // callgrind: no call has more inclusive cost than there is in all.
    let callgrind = text(Format::Callgrind, &profile, &symbols, Metric::InUseBytes);
    let mut calls = 0;
    let mut lines = callgrind.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("calls=") {
            let cost = lines
                .next()
                .and_then(|l| l.split(' ').nth(1))
                .expect("a cost");
            assert_eq!(cost.parse(), Ok(whole));
            calls += 1;
        }
    }
    // main->walk, walk->step, step->walk, walk->walk, walk->malloc, each line once.
    assert!((4..=6).contains(&calls), "{callgrind}");
    let folded = text(Format::Folded, &profile, &symbols, Metric::InUseBytes);
    assert_eq!(folded, "main;walk;walk;step;walk;malloc 320\n");
}

/// Both have frames with files, lines and how deep they were inlined; the viewer groups by them.
#[test]
fn firefox_frames_have_functions_files_lines_and_libraries() {
    let (_, profile, symbols) = edges().swap_remove(2);
    let json: Value = serde_json::from_slice(&export(
        Format::Firefox,
        &profile,
        &symbols,
        Metric::InUseBytes,
    ))
    .expect("JSON");
    let thread = &json["threads"][0];
    let row = |table: &str, column: &str, row: &Value| -> Value {
        let row = row.as_u64().expect("a row") as usize;
        thread[table][column][row].clone()
    };
    let string = |index: &Value| match index.as_u64() {
        Some(index) => thread["stringArray"][index as usize]
            .as_str()
            .expect("a string"),
        None => "-",
    };
    // From the only stack's end to its root.
    let mut stack = thread["nativeAllocations"]["stack"][0].clone();
    let mut seen = Vec::new();
    while !stack.is_null() {
        let frame = row("stackTable", "frame", &stack);
        let func = row("frameTable", "func", &frame);
        let resource = row("funcTable", "resource", &func);
        let symbol = row("frameTable", "nativeSymbol", &frame);
        seen.push(format!(
            "{} {}:{} depth {} in {} of {} at {:#x}",
            string(&row("funcTable", "name", &func)),
            string(&row("funcTable", "fileName", &func)),
            row("frameTable", "line", &frame),
            row("frameTable", "inlineDepth", &frame),
            string(&row("resourceTable", "name", &resource)),
            string(&row("nativeSymbols", "name", &symbol)),
            row("frameTable", "address", &frame)
                .as_u64()
                .expect("an address"),
        ));
        stack = row("stackTable", "prefix", &stack);
    }
    assert_eq!(
        seen,
        [
            "malloc m.c:1 depth 0 in server of malloc at 0x10",
            "walk w.c:2 depth 0 in server of walk at 0x20",
            "step w.c:9 depth 1 in server of walk at 0x30",
            "walk w.c:3 depth 0 in server of walk at 0x30",
            "walk w.c:2 depth 0 in server of walk at 0x20",
            "main w.c:4 depth 0 in server of main at 0x40",
        ]
    );
    assert_eq!(json["libs"][0]["path"], "/bin/server");
    assert_eq!(json["libs"][0]["codeId"], "ab00");
    // Columns of a table are of one length, and name rows that exist.
    for table in [
        "stackTable",
        "frameTable",
        "funcTable",
        "resourceTable",
        "nativeSymbols",
    ] {
        let table = thread[table].as_object().expect("a table");
        let length = table["length"].as_u64().expect("a length") as usize;
        for (name, column) in table.iter().filter(|(name, _)| *name != "length") {
            assert_eq!(column.as_array().map(Vec::len), Some(length), "{name}");
        }
    }
}

/// Names of functions that are the same but not in the same place stay apart, where the format can.
#[test]
fn equal_names_of_two_files_are_two_functions() {
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x1000);
    for at in [0x1021, 0x1031] {
        let stack = log.stack(&[0x1010, at]);
        log.alloc(stack, 64);
    }
    let profile = profile_of_log(&log.end(), |_| {}).expect("a good log");
    let name = Arc::new(Name::new("helper"));
    let of_file = |file: &str| {
        vec![Frame {
            function: Some(Arc::clone(&name)),
            ..frame("", file, 1, false)
        }]
    };
    let symbols = Symbols::given(
        &profile,
        [(0x1020, of_file("a.c")), (0x1030, of_file("b.c"))]
            .map(|(avma, frames)| (profile.place(avma, 0), frames)),
    );
    let csv = text(Format::Csv, &profile, &symbols, Metric::InUseBytes);
    assert!(
        csv.contains("helper,a.c") && csv.contains("helper,b.c"),
        "{csv}"
    );
    let firefox = text(Format::Firefox, &profile, &symbols, Metric::InUseBytes);
    assert_eq!(firefox.matches("\"helper\"").count(), 1, "one string");
    let callgrind = text(Format::Callgrind, &profile, &symbols, Metric::InUseBytes);
    assert_eq!(
        callgrind.lines().filter(|l| l.starts_with("fn=")).count(),
        3,
        "{callgrind}"
    );
}
