//! The errors of estimates: stated wherever numbers are, adding up, and as large as they say.

use crate::common::history::{History, MS, json, moment, ok, server_file, view};
use crate::common::{heapprof, stdout};
use heapprof_symbolizer::{Moment, View};

#[test]
fn confidence_is_stated_wherever_numbers_are() {
    let (folder, file, _) = server_file(4096);
    // 99 %: 4.61 intervals unseen, 2.576 standard errors; 50 %: 0.69 and 0.674.
    for (percent, unseen, errors) in [
        ("99", 4.605_17, 2.575_83),
        ("50", std::f64::consts::LN_2, 0.674_49),
    ] {
        let with = |args: &[&str]| ok(&[args, &["--confidence", percent]].concat());
        let top: serde_json::Value =
            serde_json::from_str(&with(&["top", &file, "--json"])).unwrap();
        let export: serde_json::Value =
            serde_json::from_str(&with(&["export", &file, "-f", "json"])).unwrap();
        let heaptime: serde_json::Value =
            serde_json::from_str(&with(&["top", &file, "--json", "-m", "heaptime"])).unwrap();
        for document in [&top, &export, &heaptime] {
            let intervals = &document["intervals"];
            assert_eq!(
                intervals["confidence_percent"].to_string(),
                format!("{percent}.0")
            );
            let off = intervals["standard_errors"].as_f64().unwrap() - errors;
            assert!(off.abs() < 1e-4, "{intervals}");
            let off = intervals["unseen_bytes"].as_f64().unwrap() - 4096.0 * unseen;
            assert!(off.abs() < 1.0, "{intervals}");
        }
        let error = export["standard_errors"]["in-use-bytes"].as_f64().unwrap();
        let interval = format!(
            "{percent} % interval of the total: ± {:.0} bytes (in-use-bytes)",
            error * errors
        );
        let bound = format!(
            "could still hold up to {:.0} bytes ({percent} % confidence)",
            4096.0 * unseen
        );
        let folded = with(&["export", &file, "-f", "folded"]);
        assert!(
            folded.contains(&interval) && folded.contains(&bound),
            "{folded}"
        );
        for line in folded.lines().filter(|line| line.starts_with('#')) {
            let last = line.rsplit(' ').next().unwrap();
            assert!(last.parse::<f64>().is_err(), "a reader would count {line}");
        }
        let pprof = folder.path().join("c.pb.gz");
        with(&[
            "export",
            &file,
            "-f",
            "pprof",
            "-o",
            pprof.to_str().unwrap(),
        ]);
        let comments = std::process::Command::new("go")
            .args(["tool", "pprof", "-comments", pprof.to_str().unwrap()])
            .output();
        if let Ok(comments) = comments {
            let comments = stdout(&comments);
            assert!(
                comments.contains(&interval) && comments.contains(&bound),
                "{comments}"
            );
        }
        let text = with(&["top", &file]);
        assert!(
            text.contains(&format!("± is the {percent} % interval")),
            "{text}"
        );
        let info = with(&["info", &file]);
        assert!(info.contains(&format!("({percent} % confidence")), "{info}");
    }
}

/// A dump has no samples to compute errors from. It states them, or nobody knows: nowhere are they
/// 0.
#[test]
fn the_errors_that_a_dump_states_are_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, comment: &str| {
        let text = format!(
            "heap profile: 1: 2000 [3: 4000] @ heapprofile\n# interval: 524288 bytes\n{comment}\
             1: 2000 [3: 4000] @ 0x1010 0x2010\nMAPPED_LIBRARIES:\n"
        );
        let path = crate::common::write(folder.path(), name, text.as_bytes());
        path.to_str().unwrap().to_owned()
    };
    let comment =
        "# standard error: in use 11 objects, 752640 bytes; allocated 13 objects, 14 bytes\n";
    let (stated, another) = (put("stated.heap", comment), put("another.heap", comment));
    let silent = put("silent.heap", "");
    let errors = |args: &[&str], key: &str| json(args)["standard_errors"][key].clone();
    for command in [
        &["export", "-f", "json"][..],
        &["info", "--json"],
        &["top", "--json"],
    ] {
        let of = |files: &[&str], key: &str| errors(&[command, files].concat(), key);
        for (key, error) in [
            ("in-use-objects", 11.0),
            ("in-use-bytes", 752_640.0),
            ("allocated-objects", 13.0),
            ("allocated-bytes", 14.0),
        ] {
            assert_eq!(of(&[&stated], key), error, "{command:?} {key}");
            assert!(of(&[&silent], key).is_null(), "{command:?} {key}");
        }
        // The error of two profiles is the root of the sum of squares.
        let two = of(&[&stated, &another], "in-use-bytes").as_f64().unwrap();
        assert!((two / 752_640.0 - 2f64.sqrt()).abs() < 1e-9, "{command:?}");
    }
}

/// A parent's variance is the sum of its children's, and that of two logs' difference of the two.
#[test]
fn errors_add_up_call_trees() {
    let (_folder, file, _) = server_file(4096);
    let top = json(&["top", &file, "--json", "--cum", "-n", "0"]);
    let total = top["standard_errors"]["in-use-bytes"].as_f64().unwrap();
    let sites = top["sites"].as_array().unwrap();
    let own = sites
        .iter()
        .map(|s| s["self_errors"]["in-use-bytes"].as_f64().unwrap());
    let sum: f64 = own.map(|error| error * error).sum();
    assert!(
        total > 0.0 && (sum.sqrt() - total).abs() < 1e-6 * total,
        "{sum} {total}"
    );
    // Every stack passes the allocator's frame.
    let all = sites
        .iter()
        .map(|s| s["cumulative_errors"]["in-use-bytes"].as_f64().unwrap());
    let most = all.fold(0.0, f64::max);
    assert!((most - total).abs() < 1e-6 * total, "{most} {total}");
}

#[test]
fn errors_are_shown_and_few_samples_marked() {
    let (_folder, file, _) = server_file(4096);
    let text = ok(&["top", &file]);
    assert!(text.contains("± is the 95 % interval"), "{text}");
    assert!(text.contains("~ rests on fewer than 10 samples"), "{text}");
    let wider = ok(&["top", &file, "--confidence", "99"]);
    assert!(wider.contains("± is the 99 % interval"), "{wider}");
    assert!(
        !heapprof(&["top", &file, "--confidence", "100"])
            .status
            .success()
    );
    let info = ok(&["info", &file]);
    // 3.0 × 4096 bytes
    assert!(info.contains("could still hold up to 12.0 KiB"), "{info}");
    let exact = ok(&["top", &server_file(1).1]);
    assert!(!exact.contains('±'), "{exact}");
}

/// Logs of one program, sampled again and again: the interval that `top` shows at 95 % holds the
/// truth in 93 to 97 % of 2,000 runs (standard error 0.5 %: a false alarm is beyond 4 of those,
/// once in 16,000), for what is in use at the end, in the middle, and what came in between.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    use heapprof_core::Sampler;
    const INTERVAL: u64 = 1024;
    const RUNS: u64 = 2000;
    let sizes = [24usize, 100, 700, 3000, 40, 20_000, 8];
    let half = heapprof_symbolizer::Confidence::default().standard_errors();
    let mut covered = [0u64; 3];
    for run in 0..RUNS {
        let mut sampler = Sampler::default();
        // Not a multiple of the golden ratio: generators that step by it would give each run the
        // last one's numbers, shifted by one.
        sampler.start(run.wrapping_mul(0x1234_5678_9abc_def1), INTERVAL);
        let mut h = History::new(INTERVAL);
        let mut truth = [0u64; 3];
        let mut sampled = Vec::new();
        for i in 0..1000u64 {
            h.at(i * MS);
            let size = sizes[i as usize % sizes.len()];
            let is_freed = i % 2 == 0;
            if !sampler.passes(size) {
                let block = h.alloc((i % 4) as u32, size as u64, 0);
                if is_freed {
                    sampled.push((i + 300, block));
                }
                sampler.draw(INTERVAL);
            }
            while let Some(&(when, block)) = sampled.first().filter(|(when, _)| *when <= i) {
                assert!(when <= i);
                h.free(block);
                sampled.remove(0);
            }
            let lives_at = |t: u64| i <= t && (!is_freed || i + 300 > t);
            for (truth, counts) in
                truth
                    .iter_mut()
                    .zip([lives_at(999), lives_at(500), i > 500 && lives_at(999)])
            {
                *truth += size as u64 * u64::from(counts);
            }
        }
        h.at(999 * MS);
        let (log, _) = h.end();
        let views = [
            View::Whole,
            View::At(moment("500ms")),
            View::Window(moment("500ms"), Moment::End),
        ];
        for ((asked, truth), covered) in views.into_iter().zip(truth).zip(&mut covered) {
            let totals = view(&log, asked).totals().in_use;
            let off = (totals.bytes_f64() - truth as f64).abs();
            *covered += u64::from(off <= half * totals.bytes_error());
        }
    }
    for covered in covered {
        let part = covered as f64 / RUNS as f64;
        assert!((0.93..=0.97).contains(&part), "{part}: {covered} of {RUNS}");
    }
}

/// Nothing was sampled, or nothing of it is left: that is not 0 ± 0.
#[test]
fn what_has_no_sample_has_a_bound_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, interval: u64, blocks: u64| {
        let mut log = crate::common::LogBuilder::new(interval);
        let stack = log.stack(&[0x1101]);
        for _ in 0..blocks {
            let id = log.alloc(stack, 1000);
            log.free(id);
        }
        let path = crate::common::write(folder.path(), name, &log.end());
        path.to_str().unwrap().to_owned()
    };
    let (none, freed) = (
        put("none.heaplog", 524_288, 0),
        put("freed.heaplog", 524_288, 5),
    );
    let exact = put("exact.heaplog", 1, 5);
    const BOUND: &str = "no samples: less than 1.5 MiB (95 % confidence)";
    for (file, allocated_is_known) in [(&none, false), (&freed, true)] {
        let text = ok(&["top", file]);
        assert!(text.contains(&format!("  in use     {BOUND}")), "{text}");
        let is_bound = text.contains(&format!("  allocated  {BOUND}"));
        assert_eq!(is_bound, !allocated_is_known, "{text}");
        for args in [
            &["top", "--json"][..],
            &["info", "--json"],
            &["export", "-f", "json"],
        ] {
            let errors = &json(&[args, &[file]].concat())["standard_errors"];
            assert!(errors["in-use-bytes"].is_null() && errors["in-use-objects"].is_null());
            assert_eq!(errors["allocated-bytes"].is_null(), !allocated_is_known);
        }
        let folded = ok(&["export", "-f", "folded", file]);
        assert!(
            folded.contains("no samples: in-use-bytes of blocks of less than 15"),
            "{folded}"
        );
        let dump = ok(&["export", "-f", "gperftools", file]);
        assert!(dump.contains("no samples: in use less than 15"), "{dump}");
        let svg = ok(&["export", "-f", "flamegraph", file]);
        assert!(
            svg.contains("no samples: blocks of less than 1.5 MiB"),
            "{svg}"
        );
    }
    let text = ok(&["top", &exact]);
    assert!(text.contains("  in use     0 B in 0 blocks"), "{text}");
    let document = json(&["top", "--json", &exact]);
    assert_eq!(document["standard_errors"]["in-use-bytes"], 0.0);
}

/// The peak has its time and its error, where it is well above what is in use. It is of the whole
/// run, so a part of the run has none.
#[test]
fn the_head_tells_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, interval: u64, kept: usize| {
        let mut log = crate::common::LogBuilder::new(interval);
        log.begins(crate::common::processes::begin(name.len() as u32, interval));
        let stack = log.stack(&[0x1101]);
        let ids: Vec<_> = (0..100).map(|_| log.alloc(stack, 100_000)).collect();
        for id in &ids[kept..] {
            log.free(*id);
        }
        let path = crate::common::write(folder.path(), name, &log.end());
        path.to_str().unwrap().to_owned()
    };
    let line = |text: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with("  peak "));
        lines.next().map(str::to_owned)
    };
    let exact = put("exact.heaplog", 1, 10);
    let text = ok(&["top", &exact]);
    let expected = "  peak       9.5 MiB in use at ";
    let found = line(&text).unwrap_or_default();
    assert!(found.starts_with(expected), "{text}");
    let peak = &json(&["top", "--json", &exact])["peak"];
    assert_eq!(
        (&peak["bytes"], &peak["error"]),
        (&10e6.into(), &0.0.into())
    );
    let summary = &json(&["info", "--json", &exact])["peak"];
    let exported = &json(&["export", "-f", "json", &exact])["peak"];
    let timeline = &json(&["timeline", "--json", &exact])["peak"];
    assert!(peak == summary && peak == exported && peak == timeline);

    // Each sample stands for 563 KiB.
    let sampled = ok(&["top", &put("sampled.heaplog", 524_288, 10)]);
    let found = line(&sampled).unwrap_or_default();
    assert!(found.contains("  peak       54.9 MiB ± 9."), "{found}");
    for args in [
        &["top", "--at", "1ms"][..],
        &["top", "--focus", "."],
        &["info", "--to", "150ms"],
    ] {
        let text = ok(&[args, &[&exact]].concat());
        assert_eq!(line(&text), None, "{args:?}: {text}");
    }
    let kept = put("kept.heaplog", 1, 95);
    assert_eq!(line(&ok(&["top", &kept])), None, "5 % above the end");
    assert!(json(&["top", "--json", &kept])["peak"]["bytes"] == 10e6);
    let both = ok(&["top", &exact, &put("another.heaplog", 1, 20)]);
    assert_eq!(line(&both), None, "of several processes there is no sum");
}
