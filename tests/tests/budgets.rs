//! Budgets and suppressions: `heapprof check`, and `--suppressions` of the commands that show
//! sites, on a recording with names.

use std::fs;
use std::path::PathBuf;

use heapprof_tests::{Finished, Json, Run};

/// Returns a recording of `exit_ways`, whose function `allocates` has a block of 17001 bytes.
fn recorded() -> Finished {
    let run = Run::fixture("exit_ways")
        .arg("exit")
        .interval(1)
        .prefix("t");
    let ran = run.run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    ran
}

fn written(ran: &Finished, name: &str, text: &str) -> String {
    let path: PathBuf = ran.folder().join(name);
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

fn heapprof(args: &[&str]) -> Finished {
    Run::heapprof().args(args).run()
}

#[test]
fn each_limit_of_a_budget_has_a_verdict() {
    let ran = recorded();
    let log = ran.folder().join("t.heaplog").display().to_string();
    let limit = |words: &str| format!("[[limit]]\nmetric = \"allocated-bytes\"\n{words}\n");
    let within = limit("at-most = \"1GiB\"");
    let site = limit("name = \"the block\"\nsite = \"^allocates$\"\nat-most = \"16KiB\"");
    let function = limit("function = \"^allocates$\"\nat-most = 17001");
    let module = limit("module = \"exit_ways$\"\nat-most = \"1MiB\"");
    let check = |name: &str, text: &str, more: &[&str]| {
        let budget = written(&ran, name, text);
        heapprof(&[&["check", "--budget", &budget], more, &[&log]].concat())
    };

    let good = check("good.toml", &[&*within, &function, &module].concat(), &[]).well();
    assert_eq!(good.stdout.lines().count(), 3, "{}", good.stdout);
    assert!(
        good.stdout.lines().all(|line| line.starts_with("pass ")),
        "{}",
        good.stdout
    );

    let bad = check("bad.toml", &[&*within, &site].concat(), &[]);
    assert_eq!(bad.code(), 3, "{}", bad.stderr);
    let words = "FAIL          the block: site ^allocates$: allocated-bytes is 16.6 KiB, above the limit of 16.0 KiB";
    assert_eq!(bad.stdout.lines().nth(1), Some(words), "{}", bad.stdout);
    assert!(
        bad.stderr.contains("1 of 2 limits exceeded"),
        "{}",
        bad.stderr
    );

    let json = Json::parse(&check("bad.toml", &[&*within, &site].concat(), &["--json"]).stdout).0;
    assert_eq!(json["verdict"], "fail");
    assert_eq!(json["complete"], true);
    assert_eq!(json["limits"][0]["verdict"], "pass");
    assert_eq!(json["limits"][1]["verdict"], "fail");
    assert_eq!(json["limits"][1]["pattern"], "^allocates$");

    // The judgement leaves out suppressed stacks. Their file is beside the budget's.
    written(&ran, "known.supp", "leak:^allocates$\n");
    let with_known = format!("suppressions = \"known.supp\"\n{site}");
    let known = check("known.toml", &with_known, &[]);
    assert!(
        known.stderr.contains("suppressed: leak:^allocates$: "),
        "{}",
        known.stderr
    );
    assert_ne!(known.code(), 3, "{}", known.stdout);

    let wrong = check(
        "wrong.toml",
        "[[limit]]\nat-most = 1\nmetrik = \"peak\"\n",
        &[],
    );
    assert_eq!((wrong.code(), &*wrong.stdout), (1, ""), "{}", wrong.stderr);
    assert!(
        wrong.stderr.contains("wrong.toml: line 3"),
        "{}",
        wrong.stderr
    );
}

/// A gate fails closed: a log that is cut is no pass, whatever the limit.
#[test]
fn what_cannot_be_judged_is_no_pass() {
    let ran = recorded();
    let bytes = ran.bytes("t.heaplog");
    let cut = ran.folder().join("cut.heaplog");
    fs::write(&cut, &bytes[..bytes.len() - 1]).expect("a file");
    let cut = cut.display().to_string();
    let budget = written(&ran, "b.toml", "[[limit]]\nat-most = \"1GiB\"\n");
    let judged = heapprof(&["check", "--budget", &budget, &cut]);
    assert_eq!(judged.code(), 4, "{}", judged.stderr);
    assert!(
        judged
            .stdout
            .starts_with("cannot judge  the file is cut off"),
        "{}",
        judged.stdout
    );
    let allowed = heapprof(&["check", "--allow-inconclusive", "--budget", &budget, &cut]);
    assert_eq!(allowed.code(), 0, "{}", allowed.stderr);
}

#[test]
fn suppressed_sites_are_left_out_and_counted() {
    let ran = recorded();
    let log = ran.folder().join("t.heaplog").display().to_string();
    let file = written(
        &ran,
        "s.supp",
        "# known\nleak:^alloc*tes$\n\nleak:nowhere\nleak:allocates\n",
    );
    let suppressed = ["--suppressions", &file];
    let all: [&[&str]; 5] = [
        &["top", "-m", "allocated-bytes"],
        &["tree", "-m", "allocated-bytes"],
        &["export", "-f", "folded", "-m", "allocated-bytes"],
        &["diff", "--at", "start", "--at", "end"],
        &["report", "-o", "-"],
    ];
    for command in all {
        let shown = heapprof(&[command, &[&log]].concat()).well();
        assert!(shown.stdout.contains("allocates"), "{command:?}");
        let ran = heapprof(&[command, &suppressed, &[&log]].concat()).well();
        assert!(
            !ran.stdout.contains("allocates"),
            "{command:?}: {}",
            ran.stdout
        );
        let said = &ran.stderr;
        assert!(
            said.contains("suppressed: leak:^alloc*tes$: "),
            "{command:?}: {said}"
        );
        // The first that covers a stack counts. Others are named with their lines.
        for words in ["leak:nowhere (", "leak:allocates ("] {
            assert!(said.contains(words), "{command:?}: {said}");
        }
        assert!(
            said.contains("s.supp, line 4) matches nothing"),
            "{command:?}: {said}"
        );
    }
    let top = heapprof(&["top", "-m", "allocated-bytes", &log]).well();
    assert_eq!(
        Json::parse(&heapprof(&["top", "--json", &log]).stdout).0["filter"],
        serde_json::Value::Null
    );
    let json =
        Json::parse(&heapprof(&[&["top", "--json"], &suppressed[..], &[&log]].concat()).stdout);
    let filter = json.0["filter"].as_str().expect("a filter");
    assert!(
        filter.starts_with("suppressions of ") && top.stdout.contains("16.6 KiB"),
        "{filter}"
    );
    let wrong = written(&ran, "wrong.supp", "leak:a\nthread:b\n");
    let ran = heapprof(&["top", "--suppressions", &wrong, &log]);
    assert_eq!(ran.code(), 1);
    assert!(ran.stderr.contains("wrong.supp, line 2"), "{}", ran.stderr);
}
