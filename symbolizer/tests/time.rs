//! Views over a log by time, against a naive model: moments, windows, dumps afterwards, timelines.

use crate::common::history::{
    ByStack, History, MS, S, STACKS, US, at, by_stack, folder, moment, ok, play, server,
    server_file, steps, view, window,
};
use crate::common::{LogBuilder, heapprof, stderr, stdout, totals_line};
use heapprof_core::Totals;
use heapprof_format::{Checkpoint, Record};
use heapprof_symbolizer::{
    Groups, Heights, Looks, Moment, ReadRequest, Rows, View, ViewError, WantedExtras, highest,
    profile_of_log, profile_of_log_with, profile_of_view, timeline_of_log,
};
use proptest::prelude::*;

#[test]
fn the_heap_at_any_moment_is_the_truth() {
    let (log, truth) = server(1);
    for t in [
        0,
        1,
        S - US,
        S,
        2 * S,
        2 * S + MS - US,
        2 * S + MS,
        4 * S,
        7 * S,
        10 * S,
    ] {
        let seconds = format!("{:.6}s", t as f64 / 1e9);
        assert_eq!(at(&log, &seconds), truth.at(t), "at {t}");
    }
    assert_eq!(
        at(&log, "end"),
        by_stack(&profile_of_log(&log, |_| {}).unwrap())
    );
    assert_eq!(at(&log, "start"), ByStack::new());
    assert_eq!(at(&log, "50%"), truth.at(5 * S));
    assert_eq!(at(&log, "2500ms"), truth.at(2500 * MS));
    assert_eq!(at(&log, "loaded"), truth.at(4 * S));
    // A dump is taken between two events, though they have one time: stack 1 frees after it.
    let mut at_dump = truth.at(4 * S);
    at_dump.insert(1, [10, 50_000, 10, 50_000]);
    assert_eq!(at(&log, "marker:dump"), at_dump);
    assert_eq!(at(&log, "2026-01-01T00:00:01Z"), truth.at(S));
    assert_eq!(at(&log, "00:00:07"), truth.at(7 * S));
    assert_eq!(at(&log, "peak"), truth.at(2 * S + 10 * MS));
    for (near, peak) in [
        ("1.9s", 2000),
        ("2.008s", 2010),
        ("2.9s", 2020),
        ("20%", 2000),
    ] {
        let at = at(&log, &format!("peak near {near}"));
        assert_eq!(at, truth.at(peak * MS), "{near}");
    }
    let far = View::At(moment("peak near 8s"));
    let request = ReadRequest {
        view: far,
        ..ReadRequest::default()
    };
    let error = profile_of_view(&log, &request, |_| {}).unwrap_err();
    assert!(
        error.to_string().contains("the nearest is at 2.020000 s"),
        "{error}"
    );
}

#[test]
fn a_window_holds_what_was_allocated_in_it() {
    let (log, truth) = server(1);
    assert_eq!(window(&log, "0.5s", "3s"), truth.window(Some(S / 2), 3 * S));
    // An event at the very moment is before it: windows that touch count it once.
    assert_eq!(window(&log, "1s", "2s"), truth.window(Some(S), 2 * S));
    assert_eq!(window(&log, "start", "1s"), truth.at(S));
    assert_eq!(window(&log, "4s", "end"), truth.window(Some(4 * S), 10 * S));
    assert_eq!(window(&log, "4s", "end")[&3], [5, 2500, 5, 2500]);
    let peak = truth.peak_record();
    let since = truth.sum(|b| b.came.1 > peak, |b| b.went.is_none());
    assert_eq!(window(&log, "peak", "end"), since);
}

#[test]
fn a_window_knows_the_frees_of_blocks_from_before_it() {
    let (log, _) = server(1);
    let profile = view(&log, View::Window(moment("3s"), moment("end")));
    assert_eq!(profile.account.unknown_frees, 0);
}

#[test]
fn moments_that_are_not_there_are_errors() {
    let (log, _) = server(1);
    let error = |view: View| {
        let request = ReadRequest {
            view,
            ..ReadRequest::default()
        };
        profile_of_view(&log, &request, |_| {}).unwrap_err()
    };
    assert!(matches!(
        error(View::At(moment("11s"))),
        ViewError::Moment(_)
    ));
    assert!(matches!(
        error(View::At(moment("lunch"))),
        ViewError::Moment(_)
    ));
    let backwards = error(View::Window(moment("5s"), moment("4s")));
    assert!(
        backwards.to_string().contains("before it begins"),
        "{backwards}"
    );
}

#[test]
fn the_command_line_shows_a_moment_and_a_window() {
    let (log, truth) = server(1);
    let folder = folder();
    let path = crate::common::write(folder.path(), "s.heaplog", &log);
    let file = path.to_str().unwrap();
    let sum = |by: &ByStack| {
        by.values().fold([0; 4], |mut sum, four| {
            sum.iter_mut().zip(four).for_each(|(s, n)| *s += n);
            sum
        })
    };
    let out = stdout(&heapprof(&["top", file, "--at", "3s"]));
    assert_eq!(totals_line(&out), sum(&truth.at(3 * S)), "{out}");
    assert!(out.contains("view: at 3.000000 s"), "{out}");
    let out = stdout(&heapprof(&["top", file, "--from", "4s", "--to", "7s"]));
    assert_eq!(totals_line(&out), sum(&truth.window(Some(4 * S), 7 * S)));
    let out = stdout(&heapprof(&["symbolize", file, "--at", "peak"]));
    assert!(
        out.contains(" 1000000: ") || out.contains("1000001"),
        "{out}"
    );
    assert!(out.contains("# view: at 2.010000 s"), "{out}");
    let out = stdout(&heapprof(&["export", file, "-f", "folded", "--at", "50%"]));
    assert!(out.contains(" 100000\n") && out.contains(" 500\n"), "{out}");
}

#[test]
fn a_dump_has_no_times_and_says_so() {
    let folder = folder();
    let text = "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0x10\nMAPPED_LIBRARIES:\n";
    let path = crate::common::write(folder.path(), "a.heap", text.as_bytes());
    let out = heapprof(&["top", path.to_str().unwrap(), "--at", "peak"]);
    assert!(!out.status.success());
    let said = stderr(&out);
    assert!(
        said.contains("a dump holds the heap at one moment"),
        "{said}"
    );
}

proptest! {
    #[test]
    fn any_moment_and_any_window_of_any_history(steps in steps(), a in 0u64..=1000, b in 0u64..=1000) {
        let (log, truth) = play(&steps);
        let (a, b) = (a.min(b), a.max(b));
        let cut = |part: u64| truth.end / US * part / 1000 * US;
        let (from, to) = (cut(a), cut(b));
        let at = by_stack(&view(&log, View::At(Moment::After(to))));
        prop_assert_eq!(at, truth.at(to));
        let window = by_stack(&view(&log, View::Window(Moment::After(from), Moment::After(to))));
        prop_assert_eq!(window, truth.window(Some(from), to));
        let peak = by_stack(&view(&log, View::At(Moment::Peak)));
        prop_assert_eq!(peak, truth.at_record(truth.peak_record()));
        let truth = truth.at_record(truth.peak_record());
        for rows in [Rows::Whole, Rows::ByThread] {
            let whole = profile_of_log_with(&log, rows.extras(), |_| {}).unwrap();
            let stacks: Vec<u32> = match (rows, &whole.extras.threads) {
                (Rows::Whole, _) => whole.rows.iter().map(|row| row.stack).collect(),
                (Rows::ByThread, threads) => {
                    threads.iter().flatten().map(|thread| thread.row.stack).collect()
                }
            };
            let mut held_by = [0.0; STACKS as usize];
            let heights = Heights::of_log(&log, &whole, 3, rows, &[], |_| {}).unwrap();
            for (stack, held) in stacks.into_iter().zip(heights.rows_at_peak) {
                held_by[stack as usize] += held;
            }
            for (stack, held) in (0..).zip(held_by) {
                let four = truth.get(&stack).copied().unwrap_or_default();
                prop_assert_eq!(held, four[1] as f64);
            }
        }
    }

    #[test]
    fn any_step_of_the_timeline_of_any_history(steps in steps(), count in 1usize..30) {
        let (log, truth) = play(&steps);
        let whole = view(&log, View::Whole);
        let four = |totals: &Totals| {
            let Totals { in_use, allocated } = totals;
            [in_use.objects(), in_use.bytes(), allocated.objects(), allocated.bytes()]
        };
        let groups = Groups {
            rows: Rows::Whole,
            count: STACKS as usize,
            of: |row: usize| Some(whole.rows[row].stack as usize),
            looks: Looks::default(),
        };
        let timeline = timeline_of_log(&log, &whole, count, groups, four, |_| {}).unwrap();
        prop_assert_eq!(timeline.steps.len(), count);
        let is = |groups: &[[u64; 4]], truth: ByStack| {
            let groups = groups.iter().copied().enumerate().map(|(n, four)| (n as u32, four));
            groups.filter(|(_, four)| *four != [0; 4]).collect::<ByStack>() == truth
        };
        for step in &timeline.steps {
            prop_assert!(is(&step.groups, truth.at(step.end_ns)), "{step:?}");
        }
        prop_assert!(is(&timeline.at_start, ByStack::new()));
        // The same, at the highest record of each step.
        let heights = Heights::of_log(&log, &whole, count, Rows::Whole, &[], |_| {}).unwrap();
        let looks = Looks { steps: &heights.records, groups: &heights.records, rows: &heights.records };
        let high = timeline_of_log(&log, &whole, count, Groups { looks, ..groups }, four, |_| {}).unwrap();
        let mut from = 0;
        for (n, step) in high.steps.iter().enumerate() {
            let record = truth.highest_record(from, step.end_ns);
            from = step.end_ns;
            prop_assert!(is(&step.groups, truth.at_record(record)), "{step:?}: {record}");
            prop_assert_eq!(step.highest, truth.in_use_after(record) as f64);
            prop_assert_eq!(&high.looked[n], &step.groups);
            prop_assert_eq!(high.rows[n].iter().sum::<f64>(), step.highest);
        }
        // The highest spike is the peak.
        let extras = WantedExtras { spikes: true, ..WantedExtras::default() };
        let spikes = profile_of_log_with(&log, extras, |_| {}).unwrap().extras.spikes;
        let first = highest(&spikes.unwrap_or_default(), 1);
        let first = first.first().map_or(0, |spike| spike.peak.record);
        prop_assert_eq!(first, truth.peak_record());
        match truth.peak_record() {
            0 => prop_assert_eq!(timeline.at_peak, None),
            record => prop_assert!(is(&timeline.at_peak.unwrap(), truth.at_record(record))),
        }
    }
}

#[test]
fn dumps_are_written_afterwards_and_overwrite_nothing() {
    let (folder, file, truth) = server_file(1);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let taken = folder.path().join("s.0002.heap");
    std::fs::write(&taken, "mine").unwrap();
    let said = ok(&["dump", &file, "--every", "4s"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert_eq!(read("s.0002.heap"), "mine");
    let first = read("s.0001.heap");
    let at = truth
        .at(4 * S)
        .values()
        .fold([0; 2], |s, f| [s[0] + f[0], s[1] + f[1]]);
    let header: Vec<u64> = first
        .lines()
        .next()
        .unwrap()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse().ok())
        .collect();
    assert_eq!(header[..2], at, "{first}");
    assert!(first.contains("# reason: 4 sec."), "{first}");
    assert_eq!(
        totals_line(&ok(&[
            "top",
            folder.path().join("s.0003.heap").to_str().unwrap()
        ]))[0],
        104
    );

    let prefix = folder.path().join("p");
    let prefix = prefix.to_str().unwrap();
    // 100 kB, then 50 kB, then three spikes of 1 MB: each spike is an occasion.
    let said = ok(&["dump", &file, "--every", "1000000", "-o", prefix]);
    assert_eq!(said.lines().count(), 3, "{said}");
    let said = ok(&["dump", &file, "--every", "peak", "-o", prefix]);
    assert!(said.contains("p.0004.heap"), "{said}");
    assert_eq!(
        totals_line(&ok(&["top", &format!("{prefix}.0004.heap")]))[1],
        1_150_001
    );
    let said = ok(&[
        "dump",
        &file,
        "--every-in-use",
        "100KiB",
        "-o",
        &format!("{prefix}u"),
    ]);
    assert_eq!(said.lines().count(), 2, "150,000 and 1,150,000: {said}");
    let said = ok(&[
        "dump",
        &file,
        "--every-freed",
        "1MiB",
        "-o",
        &format!("{prefix}f"),
    ]);
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_timeline_is_the_truth_at_every_step() {
    let (folder, file, truth) = server_file(1);
    let csv = ok(&["timeline", &file, "--csv", "--steps", "100", "--top", "2"]);
    let lines: Vec<Vec<f64>> = csv
        .lines()
        .skip(1)
        .map(|line| {
            // The log has no reading of the memory.
            let known = line.split(',').filter(|cell| !cell.is_empty());
            known.map(|cell| cell.parse().unwrap()).collect()
        })
        .collect();
    assert_eq!(lines.len(), 100);
    for (i, line) in lines.iter().enumerate() {
        let end = (i as u64 + 1) * S / 10;
        let now = truth.at(end);
        let sum = |field: usize| now.values().map(|four| four[field]).sum::<u64>() as f64;
        assert_eq!((line[0], line[1]), (end as f64 / 1e9, sum(1)), "step {i}");
        // From the first step on, the log's first events included.
        let from = (i > 0).then(|| end - S / 10);
        let came: u64 = truth.window(from, end).values().map(|four| four[3]).sum();
        assert_eq!(line[4], came as f64, "step {i}");
        // The sites with the most at the peak, at the highest point of each step: the spikes, then
        // what is kept.
        let highest = truth.highest_record(i as u64 * S / 10, end);
        let highest = truth.at_record(highest);
        let of = |stack: u32| highest.get(&stack).map_or(0, |four| four[1]) as f64;
        assert_eq!((line[6], line[7]), (of(2), of(0)), "step {i}");
    }
    assert_eq!(
        lines[20][3], 1_150_001.0,
        "the spike between two steps is not lost"
    );
    assert_eq!(lines[20][6], 1_000_001.0, "and is its site's");
    let text = ok(&["timeline", &file]);
    assert!(
        text.contains('█') && text.contains("peak at 2.010000 s"),
        "{text}"
    );
    let text: Vec<&str> = text.lines().collect();
    let from = text
        .iter()
        .position(|line| line.starts_with("highest peaks"))
        .unwrap();
    assert_eq!(
        text[from..],
        [
            "highest peaks, each with those that grew most; `heapprof top --at \"peak near 2.010000s\"` shows one:",
            "  2.010000 s: 1.1 MiB in use, 976.6 KiB more than at 2.001000 s",
            "     100 % of that, to  976.6 KiB  [0x1020]",
            "  2.000000 s: 1.1 MiB in use, 1.1 MiB more than at 0.000000 s",
            "      87 % of that, to  976.6 KiB  [0x1020]",
            "       9 % of that, to   97.7 KiB  [0x1000]",
            "       4 % of that, to   48.8 KiB  [0x1010]",
            "  2.020000 s: 1.1 MiB in use, 976.6 KiB more than at 2.011000 s",
            "     100 % of that, to  976.6 KiB  [0x1020]",
        ]
    );
    let svg = folder.path().join("t.svg");
    ok(&[
        "timeline",
        &file,
        "--svg",
        "--top",
        "3",
        "-o",
        svg.to_str().unwrap(),
    ]);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn a_timeline_says_how_far_it_is() {
    let mut h = History::new(1);
    for _ in 0..50_000 {
        let block = h.at(h.now + US).alloc(0, 100, 0);
        h.free(block);
    }
    let (log, _) = h.end();
    let whole = view(&log, View::Whole);
    let mut offsets = Vec::new();
    let timeline = timeline_of_log(
        &log,
        &whole,
        10,
        Groups {
            rows: Rows::Whole,
            count: 1,
            of: |_| Some(0),
            looks: Looks::default(),
        },
        |_| (),
        |at| offsets.push(at),
    );
    assert_eq!(timeline.unwrap().steps.len(), 10);
    assert!(!offsets.is_empty() && offsets.is_sorted(), "{offsets:?}");
    assert!(offsets.iter().all(|&at| at <= log.len() as u64));
}

#[test]
fn a_timeline_has_as_many_steps_as_are_asked_for_or_an_error() {
    let (_folder, file, _) = server_file(1);
    for steps in ["1", "5", "65560", "100000"] {
        let text = ok(&["timeline", &file, "--steps", steps]);
        let axis = text.lines().nth(2).unwrap();
        assert!(axis.starts_with("            0 "), "{axis}");
        assert!(axis.ends_with(" 10.000 s"), "{axis}");
        let csv = ok(&["timeline", &file, "--steps", steps, "--csv"]);
        assert_eq!(
            csv.lines().count().to_string(),
            (steps.parse::<u64>().unwrap() + 1).to_string()
        );
    }
    for steps in ["0", "100001", "-1"] {
        let output = heapprof(&["timeline", &file, &format!("--steps={steps}")]);
        assert_eq!(output.status.code(), Some(2), "{steps}");
        assert!(
            stderr(&output).contains("100000") || steps == "-1",
            "{}",
            stderr(&output)
        );
    }
}

/// Names are of files that anybody may have written: see `export::csv`.
#[test]
fn a_timelines_columns_are_no_formulas() {
    let folder = folder();
    let mut h = History::new(1);
    h.alloc(0, 100, 0);
    h.at(S);
    let log = crate::common::write(folder.path(), "s.heaplog", &h.end().0);
    let map = folder.path().join("perf.map");
    std::fs::write(&map, "0 100000 =cmd|' /C calc'!A0\n").unwrap();
    let args = ["--csv", "--top", "1", "--perf-map", map.to_str().unwrap()];
    let csv = ok(&[&["timeline", log.to_str().unwrap()], &args[..]].concat());
    let head = csv.lines().next().unwrap();
    assert!(
        head.ends_with(",\"'=cmd|' /C calc'!A0\",resident_bytes,coarse"),
        "{head}"
    );
}

/// The picture of a log that rotated shows the time that is left, over the whole width. A long name
/// stays within the picture.
#[test]
fn a_picture_is_of_what_is_shown() {
    let folder = folder();
    let mut log = LogBuilder::new(1);
    log.given(&Record::Checkpoint(Checkpoint {
        segment: 3,
        time_ns: 5 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    let stack = log.stack(&[0x2001]);
    log.given(&Record::CheckpointEnd { time_ns: 5 * S });
    log.wait(7 * S);
    log.alloc(stack, 1000);
    let log = crate::common::write(folder.path(), "s.heaplog", &log.end());
    let name = format!("ns::{}::end", "n".repeat(1000));
    let map = folder.path().join("perf.map");
    std::fs::write(&map, format!("2000 100 {name}\n")).unwrap();
    let args = ["--svg", "--top", "1", "--perf-map", map.to_str().unwrap()];
    let svg = ok(&[&["timeline", log.to_str().unwrap()], &args[..]].concat());
    assert!(svg.contains("d=\"M100.0 280.0V"), "{svg}");
    assert!(svg.contains(">5.0 s<") && svg.contains(">7.0 s<"), "{svg}");
    assert!(!svg.contains(">4.5 s<"), "{svg}");
    assert!(svg.contains(&format!("<title>{name}</title>ns::nnn")));
    assert!(svg.contains("…nnn") && svg.contains("n::end</text>"));
}
