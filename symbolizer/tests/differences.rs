//! Differences of two views of one log, for every metric that is a sum: what is before and after is
//! what `top` shows of each view, and the error is that of what differs, sample by sample.

use crate::common::{LogBuilder, heapprof, json, ok, stderr};
use heapprof_core::Weight;
use heapprof_format::{Alloc, Record};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

const METRICS: [&str; 11] = [
    "in-use-bytes",
    "in-use-objects",
    "allocated-bytes",
    "allocated-objects",
    "slack",
    "temporary",
    "temporary-objects",
    "heaptime",
    "heaptime-objects",
    "growth",
    "growth-objects",
];

/// A block's life in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Block {
    size: u64,
    slack: u64,
    came: u64,
    went: Option<u64>,
}

/// A log of 3 s with five sites whose blocks live from microseconds to all the time, and its
/// blocks.
fn log(interval: u64) -> (tempfile::TempDir, String, Vec<Block>) {
    let mut log = LogBuilder::new(interval);
    log.module("/bin/server", 0x1000, 0x1000);
    let stacks = [0, 1, 2, 3, 4].map(|i| log.stack(&[0x1101, 0x1201 + 16 * i, 0x1301]));
    let mut blocks: Vec<Block> = Vec::new();
    let mut state = 11u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut now = 0;
    // In order of time: the blocks that wait for their ends.
    let mut ends: Vec<(u64, usize)> = Vec::new();
    while now < 3000 * MS {
        now += MS + random(9 * MS);
        ends.sort_unstable();
        while let Some(&(end, block)) = ends.first()
            && end <= now
        {
            ends.remove(0);
            blocks[block].went = Some(end);
            log.record_at(end, |time_ns| {
                Record::Free(heapprof_format::Free {
                    time_ns,
                    thread: 0,
                    id: block as u64 + 1,
                })
            });
        }
        let (size, slack) = (1 + random(3000), random(100));
        let stack = stacks[random(5) as usize];
        let id = blocks.len() as u64 + 1;
        log.record_at(now, |time_ns| {
            Record::Alloc(Alloc {
                time_ns,
                thread: 0,
                id,
                size,
                slack,
                stack,
                interval,
            })
        });
        blocks.push(Block {
            size,
            slack,
            came: now,
            went: None,
        });
        match random(4) {
            0 => {}
            1 => ends.push((now + random(900) * 1000, blocks.len() - 1)),
            _ => ends.push((now + random(1500) * MS, blocks.len() - 1)),
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = crate::common::write(folder.path(), "s.heaplog", &log.end());
    (folder, path.to_str().unwrap().to_owned(), blocks)
}

/// Two views, as `diff` is asked for both, and as `top` is for each.
const VIEWS: [[[&str; 4]; 2]; 4] = [
    [["--at", "700ms", "", ""], ["--at", "2s", "", ""]],
    [["--at", "2s", "", ""], ["--at", "start", "", ""]],
    [
        ["--from", "200ms", "--to", "900ms"],
        ["--from", "1s", "--to", "2.5s"],
    ],
    [
        ["--from", "start", "--to", "1.5s"],
        ["--from", "1s", "--to", "2.9s"],
    ],
];

fn words(view: [&str; 4]) -> Vec<&str> {
    view.into_iter().filter(|word| !word.is_empty()).collect()
}

/// Returns the numbers that `top` shows of a view, by function.
fn shown(file: &str, view: [&str; 4], metric: &str) -> BTreeMap<String, f64> {
    let args = [
        &["top", "--json", "-n", "0", file, "-m", metric],
        &words(view)[..],
    ]
    .concat();
    let document = json(&args);
    let sites = document["sites"].as_array().unwrap().iter();
    sites
        .map(|site| {
            let own = &site["self"];
            let value = own.as_f64().or(own[metric].as_f64()).unwrap();
            (site["function"].as_str().unwrap().to_owned(), value)
        })
        .collect()
}

#[test]
fn both_sides_are_what_top_shows_of_each_view() {
    for interval in [1, 2000] {
        let (_folder, file, _) = log(interval);
        for views in VIEWS {
            for metric in METRICS {
                let both = [&words(views[0])[..], &words(views[1])].concat();
                let args = [
                    &["diff", "--json", "-n", "0", &file, "-m", metric],
                    &both[..],
                ]
                .concat();
                let document = json(&args);
                let sides = views.map(|view| shown(&file, view, metric));
                let sites = document["sites"].as_array().unwrap();
                assert!(!sites.is_empty(), "{metric} {views:?}");
                let mut seen = Vec::new();
                for site in sites {
                    let function = site["function"].as_str().unwrap();
                    seen.push(function.to_owned());
                    for (key, side) in ["before", "after"].into_iter().zip(&sides) {
                        let is = site[key].as_f64().unwrap();
                        let was = side.get(function).copied().unwrap_or(0.0);
                        // The four are shown rounded, row by row, of which a site has 12 at most.
                        let rounding = match METRICS[..4].contains(&metric) && interval > 1 {
                            true => 6.0,
                            false => 0.0,
                        };
                        assert!(
                            (is - was).abs() <= rounding + 1e-6 * was.abs() + 1e-9,
                            "{metric} {views:?} {function} {key}: {is} is not {was}"
                        );
                    }
                    let of = |key: &str| site[key].as_f64().unwrap();
                    let off = of("difference") - (of("after") - of("before"));
                    assert!(
                        off.abs() <= 1e-6 * of("after").abs() + 1e-6,
                        "{metric} {off}"
                    );
                }
                for function in sides.iter().flat_map(BTreeMap::keys) {
                    let same = sides[0].get(function) == sides[1].get(function);
                    assert!(
                        same || seen.contains(function),
                        "{metric} {function} is missing"
                    );
                }
                if interval == 1 {
                    assert_eq!(document["total"]["standard_error"], 0.0, "{metric}");
                    assert_eq!(document["total"]["verdict"], "exact");
                }
            }
        }
    }
}

/// Returns a block's part of a view's sum by the metric's definition, as a multiple of 1, size or
/// slack.
fn part(metric: &str, block: Block, from: Option<u64>, to: u64) -> f64 {
    let begin = from.unwrap_or(0);
    let end = block.went.unwrap_or(u64::MAX).min(to);
    let came_in_it = from.is_none_or(|from| block.came > from) && block.came <= to;
    let is_gone = block.went.is_some_and(|went| went <= to);
    let yes = |is_so| if is_so { 1.0 } else { 0.0 };
    match metric {
        "in-use-bytes" | "in-use-objects" | "slack" => yes(came_in_it && !is_gone),
        "allocated-bytes" | "allocated-objects" => yes(came_in_it),
        "temporary" | "temporary-objects" => {
            yes(came_in_it && is_gone && end - block.came <= 10 * MS)
        }
        "heaptime" | "heaptime-objects" => match came_in_it {
            true => (end - block.came) as f64 / 1e9,
            false => 0.0,
        },
        _ if block.came > to || end <= begin => 0.0,
        _ => {
            // The slope's definition, its integrals taken by small steps.
            let t = (to - begin) as f64 / 1e9;
            let (b, d) = (
                block.came.saturating_sub(begin) as f64 / 1e9,
                (end - begin) as f64 / 1e9,
            );
            const STEPS: u32 = 64;
            let step = (d - b) / f64::from(STEPS);
            let above: f64 = (0..STEPS)
                .map(|i| (b + (f64::from(i) + 0.5) * step - t / 2.0) * step)
                .sum();
            above / (t * t * t / 12.0)
        }
    }
}

#[test]
fn the_error_is_that_of_what_differs() {
    let interval = 2000;
    let (_folder, file, blocks) = log(interval);
    // In nanoseconds, what VIEWS says.
    let times: [[(Option<u64>, u64); 2]; 4] = [
        [(None, 700), (None, 2000)],
        [(None, 2000), (None, 0)],
        [(Some(200), 900), (Some(1000), 2500)],
        [(None, 1500), (Some(1000), 2900)],
    ];
    for (views, times) in VIEWS.into_iter().zip(times) {
        for metric in METRICS {
            let both = [&words(views[0])[..], &words(views[1])].concat();
            let args = [&["diff", "--json", &file, "-m", metric], &both[..]].concat();
            let total = &json(&args)["total"];
            let (mut difference, mut variance) = (0.0, 0.0);
            for &block in &blocks {
                let [first, second] =
                    times.map(|(from, to)| part(metric, block, from.map(|ms| ms * MS), to * MS));
                let p = -(-(block.size as f64) / interval as f64).exp_m1();
                let x = match metric {
                    "slack" => block.slack as f64,
                    metric if metric.ends_with("objects") => 1.0,
                    _ => block.size as f64,
                };
                let weight = Weight::of(block.size, interval).objects_f64();
                assert!((weight * p - 1.0).abs() < 1e-6);
                difference += x * (second - first) / p;
                variance += (x * (second - first)).powi(2) * (1.0 - p) / (p * p);
            }
            let is = total["difference"].as_f64().unwrap();
            // Times are kept in microseconds.
            let near = |is: f64, was: f64| (is - was).abs() <= 1e-4 * was.abs() + 1e-2;
            assert!(
                near(is, difference),
                "{metric} {views:?}: {is} is not {difference}"
            );
            let is = total["standard_error"].as_f64().unwrap();
            assert!(
                near(is, variance.sqrt()),
                "{metric} {views:?}: {is} is not ± {}",
                variance.sqrt()
            );
        }
    }
}

#[test]
fn what_is_there_at_both_moments_has_no_error() {
    let mut log = LogBuilder::new(4096);
    let (stays, comes) = (log.stack(&[0x1101]), log.stack(&[0x1201]));
    for _ in 0..50 {
        log.alloc(stays, 10);
    }
    log.wait(1000 * MS);
    for _ in 0..50 {
        log.alloc(comes, 10);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = crate::common::write(folder.path(), "s.heaplog", &log.end());
    let file = file.to_str().unwrap();
    for metric in ["in-use-bytes", "slack", "allocated-bytes"] {
        let document = json(&[
            "diff", "--json", file, "--at", "1s", "--at", "end", "-m", metric,
        ]);
        let sites = document["sites"].as_array().unwrap();
        assert!(sites.len() <= 1, "{metric}: {sites:?}");
    }
    // The same window twice differs in nothing.
    let same = [
        "--from", "10ms", "--to", "1s", "--from", "10ms", "--to", "1s",
    ];
    for metric in METRICS {
        let text = ok(&[&["diff", file, "-m", metric], &same[..]].concat());
        assert!(text.contains("nothing differs"), "{metric}: {text}");
    }
}

#[test]
fn what_is_no_difference_is_refused_with_the_reason() {
    let (_folder, file, _) = log(1);
    let refused = |args: &[&str], why: &str| {
        let out = heapprof(&[&["diff", &file], args].concat());
        assert!(!out.status.success(), "{args:?}");
        assert!(stderr(&out).contains(why), "{args:?}: {}", stderr(&out));
    };
    refused(
        &["--at", "1s", "--at", "2s", "-m", "peak"],
        "peak is of one moment",
    );
    refused(&["--at", "1s"], "one log at two moments");
    refused(&["--from", "1s", "--to", "2s"], "in two windows");
    refused(
        &["--from", "1s", "--from", "2s", "--to", "2s"],
        "a window has a --from and a --to",
    );
    refused(
        &["--at", "1s", "--at", "2s", "--at", "2.5s"],
        "more than twice",
    );
    refused(
        &["--from", "2s", "--to", "1s", "--from", "2s", "--to", "2.1s"],
        "before it begins",
    );
    let out = heapprof(&[
        "diff",
        &file,
        "--from",
        "0",
        "--to",
        "1s",
        "--from",
        "1s",
        "--to",
        "1.5s",
        "-m",
        "allocated-bytes",
    ]);
    assert!(
        stderr(&out).contains("the windows last 1.000 s and 0.500 s"),
        "{}",
        stderr(&out)
    );
}
