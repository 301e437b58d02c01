//! The commands, of several processes that are joined: forks, code made at run time, curves.

use crate::common::LogBuilder;
use crate::common::processes::{S, begin, load, put};
use heapprof_format::{FORKED_AT, PARENT_LOG, Start};
use heapprof_symbolizer::By;

const MS: u64 = 1_000_000;

/// A child has what its parent had: from the parent's log, or, where that is joined as well, there
/// alone.
#[test]
fn what_a_child_inherited_is_there_once() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| put(folder.path(), name, bytes);
    let run = |args: &[&str]| crate::common::ok(args);
    let mut parent = LogBuilder::new(1);
    parent.begins(begin(30, 1));
    load(&mut parent, 0, 0x1000);
    let stack = parent.stack(&[0x1101, 0x1201]);
    let config = parent.alloc(stack, 5000);
    parent.wait(4 * S);
    let parent = put("parent.heaplog", &parent.end());
    let child = |pid: u32| {
        let mut child = LogBuilder::new(1);
        child.begins(Start {
            forked_from: 30,
            parent_log_number: 30,
            wall_ns: begin(30, 1).wall_ns + S,
            monotonic_ns: 31 * S,
            settings: vec![
                (FORKED_AT.into(), (31 * S).to_string()),
                (PARENT_LOG.into(), parent.clone()),
            ],
            ..begin(pid, 1)
        });
        child.flush();
        load(&mut child, 0, 0x1000);
        let own = child.stack(&[0x1101, 0x1301]);
        child.wait(S);
        child.free(config);
        child.alloc_as(1000, own, 9);
        child.wait(MS);
        child.end()
    };
    let children = [31, 32].map(|pid| put(&format!("{pid}.heaplog"), &child(pid)));
    let out = folder.path().join("all.heaplog").display().to_string();
    // With the parent: its block, and a small one of each child, while these are there.
    run(&["join", "-o", &out, &parent, &children[0], &children[1]]);
    let elsewhere =
        "what 2 of them had from before their fork is counted in the parent's log alone";
    assert!(run(&["top", &out]).contains(elsewhere));
    let at = |moment: &str| crate::common::totals_line(&run(&["top", &out, "--at", moment]));
    assert_eq!(at("1.5"), [1, 5000, 1, 5000]);
    assert_eq!(at("peak"), [3, 5018, 3, 5018]);
    assert_eq!(at("end"), [1, 5000, 3, 5018]);
    // A bundle of a child has it inside, and that is left out.
    let bundle = folder.path().join("31.tar").display().to_string();
    run(&["bundle", "-o", &bundle, &children[0]]);
    for how in [&["top"][..], &["top", "--joined", "--at", "peak"]] {
        let top = run(&[how, &[&parent, &bundle]].concat());
        assert_eq!(crate::common::totals_line(&top), [2, 5009, 2, 5009]);
        assert!(top.contains("what 1 of them had from before"), "{top}");
        assert!(!top.contains("counted in each"), "{top}");
    }
    // Without it: each child has that block from its own beginning on, and frees it; it was not
    // allocated then.
    run(&["join", "-o", &out, &children[0], &children[1]]);
    let in_each = "what 2 of them had from before their fork is counted in each";
    assert!(run(&["top", &out]).contains(in_each));
    assert!(run(&["top", &children[0], &children[1]]).contains(in_each));
    assert_eq!(at("0.5"), [2, 10_000, 2, 10_000]);
    assert_eq!(at("end"), [2, 18, 4, 10_018]);
    // Nor in a window, and no occasion for a dump: two blocks of nine bytes are.
    let window = run(&["top", &out, "--from", "0", "--to", "end"]);
    assert_eq!(crate::common::totals_line(&window), [2, 18, 2, 18]);
    let dumps = run(&["dump", "--every", "5B", "-o", &out, &out]);
    assert_eq!(dumps.lines().count(), 2, "{dumps}");
    let steps = run(&[
        "timeline",
        "--csv",
        "--steps",
        "4",
        &children[0],
        &children[1],
    ]);
    let allocated: Vec<&str> = (steps.lines())
        .map(|line| line.split(',').nth(4).unwrap())
        .collect();
    assert_eq!(
        allocated,
        ["allocated_bytes", "0", "0", "0", "18"],
        "{steps}"
    );
}

/// Code made at run time lies at one address in two processes, and each has a map of its own: in
/// the joined log, and in a bundle of it.
#[test]
fn code_made_at_run_time_keeps_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let logs = [40, 41].map(|pid| {
        let mut log = LogBuilder::new(1);
        log.begins(begin(pid, 1));
        load(&mut log, 0, 0x1000);
        let stack = log.stack(&[0x1101, 0x7000_0011, 0x1201]);
        log.alloc(stack, u64::from(pid));
        put(folder.path(), &format!("{pid}.heaplog"), &log.cut())
    });
    let tmp = folder.path().join("root/tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    for (pid, name) in [(40, "renders"), (41, "parses")] {
        let map = format!("70000000 40 {name}\n");
        std::fs::write(tmp.join(format!("perf-{pid}.map")), map).unwrap();
    }
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (root, joined, bundle) = (path("root"), path("all.heaplog"), path("all.tar"));
    crate::common::ok(&["join", "-o", &joined, &logs[0], &logs[1]]);
    crate::common::ok(&["bundle", "--sysroot", &root, "-o", &bundle, &joined]);
    for args in [
        vec!["top", "--sysroot", &root, &joined],
        vec!["top", &bundle],
    ] {
        let top = crate::common::ok(&args);
        for (bytes, name) in [(" 40 B", "renders"), (" 41 B", "parses")] {
            let is_it = |line: &str| line.contains(bytes) && line.contains(name);
            assert!(top.lines().any(is_it), "{args:?}: {top}");
        }
    }
}

/// The curves of a step add up to the most bytes in use in it, and at the peak each is what `top`
/// says of the peak, whatever the curves are of.
#[test]
fn curves_are_what_top_says_at_the_peak() {
    let folder = tempfile::tempdir().unwrap();
    let logs = crate::common::processes::three(folder.path(), [1, 4096, 1]);
    let asked = |args: &[&str]| -> serde_json::Value {
        let args: Vec<&str> = args
            .iter()
            .copied()
            .chain(logs.iter().map(String::as_str))
            .collect();
        serde_json::from_str(&crate::common::ok(&args)).unwrap()
    };
    // Each row of a group is rounded by itself.
    let is = |drawn: f64, said: f64| (drawn - said).abs() <= 50.0;
    // Mappings are no blocks, and have measures of their own.
    for by in By::ALL
        .map(By::name)
        .into_iter()
        .filter(|&by| by != "mapping")
    {
        let drawn = asked(&[
            "timeline", "--json", "--steps", "5", "--top", "50", "--by", by,
        ]);
        let top = asked(&[
            "top", "--joined", "--json", "-n", "0", "--by", by, "--at", "peak",
        ]);
        let groups = top["groups"].as_array().unwrap();
        let names = drawn["groups"].as_array().unwrap();
        assert!(!names.is_empty(), "{by}");
        let mut steps_with_peak = 0;
        for step in drawn["steps"].as_array().unwrap() {
            let highest = step["highest_in_use_bytes"].as_f64().unwrap();
            let curves: Vec<f64> = step["groups_in_use_bytes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|it| it.as_f64().unwrap())
                .collect();
            assert!(is(curves.iter().sum(), highest), "{by}: {step}");
            if highest != drawn["peak"]["bytes"].as_f64().unwrap() {
                continue;
            }
            steps_with_peak += 1;
            for (name, drawn) in names.iter().zip(curves) {
                let group = groups.iter().find(|group| group["name"] == *name);
                let said = group.map_or(0.0, |it| it["self"]["in-use-bytes"].as_f64().unwrap());
                assert!(is(drawn, said), "{by}, {name}: {drawn}, {said}");
            }
        }
        assert!(steps_with_peak > 0, "{by}");
    }
}
