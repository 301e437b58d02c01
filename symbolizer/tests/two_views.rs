//! Differences between two moments of a log, or two logs. (`differences.rs`: by every metric.)

use crate::common::history::{History, S, folder, json, ok, server, server_file};
use crate::common::{heapprof, stderr, stdout};
use heapprof_format::{Encoder, FILE_HEADER, Record, Start};

#[test]
fn two_moments_of_one_log_differ_by_what_changed() {
    let (_folder, file, _) = server_file(1);
    let exact = json(&["diff", &file, "--at", "3s", "--at", "end", "--json"]);
    let total = &exact["total"];
    assert_eq!(total["difference"], -47_500.0);
    assert_eq!(
        (&total["before"], &total["after"]),
        (&150_000.0.into(), &102_500.0.into())
    );
    assert_eq!(total["verdict"], "exact");
    let sites = exact["sites"].as_array().unwrap();
    assert_eq!(
        (sites.len(), sites[0]["difference"].as_f64()),
        (2, Some(-50_000.0))
    );

    // Sampled: what stays (100 blocks) has no part in the error.
    let (_folder, file, truth) = server_file(4096);
    let sampled = json(&["diff", &file, "--at", "3s", "--at", "end", "--json"]);
    let mut expected = heapprof_core::Estimate::default();
    for b in &truth.blocks {
        let (then, now) = (
            b.came.0 <= 3 * S && b.went.is_none_or(|w| w.0 > 3 * S),
            b.went.is_none(),
        );
        if then != now {
            expected.add(&heapprof_core::Weight::of(b.size, 4096));
        }
    }
    let error = sampled["total"]["standard_error"].as_f64().unwrap();
    assert!((error - expected.bytes_error()).abs() < 1e-3, "{error}");
    let stays = json(&["diff", &file, "--at", "5500ms", "--at", "5600ms", "--json"]);
    assert_eq!(stays["total"]["standard_error"], 0.0);
    let few = json(&[
        "diff",
        &file,
        "--at",
        "3s",
        "--at",
        "end",
        "--json",
        "--min-significance",
        "3",
    ]);
    let all = sampled["sites"].as_array().unwrap().len();
    assert!(few["sites"].as_array().unwrap().len() < all);
}

#[test]
fn two_runs_differ_with_the_errors_of_both() {
    let (folder, a, _) = server_file(4096);
    let b = folder.path().join("b.heaplog");
    std::fs::copy(&a, &b).unwrap();
    let b = b.to_str().unwrap();
    let same = json(&["diff", &a, b, "--json"]);
    assert_eq!(same["total"]["difference"], 0.0);
    let top = json(&["top", &a, "--json"]);
    let single = top["standard_errors"]["in-use-bytes"].as_f64().unwrap();
    let error = same["total"]["standard_error"].as_f64().unwrap();
    // And some more, for blocks of about the interval's size: that few are missed is no normal
    // distribution.
    let both = single * 2f64.sqrt();
    assert!((1.0..1.05).contains(&(error / both)), "{error} {single}");

    let exact = crate::common::write(folder.path(), "exact.heaplog", &server(1).0);
    let out = heapprof(&["diff", &a, exact.to_str().unwrap()]);
    assert!(stderr(&out).contains("sampling intervals differ (4096 bytes and 1 bytes)"));
    let other = crate::common::write(folder.path(), "o.heaplog", &{
        let mut log = crate::common::LogBuilder::new(1);
        log.program("/bin/other");
        let stack = log.stack(&[0x10]);
        log.alloc(stack, 1);
        log.end()
    });
    let out = heapprof(&["diff", &a, other.to_str().unwrap()]);
    assert!(!out.status.success());
    assert!(
        stderr(&out).contains("different programs"),
        "{}",
        stderr(&out)
    );
    assert!(!heapprof(&["diff", &a]).status.success());
}

/// Two logs of one program whose module was rebuilt, sampled differently, of different length.
#[test]
fn a_difference_says_what_else_differs() {
    let folder = folder();
    let log = |name: &str, interval: u64, build_id: u8, program: &str, seconds: u64| {
        let mut h = History::new(interval);
        h.encoder.record(&Record::Module(heapprof_format::Module {
            number: 0,
            time_ns: 0,
            path: "/lib/libx.so".into(),
            build_id: vec![build_id; 4],
            stamp: None,
            bias: 0,
            segments: vec![],
        }));
        h.record += 1;
        h.alloc(0, 100_000, 0);
        h.at(seconds * S);
        let (mut bytes, _) = h.end();
        if program != "server" {
            // Names of the same length, in a frame whose checksum must be right: written anew.
            let mut encoder = Encoder::new();
            encoder.record(&Record::Start(Start {
                program: format!("/bin/{program}"),
                interval,
                ..Start::default()
            }));
            bytes = [&FILE_HEADER[..], encoder.finish()].concat();
        }
        let path = crate::common::write(folder.path(), name, &bytes);
        path.to_str().unwrap().to_owned()
    };
    let a = log("a.heaplog", 4096, 1, "server", 10);
    let b = log("b.heaplog", 8192, 2, "server", 20);
    let other = log("c.heaplog", 4096, 1, "client", 10);
    let out = heapprof(&["diff", &a, &b, "--json"]);
    let remarks = [
        "sampling intervals differ (4096 bytes and 8192 bytes)",
        "libx.so was rebuilt in between",
        "the runs lasted 10.0 s and 20.0 s",
    ];
    let document: serde_json::Value = serde_json::from_str(&stdout(&out)).unwrap();
    for (i, remark) in remarks.into_iter().enumerate() {
        assert!(stderr(&out).contains(remark), "{remark}: {}", stderr(&out));
        let said = document["remarks"][i].as_str().unwrap();
        assert!(said.contains(remark), "{said}");
    }
    let out = heapprof(&["diff", &a, &other]);
    assert!(!out.status.success() && stdout(&out).is_empty());
    assert!(stderr(&out).contains("the first is of server, the second of client"));
    let forced = heapprof(&["diff", &a, &other, "--force", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&stdout(&forced)).unwrap();
    assert!(document["remarks"][0].as_str().unwrap().contains("client"));
    // Durations that are printed alike do not differ.
    let brief = |name: &str, ms: u64| {
        let mut log = crate::common::LogBuilder::new(1);
        log.wait(ms * 1_000_000);
        let stack = log.stack(&[0x10]);
        log.alloc(stack, 1);
        let path = crate::common::write(folder.path(), name, &log.end());
        path.to_str().unwrap().to_owned()
    };
    let out = heapprof(&["diff", &brief("d.heaplog", 2), &brief("e.heaplog", 20)]);
    assert!(
        !stderr(&out).contains("the runs lasted"),
        "{}",
        stderr(&out)
    );
    // Equal files have nothing to be said about.
    let same = heapprof(&["diff", &a, &a, "--json"]);
    assert_eq!(stderr(&same), "");
}

#[test]
fn a_difference_is_drawn_and_written_for_others() {
    let (folder, file, _) = server_file(1);
    let svg = folder.path().join("d.svg");
    let moments = ["--at", "3s", "--at", "end"];
    let run = |args: &[&str]| ok(&[&["diff", &file][..], &moments, args].concat());
    run(&["--flamegraph", "-o", svg.to_str().unwrap()]);
    let svg = std::fs::read_to_string(svg).unwrap();
    // The requests went (50,000), the leak came (2,500).
    assert!(svg.contains("[-48.8 KiB exact]") && svg.contains("rgb(103,169,207)"));
    assert!(svg.contains("[+2.4 KiB exact]") && svg.contains("rgb(239,138,98)"));
    let folded = run(&["--folded"]);
    let numbers: Vec<(u64, u64)> = folded
        .lines()
        .map(|line| {
            let mut words = line.rsplitn(3, ' ').map(|n| n.parse().unwrap_or(0));
            let after = words.next().unwrap();
            (words.next().unwrap(), after)
        })
        .collect();
    let mut sorted = numbers.clone();
    sorted.sort();
    assert_eq!(sorted, [(0, 2500), (50_000, 0), (100_000, 100_000)]);
    // A site that did not change is not significant, even for a picture.
    assert_eq!(
        run(&["--folded", "--min-significance", "3"])
            .lines()
            .count(),
        2
    );
    let same = json(&["diff", &file, &file, "-m", "heaptime", "--json"]);
    assert_eq!(same["total"]["before"], 1_160_500.001);
    assert_eq!(
        (&same["unit"], &same["total"]["verdict"]),
        (&"byte-seconds".into(), &"exact".into())
    );
}
