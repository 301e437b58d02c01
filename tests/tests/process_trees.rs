//! Process trees: what `heapprof run` leaves of a shell script and the programs that it starts.
//!
//! The interval is so long that no block is sampled by chance. `HEAPPROF_RECORD_OVER` lets the
//! large block of `exit_ways` be recorded for certain.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;

use heapprof_tests::{Build, Finished, Json, Log, Run};

const NO_SAMPLE_BY_CHANCE: &str = "1099511627776";

/// Returns `heapprof run` with these options, of a shell that runs the script.
fn of_script(options: &[&str], script: &str) -> Run {
    let fixture = |name| Build::get().fixture(name).display().to_string();
    let script = (script.replace("EXIT_WAYS", &fixture("exit_ways")))
        .replace("FORK_CHILD", &fixture("fork_child"));
    Run::heapprof()
        .args(["run", "-i", NO_SAMPLE_BY_CHANCE])
        .args(options)
        .args(["--", "/bin/sh", "-c", &format!("{script}; exit 0")])
        .env("HEAPPROF_RECORD_OVER", "17000")
}

/// Returns the names of the run's logs, with `PID` for each number of a process.
fn logs(ran: &Finished) -> BTreeSet<String> {
    let names = ran.files_ending(".heaplog").into_iter();
    names
        .map(|name| without_pid(&ran.folder().join(&name), &name))
        .collect()
}

fn without_pid(path: &std::path::Path, name: &str) -> String {
    let pid = Log::read(path).start().pid;
    name.replace(&pid.to_string(), "PID")
}

/// A process of the run may begin in another folder. Its log is with the others, and counts.
#[test]
fn the_logs_of_a_run_are_in_one_folder() {
    let script = "mkdir sub; cd sub; EXIT_WAYS exit > /dev/null";
    for (prefix, expected) in [
        (None, "heapprof.exit_ways.PID.heaplog"),
        (Some("out"), "out_PID.exit_ways.heaplog"),
    ] {
        let mut options = vec!["--fail-above", "1KiB"];
        options.extend(prefix.iter().flat_map(|prefix| ["-o", prefix]));
        let ran = of_script(&options, script).run();
        assert_eq!(ran.status.code(), Some(3), "{}", ran.stderr);
        assert!(logs(&ran).contains(expected), "{:?}", ran.files());
        let of_sub = std::fs::read_dir(ran.folder().join("sub")).unwrap();
        assert_eq!(of_sub.count(), 0);
    }
}

const SCRIPT: &str = "/bin/true; /bin/true; /bin/true; EXIT_WAYS exit > /dev/null";

#[test]
fn programs_without_a_sample_are_counted_and_leave_no_files() {
    for (prefix, expected) in [
        (
            None,
            ["heapprof.sh.PID.heaplog", "heapprof.exit_ways.PID.heaplog"],
        ),
        (Some("out"), ["out.heaplog", "out_PID.exit_ways.heaplog"]),
    ] {
        let options: Vec<&str> = prefix.iter().flat_map(|prefix| ["-o", prefix]).collect();
        let ran = of_script(&options, SCRIPT).run().well();
        assert_eq!(
            logs(&ran),
            expected.map(str::to_owned).into(),
            "{}",
            ran.stderr
        );
        // With a prefix, each of the two has a dump. Each log has its names.
        let dumps = ran.files_ending(".0001.heap").len();
        assert_eq!(dumps, if prefix.is_some() { 2 } else { 0 });
        assert_eq!(ran.files().len(), 4 + dumps, "{:?}", ran.files());
        let words = "3 logs have no sample and are removed (true 3); --keep-unsampled";
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("added up: 5 processes"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("allocates"), "{}", ran.stderr);
    }
    let kept = of_script(&["--keep-unsampled"], SCRIPT).run().well();
    assert_eq!(kept.files_ending(".heaplog").len(), 5);
    assert!(!kept.stderr.contains("removed"), "{}", kept.stderr);
}

/// The limit and `--quiet` see all processes, and the files go all the same.
#[test]
fn a_gate_judges_before_the_files_go() {
    let options = ["-q", "--fail-above", "1KiB", "-m", "allocated-bytes"];
    let ran = of_script(&options, SCRIPT).run();
    assert_eq!(ran.code(), 3, "{}", ran.stderr);
    assert_eq!(ran.files_ending(".heaplog").len(), 2);
}

/// A forked copy of a program has the prefix, its process id and, if its program is not the one
/// that was started, the program's name.
#[test]
fn files_of_a_prefix_have_the_names_of_other_programs() {
    let ran = of_script(
        &["-o", "out", "--keep-unsampled", "--print-log=all"],
        "FORK_CHILD > /dev/null; (EXIT_WAYS exit > /dev/null; true)",
    )
    .env("HEAPPROF_SAMPLE_INTERVAL", "1");
    let ran = ran.env("HEAPPROF_RECORD_OVER", "1").run().well();
    let expected = [
        "out.heaplog",
        "out_PID.exit_ways.heaplog",
        "out_PID.fork_child.heaplog",
    ];
    let found = logs(&ran);
    assert!(
        expected.iter().all(|name| found.contains(*name)),
        "{found:?}"
    );
    // The subshell is a copy of the shell.
    let of_copies: Vec<_> = found
        .iter()
        .filter(|name| !expected.contains(&&***name))
        .collect();
    assert!(
        of_copies.iter().all(|name| *name == "out_PID.heaplog"),
        "{found:?}"
    );
    let said: BTreeSet<String> = ran
        .stdout
        .lines()
        .map(|path| path.replace("./", ""))
        .collect();
    let there: BTreeSet<String> = ran.files_ending(".heaplog").into_iter().collect();
    assert_eq!(said, there);
    assert_eq!(ran.stdout.lines().next(), Some("./out.heaplog"));
}

#[test]
fn a_script_can_have_all_paths_in_json() {
    let ran = of_script(&["-q", "-o", "out", "--print-log=json"], SCRIPT)
        .run()
        .well();
    let json = Json::parse(&ran.stdout).0;
    let text = |value: &serde_json::Value| value.as_str().expect("a path").replace("./", "");
    let processes = json["processes"].as_array().expect("a list");
    let logs: BTreeSet<String> = processes.iter().map(|it| text(&it["log"])).collect();
    assert_eq!(logs, ran.files_ending(".heaplog").into_iter().collect());
    assert_eq!(text(&json["log"]), "out.heaplog");
    assert_eq!(json["unsampled"][0]["program"], "true");
    assert_eq!(json["unsampled"][0]["logs"], 3);
    assert_eq!(json["complete"], true, "{}", ran.stdout);
    for process in processes {
        let dump = ran.folder().join(text(&process["dumps"][0]));
        assert!(dump.is_file(), "{}", ran.stdout);
    }
}

#[test]
fn only_the_named_programs_are_recorded() {
    let ran = of_script(&["--only", "exit_ways"], SCRIPT).run().well();
    let expected = BTreeSet::from(["heapprof.exit_ways.PID.heaplog".to_owned()]);
    assert_eq!(logs(&ran), expected, "{}", ran.stderr);
    assert!(ran.stderr.contains("allocates"), "{}", ran.stderr);
    // The name is that of the file or of a link to it. Others only start it.
    let link = of_script(
        &["--only", "true,linked"],
        "./linked exit > /dev/null; /bin/true",
    );
    symlink(
        Build::get().fixture("exit_ways"),
        link.folder().join("linked"),
    )
    .expect("a link");
    let linked = link.run().well();
    let expected = BTreeSet::from(["heapprof.linked.PID.heaplog".to_owned()]);
    assert_eq!(logs(&linked), expected, "{}", linked.stderr);
    // The first that is recorded has the prefix alone.
    let named = of_script(&["-o", "out", "--only", "exit_ways"], SCRIPT)
        .run()
        .well();
    assert_eq!(
        logs(&named),
        BTreeSet::from(["out.heaplog".to_owned()]),
        "{}",
        named.stderr
    );
    assert!(named.stderr.contains("allocates"), "{}", named.stderr);
    let none = of_script(&["--only", "no_such_program"], SCRIPT)
        .run()
        .well();
    assert!(none.files().is_empty(), "{:?}", none.files());
    assert!(
        none.stderr.contains("no log was written"),
        "{}",
        none.stderr
    );
    for wrong in ["", "a,,b", "/bin/sh"] {
        let ran = of_script(&["--only", wrong], SCRIPT).run();
        assert_eq!(ran.code(), 2, "{wrong}: {}", ran.stderr);
    }
}

/// A script that executes the program, as pyenv's scripts do: the process has a log as a shell and
/// one as the program, and the commands say which is which.
#[test]
fn a_script_that_executes_the_program_leads_to_its_log() {
    let run = |more: &[&str]| {
        let ran = of_script(
            &[&["-o", "out"], more].concat(),
            "true; exec EXIT_WAYS exit",
        );
        ran.run()
    };
    let top = |ran: &Finished| {
        let top = Run::heapprof()
            .inside(ran.folder())
            .args(["top", "out.heaplog"]);
        top.run()
    };
    let ran = run(&[]);
    let names = ran.files_ending(".exit_ways.heaplog");
    let [log] = &names[..] else {
        panic!("{:?}", ran.files());
    };
    assert_eq!(ran.files_ending(".heaplog"), names);
    let next = format!("next: heapprof explain ./{log}; heapprof top ./{log};");
    assert!(ran.stderr.contains(&next), "{}", ran.stderr);
    let missing = top(&ran);
    assert_eq!(missing.code(), 1);
    let words =
        format!("there is no such file; logs whose names begin so, the largest first: {log}");
    assert!(missing.stderr.contains(&words), "{}", missing.stderr);

    let of_shell = top(&run(&["--keep-unsampled"])).well().stdout;
    let words = "the process executed another program, which has a log of its own";
    assert!(of_shell.contains(words), "{of_shell}");
}
