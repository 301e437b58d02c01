//! `heapprof top --by …`: the same numbers whatever they are grouped by and written as, and filters
//! that leave out what they say.

use crate::common::totals::cells;
use crate::common::{LogBuilder, SERVER_TRUTH, heapprof, server_log, stderr, stdout, write};
use heapprof_symbolizer::{By, Metric};
use serde_json::Value;
use tempfile::TempDir;

struct World {
    folder: TempDir,
    log: String,
}

fn world(bytes: &[u8]) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let log = write(folder.path(), "s.heaplog", bytes)
        .display()
        .to_string();
    World { folder, log }
}

fn top(world: &World, args: &[&str]) -> String {
    let output = heapprof(&[&["top", "-n", "0"], args, &[world.log.as_str()]].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn groups(world: &World, args: &[&str]) -> Value {
    serde_json::from_str(&top(world, &[args, &["--json"]].concat())).expect("JSON")
}

fn sum(lines: &Value, of: &str, metric: Metric) -> u64 {
    let lines = lines.as_array().expect("lines");
    lines
        .iter()
        .map(|line| line[of][metric.name()].as_u64().expect("a number"))
        .sum()
}

#[test]
fn every_group_sums_to_the_whole_in_every_form() {
    let world = world(&server_log(1));
    let order = [
        Metric::InUseObjects,
        Metric::InUseBytes,
        Metric::AllocatedObjects,
        Metric::AllocatedBytes,
    ];
    let mut all: Vec<Option<By>> = By::ALL.map(Some).into();
    all.push(None);
    for by in all {
        let mut args = vec!["-m", "allocated-bytes"];
        if let Some(by) = by {
            args.extend(["--by", by.name()]);
        }
        let json = groups(&world, &args);
        let lines = match by {
            Some(by) => {
                assert_eq!(json["by"], by.name());
                &json["groups"]
            }
            None => &json["sites"],
        };
        let csv = top(&world, &[&args[..], &["--csv"]].concat());
        let rows: Vec<Vec<String>> = csv.lines().map(cells).collect();
        for (metric, expected) in order.into_iter().zip(SERVER_TRUTH) {
            assert_eq!(sum(lines, "self", metric), expected, "{by:?} {metric}");
            let name = format!("self-{metric}");
            let column = rows[0]
                .iter()
                .position(|cell| *cell == name)
                .expect("a column");
            let sum: u64 = rows[1..]
                .iter()
                .map(|row| row[column].parse::<u64>().expect("a number"))
                .sum();
            assert_eq!(sum, expected, "CSV {by:?} {metric}");
        }
        // In the table, the same lines in the same order.
        let table = top(&world, &args);
        let names = lines.as_array().expect("lines").iter().map(|line| {
            let name = if by.is_some() {
                &line["name"]
            } else {
                &line["function"]
            };
            name.as_str().expect("a name").to_owned()
        });
        let mut rest = table.split("\n\n").nth(1).expect("a table");
        for name in names {
            let at = rest
                .find(&name)
                .unwrap_or_else(|| panic!("{name} next in {rest}"));
            rest = &rest[at + name.len()..];
        }
    }
}

/// Names stay out of it: equal numbers come in the order of their names, every time.
#[test]
fn equal_lines_are_in_the_order_of_their_names() {
    let mut log = LogBuilder::new(1);
    for thread in [5, 3, 9, 1, 7] {
        log.thread(thread, &format!("worker {thread}"));
    }
    let stack = log.stack(&[0x1010, 0x1021]);
    for thread in [9, 1, 7, 5, 3] {
        log.alloc_by(thread, stack, 64);
    }
    let world = world(&log.end());
    let json = groups(&world, &["--by", "thread"]);
    let names: Vec<&str> = json["groups"]
        .as_array()
        .expect("groups")
        .iter()
        .map(|group| group["name"].as_str().expect("a name"))
        .collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names.len(), 5);
    assert_eq!(names, sorted);
}

#[test]
fn filters_are_those_of_the_other_commands() {
    let world = world(&server_log(1));
    let bytes = |args: &[&str]| sum(&groups(&world, args)["sites"], "self", Metric::InUseBytes);
    let all = SERVER_TRUTH[1];
    // Nothing is named here: modules are what matches.
    assert_eq!(bytes(&["--focus", "server"]), all);
    assert_eq!(bytes(&["--ignore", "server"]), 0);
    assert_eq!(bytes(&["--focus", r"server\+0x400"]), 8 << 20);
    assert_eq!(bytes(&["--ignore", r"server\+0x400"]), all - (8 << 20));
    let hidden = groups(&world, &["--by", "module", "--cum", "--hide", "libc"]);
    assert_eq!(sum(&hidden["groups"], "self", Metric::InUseBytes), all);
    assert!(!hidden["groups"].to_string().contains("libc"), "{hidden}");
    // A filter goes before the numbers of the past, too.
    let peak = groups(
        &world,
        &["-m", "peak", "--by", "module", "--focus", r"server\+0x400"],
    );
    assert_eq!(peak["groups"][0]["self"], (8 << 20) as f64);
    let wrong = heapprof(&["top", "--focus", "(", &world.log]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("--focus"));
    assert!(world.folder.path().exists());
}

#[test]
fn what_is_not_kept_by_a_group_is_said() {
    let world = world(&server_log(1));
    for (metric, by) in [
        ("peak", "thread"),
        ("lifetime", "size"),
        ("heaptime", "thread"),
    ] {
        let output = heapprof(&["top", "-m", metric, "--by", by, &world.log]);
        assert!(!output.status.success());
        assert!(
            stderr(&output).contains(&format!("is not known by {by}")),
            "{}",
            stderr(&output)
        );
    }
    for (metric, by) in [
        ("peak", "size"),
        ("lifetime", "function"),
        ("slack", "type"),
    ] {
        top(&world, &["-m", metric, "--by", by]);
        top(&world, &["-m", metric, "--by", by, "--csv"]);
    }
}

/// On a pipe there is no colour but by wish, and NO_COLOR is for `auto` alone.
#[test]
fn colour_is_for_terminals_or_on_demand() {
    let world = world(&server_log(1));
    for args in [
        &["--by", "module"][..],
        &[],
        &["--color", "never"],
        &["--color", "auto"],
    ] {
        assert!(!top(&world, args).contains('\u{1b}'), "{args:?}");
    }
    let coloured = top(&world, &["--color", "always"]);
    assert!(coloured.contains("\u{1b}[1m"), "{coloured:?}");
    let tree = heapprof(&["tree", "--color", "always", &world.log]);
    assert!(stdout(&tree).contains("\u{1b}["), "{}", stdout(&tree));
    // Without its colours it is the plain one.
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        rest = &rest[rest.find('m').expect("an end") + 1..];
    }
    plain.push_str(rest);
    assert_eq!(plain, top(&world, &[]));
    // JSON and CSV have none.
    for form in ["--json", "--csv"] {
        assert!(!top(&world, &["--color", "always", form]).contains('\u{1b}'));
    }
}
