//! Several real processes, added up, and differences within a log that rotated.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use heapprof_format::{Encoder, FILE_HEADER, Record, Start};
use heapprof_symbolizer::{Input, Profile, merged};
use heapprof_tests::{Finished, Run};
use serde_json::Value;

fn read(path: &Path) -> Profile {
    Input::open(path)
        .and_then(|input| input.read(|_| ()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns `heapprof`'s answer about these files, in JSON.
#[track_caller]
fn answer(args: &[&str], files: &[PathBuf]) -> Value {
    let ran = Run::heapprof().args(args).args(files).run().well();
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.stdout))
}

/// Returns the sites' four numbers, by function.
#[track_caller]
fn sites(files: &[PathBuf]) -> BTreeMap<String, [u64; 4]> {
    let document = answer(&["top", "--json", "-n", "0", "--cum"], files);
    let lines = document["sites"].as_array().unwrap().iter();
    let mut sites: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for line in lines {
        let four = [
            "in-use-objects",
            "in-use-bytes",
            "allocated-objects",
            "allocated-bytes",
        ]
        .map(|key| line["self"][key].as_u64().unwrap());
        let sum = sites
            .entry(line["function"].as_str().unwrap().to_owned())
            .or_default();
        for (sum, n) in sum.iter_mut().zip(four) {
            *sum += n;
        }
    }
    sites
}

/// The same program three times, loaded at random addresses: the same stacks, three times the
/// numbers.
#[test]
fn runs_of_one_program_are_one_profile() {
    let ran: Vec<Finished> = (0..3)
        .map(|_| {
            let run = Run::fixture("nofp_chain").interval(1).prefix("t");
            run.run().well()
        })
        .collect();
    let files: Vec<PathBuf> = ran.iter().map(|r| r.folder().join("t.heaplog")).collect();
    let one = read(&files[0]);
    let parts = files.iter().map(|file| (String::new(), read(file)));
    let all = merged(parts.collect());
    assert_eq!(all.rows.len(), one.rows.len());
    assert_eq!(all.modules.len(), one.modules.len());
    assert_eq!(all.parts.len(), 3);
    // Otherwise the test would show nothing.
    let program = |part: &Path| read(part).modules[0].bias;
    assert!(
        program(&files[0]) != program(&files[1]) || program(&files[0]) != program(&files[2]),
        "all three were loaded at one address"
    );
    let of_one = sites(&files[..1]);
    let of_all = sites(&files);
    let thrice: BTreeMap<String, [u64; 4]> = of_one
        .into_iter()
        .map(|(name, four)| (name, four.map(|n| 3 * n)))
        .collect();
    assert_eq!(of_all, thrice);
    // Not the sum of all durations: that would be days for runs of several days.
    let shown = Run::heapprof().arg("top").args(&files).run().well().stdout;
    assert!(shown.contains(", 3 processes, each up to "), "{shown}");
}

/// A hundred blocks from before the fork are a hundred, though parent and child have them.
#[test]
fn what_was_inherited_counts_once() {
    let ran = Run::fixture("fork_inherits")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let logs = ran.files_ending(".heaplog");
    let files: Vec<PathBuf> = logs.iter().map(|name| ran.folder().join(name)).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    let blocks = |files: &[PathBuf], function: &str| {
        let sites = sites(files);
        sites.get(function).map_or(0, |four| four[2])
    };
    let both = |function: &str| {
        files
            .iter()
            .map(|f| blocks(std::slice::from_ref(f), function))
            .sum::<u64>()
    };
    assert_eq!(both("allocates_before_the_fork"), 200);
    assert_eq!(blocks(&files, "allocates_before_the_fork"), 100);
    assert_eq!(blocks(&files, "allocates_in_the_child"), 7);
    let document = answer(&["top", "--json"], &files);
    assert_eq!(document["inherited_elsewhere"], 1, "{document}");
}

/// The sums of a checkpoint are before every kept moment, and in every window that begins at the
/// start.
#[test]
fn differences_know_what_a_checkpoint_sums_up() {
    let ran = Run::fixture("rotates")
        .arg("30000")
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MAX_LOG", (256 << 10).to_string())
        .run()
        .well();
    let file = [ran.folder().join("t.heaplog")];
    let profile = read(&file[0]);
    let checkpoint = profile.run.checkpoint.expect("the log rotated");
    let begin = format!("{}us", checkpoint.time_ns.div_ceil(1000) + 1000);
    for metric in ["allocated-bytes", "allocated-objects", "in-use-bytes"] {
        let total = |args: &[&str]| {
            let document = answer(&[&["top", "--json"], args].concat(), &file);
            document["totals"][metric].as_f64().unwrap()
        };
        let diff = |args: &[&str]| {
            let document = answer(&[&["diff", "--json", "-m", metric], args].concat(), &file);
            let number = |key: &str| document["total"][key].as_f64().unwrap();
            (number("before"), number("after"), number("difference"))
        };
        let (at_begin, at_end) = (total(&["--at", &begin]), total(&["--at", "end"]));
        assert!(at_begin > 0.0);
        assert_eq!(
            diff(&["--at", &begin, "--at", "end"]),
            (at_begin, at_end, at_end - at_begin),
            "{metric}"
        );
        assert_eq!(
            diff(&["--at", "start", "--at", "end"]),
            (0.0, at_end, at_end)
        );
        let window = total(&["--from", &begin, "--to", "end"]);
        assert_eq!(
            diff(&[
                "--from", "start", "--to", &begin, "--from", &begin, "--to", "end"
            ]),
            (at_begin, window, window - at_begin),
            "{metric}"
        );
    }
}

/// The log of a process that was killed before its first record: the others are read.
#[test]
fn an_empty_log_among_several_is_said_and_left_out() {
    let ran = Run::fixture("nofp_chain")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let whole = ran.folder().join("t.heaplog");
    let empty = ran.folder().join("empty.heaplog");
    std::fs::write(&empty, "").unwrap();
    let top = |files: &[&PathBuf]| Run::heapprof().arg("top").args(files).run();
    let with = top(&[&empty, &whole, &empty]).well();
    // The numbers are those of the others, and not exact for the whole.
    let alone = top(&[&whole]).well().stdout;
    let exact = "every allocation recorded, numbers are exact";
    let lack = "2 logs have no record: what their processes did is missing\n";
    assert!(alone.contains(exact), "{alone}");
    let expected = alone.replace(
        exact,
        "every allocation recorded, but parts of the record are missing",
    );
    assert!(with.stdout.contains(lack), "{}", with.stdout);
    assert_eq!(with.stdout.replace(lack, ""), expected);
    assert_eq!(
        with.stderr.matches("empty.heaplog").count(),
        2,
        "{}",
        with.stderr
    );
    let none = top(&[&empty, &empty]);
    assert_ne!(none.code(), 0);
    assert!(none.stderr.contains("the file is empty"), "{}", none.stderr);
}

/// A build, or a shell script, leaves a log for every process that it starts. A comparison of each
/// with each, by two calls of the file system, would exceed this test's limit.
#[test]
fn thousands_of_logs_are_read_in_the_time_of_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> = (1..=3000)
        .map(|pid| {
            let path = folder.path().join(format!("{pid}.heaplog"));
            let mut encoder = Encoder::new();
            encoder.record(&Record::Start(Start {
                program: "/bin/true".to_owned(),
                pid,
                wall_ns: u64::from(pid) * 1_000_000,
                monotonic_ns: u64::from(pid) * 1_000_000,
                interval: 1,
                ..Start::default()
            }));
            fs::write(&path, [&FILE_HEADER[..], encoder.finish()].concat()).unwrap();
            path
        })
        .collect();
    let joined = folder.path().join("all.heaplog");
    let read = |command: &[&str], files: &[PathBuf]| {
        let run = Run::heapprof().args(command).args(files);
        run.limit(Duration::from_secs(10)).run().well().stdout
    };
    read(&["join", "-o", &joined.display().to_string()], &files);
    for files in [&files[..], &[joined]] {
        let top = read(&["top"], files);
        assert!(top.contains("3000 processes"), "{top}");
    }
}

/// A parent and three children that come one after another, each in bursts; the last outlives the
/// others.
const COMES_AND_GOES: &str = r#"
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static char *kept[64];
    static void works(int bursts, int size)
    {
        for (int burst = 0; burst < bursts; burst++) {
            for (int i = 0; i < 64; i++) {
                free(kept[i]);
                kept[i] = i < burst % 64 ? malloc(size + i) : NULL;
            }
            usleep(5000);
        }
    }
    int main(void)
    {
        for (int child = 0; child < 3; child++) {
            works(10, 20000);
            if (fork() == 0) {
                works(20 + 30 * child, 1000 << child);
                return 0;
            }
        }
        works(20, 30000);
        while (wait(NULL) > 0) {}
        return 0;
    }
"#;

/// The blocks in use at a moment of the wall clock are the same, whether each log is asked and the
/// answers are added, or the logs are joined. The peak of all together is the peak over all
/// moments.
#[test]
fn a_joined_log_says_what_its_parts_say_together() {
    let run = Run::compiled("comes_and_goes", COMES_AND_GOES, &["-fno-builtin"]);
    let ran = run.interval(1).prefix("t").run().well();
    let logs = ran.files_ending(".heaplog");
    let files: Vec<PathBuf> = logs.iter().map(|name| ran.folder().join(name)).collect();
    assert_eq!(files.len(), 4, "{files:?}");
    let joined = [ran.folder().join("joined.heaplog")];
    let out = joined[0].display().to_string();
    let run = Run::heapprof().args(["join", "-o", &out]).args(&files);
    let said = run.run().well().stderr;
    assert!(said.contains(&out), "{said}");
    let whole = read(&joined[0]);
    assert_eq!((whole.parts.len(), whole.account.unknown_frees), (4, 0));

    let four = |files: &[PathBuf], at: &[&str]| {
        let document = answer(&[&["top", "--json"], at].concat(), files);
        let number = |key: &str| document["totals"][key].as_i64().unwrap();
        [
            number("in-use-objects"),
            number("in-use-bytes"),
            number("allocated-objects"),
            number("allocated-bytes"),
        ]
    };
    let mut most = 0;
    for tenth in 1..10 {
        let wall_ns = whole.run.start_wall_ns + whole.run.duration_ns / 10 * tenth;
        let at = utc_ns(wall_ns);
        let (added, together) = (four(&files, &["--at", &at]), four(&joined, &["--at", &at]));
        // For each process, an event of that very microsecond may be before or after, and in a
        // burst it has several.
        let allocated = |wall_ns| four(&joined, &["--at", &utc_ns(wall_ns)])[2];
        let around = allocated(wall_ns + 2000) - allocated(wall_ns - 2000);
        let events = 4 + 2 * around;
        let differences = added.iter().zip(&together).map(|(a, b)| (a - b).abs());
        for (difference, bytes) in differences.zip([1, 30_064, 1, 30_064]) {
            let allowed = events * bytes;
            assert!(difference <= allowed, "{at}: {added:?}, {together:?}");
        }
        most = most.max(together[1]);
    }
    assert!(most > 0);
    // At the end everything has been allocated, counted in either way, and the last process to end
    // has its blocks in use.
    assert_eq!(four(&files, &[])[2..], four(&joined, &[])[2..]);
    let peak = four(&joined, &["--at", "peak"])[1];
    assert!(peak >= most, "{peak}, {most}");

    let drawn = answer(&["timeline", "--json", "--steps", "50"], &files);
    let highest = drawn["steps"].as_array().unwrap().iter();
    let highest = highest.map(|step| step["highest_in_use_bytes"].as_f64().unwrap());
    assert_eq!(highest.fold(0.0, f64::max), peak as f64);
}

/// Formats a time as `--at` takes it.
fn utc_ns(ns: u64) -> String {
    let whole = heapprof_symbolizer::utc(ns / 1_000_000_000 * 1_000_000_000);
    let (day, rest) = whole.split_once(' ').expect("a day and a time");
    let time = rest.split(['.', ' ']).next().expect("a time");
    format!("{day}T{time}.{:09}Z", ns % 1_000_000_000)
}
