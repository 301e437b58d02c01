//! `--older-than`: what is in use and has been for so long, against a naive model.

use crate::common::encoded::{alloc, free, stack, start};
use crate::common::history::{
    ByStack, MS, S, Truth, US, by_stack, folder, json, moment, ok, play, server, server_file,
    steps, view,
};
use crate::common::{heapprof, stderr, write};
use heapprof_core::{Estimate, SizeClass, Weight};
use heapprof_format::{Checkpoint, Encoder, FILE_HEADER, Passed, Record, Sums};
use heapprof_symbolizer::Temporary;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::{
    Metric, Moment, ReadRequest, Symbols, View, WantedExtras, paired_difference_of_log,
    profile_of_view,
};
use proptest::prelude::*;

fn old(age_ns: u64, at: Moment) -> View {
    View::Survivors { age_ns, at }
}

/// The expected numbers, from the list of blocks.
fn survivors(truth: &Truth, age_ns: u64, at_ns: u64) -> ByStack {
    let survives = |block: &crate::common::history::Block| {
        block.came.0.saturating_add(age_ns) <= at_ns && block.went.is_none_or(|went| went.0 > at_ns)
    };
    truth.sum(survives, |_| true)
}

#[test]
fn only_what_was_there_so_long_is_shown() {
    let (log, truth) = server(1);
    for age in [0, US, S, 2500 * MS, 5 * S, 6 * S, 10 * S, 11 * S, u64::MAX] {
        for at in [0, S, 3 * S, 4 * S, 7 * S, 10 * S] {
            let shown = by_stack(&view(&log, old(age, Moment::After(at))));
            assert_eq!(shown, survivors(&truth, age, at), "{age} at {at}");
        }
    }
    // The leak of one block a second, and not what was there from the start.
    let young = by_stack(&view(&log, old(0, Moment::End)))[&3];
    let older = by_stack(&view(&log, old(3 * S, Moment::End)))[&3];
    assert_eq!((young, older), ([5, 2500, 5, 2500], [3, 1500, 3, 1500]));
}

proptest! {
    #[test]
    fn any_history_is_as_the_list_of_its_blocks_says(
        steps in steps(), age in 0u64..60_000, parts in [0.0f64..=1.0, 0.0..=1.0],
    ) {
        let (log, truth) = play(&steps);
        let age = age * US;
        let cuts = parts.map(|part| (part * truth.end as f64) as u64 / US * US);
        for at in cuts {
            let shown = by_stack(&view(&log, old(age, Moment::After(at))));
            prop_assert_eq!(shown, survivors(&truth, age, at));
        }
        let views = cuts.map(|at| old(age, Moment::After(at)));
        for metric in [Metric::InUseBytes, Metric::AllocatedObjects] {
            let (profile, _) = paired_difference_of_log(
                &log, [&views[0], &views[1]], metric.into(), Temporary::default(), |_| {},
            ).unwrap();
            let number = |sums: &ByStack, stack: u32| {
                let [_, bytes, objects, _] = sums.get(&stack).copied().unwrap_or_default();
                if metric == Metric::InUseBytes { bytes as f64 } else { objects as f64 }
            };
            let [before, after] = cuts.map(|at| survivors(&truth, age, at));
            for (stack, change) in profile.changes.iter().enumerate() {
                prop_assert_eq!(change.before, number(&before, stack as u32));
                prop_assert_eq!(change.after, number(&after, stack as u32));
            }
            let told: f64 = profile.changes.iter().map(|change| change.after).sum();
            let all: f64 = after.keys().map(|&stack| number(&after, stack)).sum();
            prop_assert_eq!(told, all);
        }
    }
}

#[test]
fn a_sampled_block_stands_for_as_many_as_ever() {
    let (log, truth) = server(4096);
    let profile = view(&log, old(3 * S, Moment::End));
    let mut expected = Estimate::default();
    for block in truth.blocks.iter().filter(|b| b.went.is_none()) {
        if block.came.0 + 3 * S <= truth.end {
            expected.add(&Weight::of(block.size, 4096));
        }
    }
    assert_eq!(profile.totals().in_use, expected);
    assert_eq!(profile.totals().allocated, expected);
}

/// Rows by thread and single events are survivors', too, in every form.
#[test]
fn every_form_shows_the_same_blocks() {
    let (log, _) = server(1);
    let request = ReadRequest {
        view: old(6 * S, moment("7s")),
        pasts: Some(Temporary::default()),
        extras: WantedExtras::ALL,
        ..ReadRequest::default()
    };
    let profile = profile_of_view(&log, &request, |_| {}).unwrap();
    let total = |allocated: bool| {
        let threads = profile.extras.threads.as_ref().unwrap();
        let totals = threads.iter().map(|thread| thread.row.totals);
        let estimates = totals.map(|totals| match allocated {
            true => totals.allocated,
            false => totals.in_use,
        });
        estimates.map(|e| e.bytes_f64()).sum::<f64>()
    };
    assert_eq!((total(false), total(true)), (100_000.0, 100_000.0));
    assert_eq!(profile.extras.events.as_ref().unwrap().len(), 100);
    assert!(profile.pasts.is_empty());
    for format in Format::ALL {
        let mut out = Vec::new();
        let symbols = Symbols::default();
        format
            .write(&profile, &symbols, &Options::default(), &mut out)
            .unwrap();
        assert!(!out.is_empty(), "{}", format.name());
    }
}

/// Ages are known of blocks in use at the checkpoint. Blocks that were freed before are not shown.
#[test]
fn ages_go_back_to_before_what_is_kept_of_a_log_that_rotates() {
    let folder = folder();
    let mut encoder = Encoder::new();
    start(&mut encoder, 31, 31 * S, vec![]);
    encoder.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 100 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(&mut encoder);
    encoder.record(&Record::Passed(Passed {
        stack: 0,
        class: SizeClass::of(1000).0,
        first_ns: S,
        sums: Sums {
            samples: 7,
            fixed: [7 << 32, 7000 << 32, 0, 0],
        },
    }));
    for (id, time_ns) in [(1, 10 * S), (2, 20 * S), (3, 90 * S)] {
        alloc(&mut encoder, time_ns, id, 1 << id);
    }
    encoder.record(&Record::CheckpointEnd { time_ns: 100 * S });
    alloc(&mut encoder, 101 * S, 4, 1 << 4);
    free(&mut encoder, 105 * S, 2);
    alloc(&mut encoder, 110 * S, 5, 1 << 5);
    let bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    let log = write(folder.path(), "s.heaplog", &bytes);
    let log = log.display().to_string();
    for (age, at, expected) in [
        ("0s", "end", 0b11_1010),
        ("9s", "end", 0b01_1010),
        ("10s", "end", 0b00_1010),
        ("20s", "end", 0b00_1010),
        ("21s", "end", 0b00_0010),
        ("100s", "end", 0b00_0010),
        ("101s", "end", 0),
        ("0s", "100s", 0b00_1110),
        ("80s", "100s", 0b00_0110),
        ("81s", "101s", 0b00_0110),
    ] {
        let top = json(&["top", &log, "--older-than", age, "--at", at, "--json"]);
        let totals = &top["totals"];
        assert_eq!(totals["in-use-bytes"], expected, "{age} at {at}: {totals}");
        assert_eq!(totals["allocated-bytes"], expected, "{age} at {at}");
        let twice = ["diff", &log, "--older-than", age, "--at", at, "--at", at];
        let diff = json(&[&twice[..], &["--json"]].concat());
        assert_eq!(diff["total"]["after"], f64::from(expected), "{age} at {at}");
    }
}

#[test]
fn the_command_line_takes_an_age_and_says_so() {
    let (_folder, log, _) = server_file(1);
    let top = ok(&["top", &log, "--older-than", "6s", "--at", "7s"]);
    let view = "view: in use at 7.000000 s, and for at least 6 s then";
    assert!(top.contains(view), "{top}");
    assert!(
        top.contains(
            "total: in use 100 objects, 100000 bytes; allocated 100 objects, 100000 bytes"
        ),
        "{top}"
    );
    // By itself, at the end.
    let top = json(&["top", &log, "--older-than", "5s", "--json"]);
    assert_eq!(top["totals"]["in-use-bytes"], 100_500);
    let tree = ok(&["tree", &log, "--older-than", "5s"]);
    assert!(tree.contains(view.split(" at").next().unwrap()), "{tree}");
    let folded = ok(&["export", "-f", "folded", &log, "--older-than", "5s"]);
    assert!(
        folded.lines().any(|line| line.ends_with(" 500")),
        "{folded}"
    );
    // Nothing is that old, and nothing else is recommended.
    let none = ok(&["top", &log, "--older-than", "1h"]);
    assert!(none.contains("nothing: in-use-bytes is 0\n"), "{none}");
    // Two logs, at their ends.
    let diff = ["diff", &log, &log, "--older-than", "5s", "--json"];
    assert_eq!(json(&diff)["total"]["after"], 100_500.0);
    let diff = ok(&[
        "diff",
        &log,
        "--older-than",
        "2s",
        "--at",
        "6s",
        "--at",
        "end",
    ]);
    assert!(
        diff.contains("6.000000 s (at least 2 s old) -> 10.000000 s (at least 2 s old)"),
        "{diff}"
    );
}

#[test]
fn an_age_goes_with_a_moment_and_with_what_is_in_use() {
    for (arguments, status, words) in [
        (
            &["top", "x", "--older-than", "1s", "--from", "2s"][..],
            2,
            "--from",
        ),
        (
            &["diff", "x", "--older-than", "1s", "--to", "2s"],
            2,
            "--to",
        ),
        (&["top", "x", "--older-than", "old"], 2, "such as 10ms"),
        (
            &["top", "x", "--older-than", "1s", "-m", "peak"],
            2,
            "leave out one",
        ),
        (
            &["diff", "x", "y", "--older-than", "1s", "-m", "heaptime"],
            2,
            "leave out one",
        ),
        (
            &[
                "export",
                "-f",
                "pprof",
                "x",
                "--older-than",
                "1s",
                "-m",
                "growth",
            ],
            2,
            "leave out one",
        ),
    ] {
        let output = heapprof(arguments);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
