//! Every JSON document has the keys that `docs/json.md` lists, of their types, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::common::{LogBuilder, heapprof, stderr, stdout, write};
use crate::resolve_fixture::Fixture;
use heapprof_format::{
    Counter, MappedMemory, MappedPart, MemoryField, MemoryReading, Module, PageReading,
    PagesOfBlock, Record, Segment, Slab, Touch, WalkEnd,
};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The keys in `docs/json.md` that no log made here brings: they need segments, a parent's log, a
/// server, several processes, a stop, a part of the time, a filter, deep stacks. If such a key
/// occurs, its type is compared with the list all the same.
const NOT_MADE_HERE: [&str; 14] = [
    "run.tapped",
    "run.checkpoint",
    "run.segments",
    "run.forked_from",
    "debuginfod",
    "stops",
    "processes",
    "caveats",
    "view",
    "pages",
    "filter",
    "inherited_elsewhere",
    "tree.continued",
    "continued",
];

/// Keys and their types, as a section of `docs/json.md` states them.
fn documented(command: &str) -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/json.md");
    let text = std::fs::read_to_string(path).expect("docs/json.md");
    let section = text
        .split("\n## ")
        .find(|section| section.starts_with(&format!("`{command}`")))
        .unwrap_or_else(|| panic!("no section for {command}"));
    let lines = section.split("```").nth(1).expect("a list").lines().skip(1);
    let keys: Vec<(String, String)> = lines
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut word = || words.next().expect("a key and a type").to_owned();
            (word(), word())
        })
        .collect();
    let found: BTreeMap<_, _> = keys.iter().cloned().collect();
    assert_eq!(
        found.len(),
        keys.len(),
        "{command}: a key stands there twice"
    );
    found
}

/// Returns a document, each of whose objects has each key once: parsers differ about the others.
fn parsed(text: &str) -> Value {
    let _: Once = serde_json::from_str(text).expect("JSON with each key once");
    serde_json::from_str(text).expect("JSON")
}

/// A value without a key that is there twice.
struct Once;

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Once, D::Error> {
        from.deserialize_any(Once)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Once;

    fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some((key, Once)) = map.next_entry::<String, Once>()? {
            if let Some(twice) = keys.replace(key) {
                return Err(A::Error::custom(format!("{twice} is there twice")));
            }
        }
        Ok(Once)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Once, A::Error> {
        while all.next_element::<Once>()?.is_some() {}
        Ok(Once)
    }

    fn visit_str<E>(self, _: &str) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Once, E> {
        Ok(Once)
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once)
    }
}

/// Leaves of a document by their paths; of each its types.
fn collect_leaves(value: &Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let mut leaf = |kind| {
        found.entry(path.to_owned()).or_default().insert(kind);
    };
    match value {
        Value::Null => leaf("null"),
        Value::Bool(_) => leaf("boolean"),
        Value::String(_) => leaf("string"),
        Value::Number(n) if n.is_u64() => leaf("integer"),
        Value::Number(_) => leaf("number"),
        // A tree's nodes are all alike.
        Value::Array(all) if path == "tree.children" => {
            for node in all {
                leaf_node(found);
                collect_leaves(node, "tree", found);
            }
        }
        Value::Array(all) => {
            for one in all {
                collect_leaves(one, &format!("{path}[]"), found);
            }
        }
        Value::Object(keys) => {
            for (key, value) in keys {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                collect_leaves(value, &path, found);
            }
        }
    }
}

fn leaf_node(found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let children = found.entry("tree.children[]".into()).or_default();
    children.insert("node");
}

/// Returns true if a documented key stands for that path. A null value shows none of its keys.
fn stands_for(key: &str, path: &str, is_null: bool) -> bool {
    let (mut keys, mut parts) = (key.split('.'), path.split('.'));
    loop {
        match (keys.next(), parts.next()) {
            (None, None) => return true,
            (Some(_), None) => return is_null,
            (Some(key), Some(part)) if key == "*" || key == part => {}
            _ => return false,
        }
    }
}

fn is_of(kind: &str, documented: &str) -> bool {
    match documented.strip_suffix('?') {
        Some(_) if kind == "null" => true,
        rest => match rest.unwrap_or(documented) {
            "any" => true,
            "number" => matches!(kind, "number" | "integer"),
            other => other == kind,
        },
    }
}

/// A log with something of everything: sampled, changed while running, damaged, of a file that is
/// there and of others that are not, with code outside of every module.
fn rich_log(folder: &Path, interval: u64) -> PathBuf {
    let mut log = LogBuilder::new(interval);
    log.start_of("/bin/server", 77, 1_767_225_600_000_000_000);
    log.given(&Record::Regime {
        time_ns: 0,
        interval,
        by_budget: true,
    });
    log.thread(0, "server");
    // This very test: its names and lines are there to be found.
    let path = std::env::current_exe()
        .expect("this test")
        .display()
        .to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the map");
    let of_it = maps.lines().find(|line| line.ends_with(&path));
    let base = of_it.and_then(|line| line.split('-').next());
    let base = u64::from_str_radix(base.expect("this test is mapped"), 16).expect("hexadecimal");
    log.module_record(Module {
        path,
        stamp: None,
        bias: base,
        segments: vec![Segment {
            start: base,
            len: 1 << 30,
            file_offset: 0,
            flags: 5,
        }],
        number: 0,
        time_ns: 0,
        build_id: Vec::new(),
    });
    let gone = log.module("/lib/gone.so", 0x50_0000, 0x1000);
    log.module("/lib/libheapprof.so", 0x60_0000, 0x1000);
    let here = |function: *const ()| function.addr() as u64 + 1;
    let (leaf, root) = (here(leaf_node as *const ()), here(documented as *const ()));
    let in_program = log.stack(&[0x60_0010, leaf, root]);
    let in_gone = log.stack_ending(&[0x60_0010, 0x50_0101, root], &[], WalkEnd::TooDeep);
    let nowhere = log.labelled(&[0x60_0010, 0x7000_0101, root], &[("tenant", "acme")]);
    for size in [100, 5000, 1 << 20, 3 << 20] {
        for stack in [in_program, in_gone, nowhere] {
            let id = log.alloc(stack, size);
            log.alloc(stack, size);
            log.free(id);
        }
    }
    log.given(&Record::Marker {
        time_ns: 5_000_000,
        name: "half".into(),
    });
    log.given(&Record::Notice {
        time_ns: 5_000_000,
        text: "a dump could not be written".into(),
    });
    log.given(&Record::Title {
        time_ns: 5_000_000,
        text: "server: worker".into(),
    });
    log.given(&Record::Resource {
        time_ns: 5_000_000,
        attributes: vec![("replica".into(), "7".into())],
    });
    log.module_gone(gone);
    let from = log.flush();
    log.alloc(in_program, 10);
    let to = log.flush();
    log.counters(&[
        (Counter::SampledAllocs, 25),
        (Counter::LostQueueFull, 3),
        (Counter::CountedBytes, 20 << 20),
        (Counter::CountedThreads, 1),
    ]);
    log.flush();
    log.alloc(in_program, 77);
    let mut bytes = log.cut();
    bytes[(from + to) / 2] ^= 0xff;
    bytes.truncate(bytes.len() - 1);
    write(folder, &format!("{interval}.heaplog"), &bytes)
}

/// Checks that the commands' output for several logs has the keys of that section.
fn conforms(section: &str, commands: &[&[&str]]) {
    conforms_with(section, commands, &[]);
}

/// Documents of that section.
fn are_documented(section: &str, documents: &[Value]) {
    are_documented_but(section, documents, &[]);
}

/// Checks documents that lack some keys.
pub(crate) fn are_documented_but(section: &str, documents: &[Value], excused: &[&str]) {
    let mut seen = BTreeMap::new();
    for document in documents {
        collect_leaves(document, "", &mut seen);
    }
    holds(section, &seen, excused);
}

/// Checks the output for other files, too.
fn conforms_with(section: &str, commands: &[&[&str]], files: &[PathBuf]) {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = write(
        folder.path(),
        "whole.heaplog",
        &crate::common::server_log(1),
    );
    let rich = [1, 4096].map(|interval| rich_log(folder.path(), interval));
    let mut seen: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    for log in [&whole, &rich[0], &rich[1]].into_iter().chain(files) {
        for command in commands {
            let file = log.display().to_string();
            let output = heapprof(&[*command, &[file.as_str()]].concat());
            assert!(output.status.success(), "{command:?}: {}", stderr(&output));
            let document = parsed(&stdout(&output));
            collect_leaves(&document, "", &mut seen);
        }
    }
    holds(section, &seen, &NOT_MADE_HERE);
}

/// Checks that the keys of documents are those that are listed, but for the excused ones.
fn holds(section: &str, seen: &BTreeMap<String, BTreeSet<&'static str>>, excused: &[&str]) {
    let documented = documented(section);
    for (path, kinds) in seen {
        for kind in kinds {
            let is_null = *kind == "null";
            let found = documented.iter().any(|(key, of)| {
                // `run.checkpoint` is null where `run.checkpoint.segment` is listed.
                stands_for(key, path, is_null) && is_of(kind, of)
            });
            assert!(found, "{section}: docs/json.md has no {path} of {kind}");
        }
    }
    for (key, of) in &documented {
        let found = seen.iter().any(|(path, kinds)| {
            stands_for(key, path, false) && kinds.iter().any(|kind| *kind != "null")
        });
        let excused = excused.iter().any(|it| key.starts_with(it));
        assert!(found || excused, "{section}: {key} ({of}) is never written");
    }
}

#[test]
fn info() {
    let map = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(map.path(), "70000100 10 jitted\n").expect("a perf map");
    let map = map.path().display().to_string();
    let folder = tempfile::tempdir().expect("a folder");
    let dump = "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0xa\n";
    let dump = write(folder.path(), "unmapped.heap", dump.as_bytes());
    conforms_with(
        "heapprof info --json",
        &[&["info", "--json"], &["info", "--json", "--perf-map", &map]],
        &[dump, crate::coarse_history::log(folder.path())],
    );
}

#[test]
fn check() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = "[[limit]]\nname = \"all\"\nmetric = \"allocated-bytes\"\nat-most = \"1024GiB\"\n\
                  [[limit]]\nmodule = \"server\"\nat-most = \"1024GiB\"\n";
    let budget = write(folder.path(), "heapprof.toml", limits.as_bytes());
    let budget = budget.display().to_string();
    let words = [
        "check",
        "--json",
        "--allow-inconclusive",
        "--budget",
        &budget,
    ];
    conforms("heapprof check --json", &[&words]);
}

#[test]
fn timeline() {
    let folder = tempfile::tempdir().expect("a folder");
    conforms_with(
        "heapprof timeline --json",
        &[
            &["timeline", "--json"],
            &["timeline", "--json", "--top", "3"],
            &["timeline", "--json", "--by", "thread"],
        ],
        &[
            log_with_reading(folder.path()),
            crate::coarse_history::log(folder.path()),
        ],
    );
}

/// The log of a server with a reading of its memory, near a limit.
fn log_with_reading(folder: &Path) -> PathBuf {
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 77, 1);
    let stack = log.stack(&[1, 2]);
    let id = log.alloc(stack, 5 << 20);
    let mut reading = MemoryReading::at(5_000_000);
    for (field, mib) in [
        (MemoryField::Resident, 100),
        (MemoryField::File, 20),
        (MemoryField::HeapSmall, 6),
        (MemoryField::HeapLarge, 0),
        (MemoryField::HeapActive, 50),
        (MemoryField::HeapUntouched, 30),
        (MemoryField::CgroupUsed, 90),
        (MemoryField::CgroupMax, 100),
    ] {
        reading.set(field, mib << 20);
    }
    log.given(&Record::Memory(Box::new(reading)));
    log.given(&Record::MappedMemory(MappedMemory {
        time_ns: 5_000_000,
        parts: vec![MappedPart {
            name: "[heap]".into(),
            mapped: 8 << 20,
            resident: 2 << 20,
            ..MappedPart::default()
        }],
    }));
    log.given(&Record::Pages(PageReading {
        time_ns: 5_000_000,
        is_last: true,
        knows_slabs: true,
        blocks: vec![PagesOfBlock {
            id,
            touch: Touch::Resident,
            slab: Some(Slab { free: 1, live: 5 }),
        }],
        ..PageReading::default()
    }));
    write(folder, "read.heaplog", &log.end())
}

#[test]
fn rss() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_with_reading(folder.path()).display().to_string();
    let documents = [&["rss", "--json"][..], &["rss", "--json", "--at", "start"]].map(|words| {
        let output = heapprof(&[words, &[&log]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let document = parsed(&stdout(&output));
        let lines = document["lines"].as_array().expect("lines").iter();
        let sum: i64 = lines.filter_map(|line| line["bytes"].as_i64()).sum();
        assert_eq!(sum, 100 << 20);
        document
    });
    assert_eq!(documents[0]["complete"], false, "no stacks were read");
    are_documented("heapprof rss --json", &documents);
}

/// Lines of different times do not add up: the nearest reading with a memory detail of its own is
/// shown, and what was resident at the moment that was asked for. A reading with another amount is
/// of another state of the process.
#[test]
fn rss_takes_the_nearest_whole_reading() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 77, 1);
    let stack = log.stack(&[1, 2]);
    for (second, age_ms, mib) in [
        (1, 0, 100),
        (2, 1000, 105),
        (3, 2000, 108),
        (4, 0, 110),
        (5, 1000, 200),
        (6, 2000, 115),
    ] {
        log.alloc(stack, 5 << 20);
        let mut reading = MemoryReading::at(second * 1_000_000_000);
        reading.set(MemoryField::Resident, mib << 20);
        reading.set(MemoryField::DetailAge, age_ms);
        log.given(&Record::Memory(Box::new(reading)));
    }
    let log = write(folder.path(), "read.heaplog", &log.end());
    let log = log.display().to_string();
    let head = |moment: &[&str]| {
        let shown = stdout(&heapprof(&[&["rss", &log], moment].concat()));
        let lines: Vec<&str> = shown.lines().take(2).collect();
        lines.join("; ")
    };
    let at = |moment| head(&["--at", moment]);
    assert!(
        at("1.2s").starts_with("server, pid 77: 100.0 MiB resident at 1.000 s"),
        "{}",
        at("1.2s")
    );
    let of_3 = "110.0 MiB resident at 4.000 s; a whole reading near 3.100 s; 108.0 MiB were resident at 3.000 s";
    assert!(at("3.1s").contains(of_3), "{}", at("3.1s"));
    assert!(
        at("2.1s").contains("100.0 MiB resident at 1.000 s; a whole reading"),
        "{}",
        at("2.1s")
    );
    assert!(
        head(&[]).contains("115.0 MiB were resident at 6.000 s"),
        "{}",
        head(&[])
    );
    let of_peak = at("peak-rss");
    assert!(
        of_peak.contains("200.0 MiB resident at 5.000 s"),
        "{of_peak}"
    );
    assert!(!of_peak.contains("whole"), "{of_peak}");
}

/// The nearest whole reading does not add up, and the one before it does.
#[test]
fn of_whole_readings_near_a_moment_one_that_adds_up_is_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/server", 77, 1);
    let stack = log.stack(&[1, 2]);
    for (second, age_ms, mib, explained) in [
        (1, 0, 100, true),
        (2, 90, 102, false),
        (3, 1000, 104, false),
        (4, 0, 200, true),
    ] {
        log.alloc(stack, 5 << 20);
        let at_ns = second * 1_000_000_000;
        let mut reading = MemoryReading::at(at_ns);
        reading.set(MemoryField::Resident, mib << 20);
        reading.set(MemoryField::DetailAge, age_ms);
        let file = (mib - 5 * second) << 20;
        reading.set(MemoryField::File, explained.then_some(file));
        log.record_at(at_ns, |_| Record::Memory(Box::new(reading)));
    }
    let log = write(folder.path(), "read.heaplog", &log.end());
    let log = log.display().to_string();
    for (moment, resident) in [("3.1s", 104), ("2.1s", 102)] {
        let shown = stdout(&heapprof(&["rss", &log, "--at", moment]));
        let lines: Vec<&str> = shown.lines().take(2).collect();
        assert_eq!(lines[0], "server, pid 77: 100.0 MiB resident at 1.000 s");
        let near = format!(
            " {resident}.0 MiB were resident at {}.000 s",
            resident / 2 - 49
        );
        assert!(lines[1].ends_with(&near), "{lines:?}");
    }
}

/// Lines fit a terminal, and add up as they are printed.
#[test]
fn rss_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = log_with_reading(folder.path()).display().to_string();
    let output = heapprof(&["rss", &log, "--width", "80"]);
    let text = stdout(&output);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    for line in [
        "server, pid 77: 100.0 MiB resident at 0.005 s",
        "  blocks in use                5.0 MiB    5.0%  see heapprof top",
        "  partly empty slabs          44.0 MiB   44.0%  nothing: live blocks pin them",
        "  never touched              -30.0 MiB  -30.0%  smaller buffers save no memory",
        "  not explained               60.0 MiB   60.0%  unknown: not read in detail",
        "the cgroup's limit: 90.0 MiB of 100.0 MiB used (90.0 %)",
        "partly empty slabs, by the blocks that pin them, as of 0.005 s:",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line:?} in:\n{text}"
        );
    }
    // A narrow table cuts no word.
    for width in ["50", "60", "72"] {
        let narrow = stdout(&heapprof(&["rss", &log, "--width", width]));
        let most = width.parse().expect("a number");
        let widest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(most), "{narrow}");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        for remedy in [
            "smaller buffers save no memory",
            "unknown: not read in detail",
            "[heap]",
        ] {
            assert!(words(&narrow).contains(remedy), "{width}: {narrow}");
        }
    }
    let mut lines = text.lines();
    let is_of_site =
        |line: &str| line.starts_with("  1 block of ") && line.ends_with(" pin 1.0 MiB of slabs");
    assert!(lines.any(is_of_site), "{text}");
    let output = heapprof(&["timeline", &log, "--json", "--steps", "8"]);
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let of_step = |step: usize| document["steps"][step]["resident_bytes"].as_u64();
    assert_eq!((of_step(0), of_step(7)), (None, Some(100 << 20)));
    let text = stdout(&heapprof(&["timeline", &log]));
    assert!(text.starts_with("resident    "), "{text}");
    let without = write(folder.path(), "none.heaplog", &crate::common::server_log(1));
    let output = heapprof(&["rss", &without.display().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("no reading"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn top() {
    conforms(
        "heapprof top --json",
        &[&["top", "--json"], &["top", "--json", "--by", "module"]],
    );
}

#[test]
fn top_of_the_past() {
    let of = |metric| ["top", "--json", "--metric", metric];
    let metrics = [
        "peak",
        "temporary",
        "heaptime",
        "slack",
        "lifetime",
        "growth",
    ];
    let mut commands: Vec<Vec<&str>> = metrics.map(|metric| of(metric).to_vec()).into();
    commands.push([&of("peak")[..], &["--by", "file"]].concat());
    commands.push([&of("lifetime")[..], &["--by", "function"]].concat());
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let rotated = crate::coarse_history::log(folder.path());
    conforms_with("heapprof top --json --metric peak", &commands, &[rotated]);
}

#[test]
fn tree() {
    conforms(
        "heapprof tree --json",
        &[
            &["tree", "--json"],
            &["tree", "--json", "--by", "module"],
            &["tree", "--json", "--metric", "temporary"],
        ],
    );
}

/// A log of a program with a function `init` in each of two files.
fn homonyms(folder: &Path) -> (Fixture, String) {
    const INIT: &str = "int sink(int);
static __attribute__((noinline, noclone)) int init(int x) { return sink(x * 3) + 1; }
int NAME(int x) { return init(x) + 2; }
";
    let fixture = Fixture::new();
    fixture.write("net/a.c", INIT.replace("NAME", "one"));
    fixture.write("disk/b.c", INIT.replace("NAME", "two"));
    let main = "int one(int), two(int); int sink(int x) { return x; }
int main(int n, char **v) { (void)v; return one(n) + two(n); }";
    fixture.write("main.c", main);
    let files = ["main.c", "net/a.c", "disk/b.c"];
    let flags = ["-g", "-O1", "-Wl,--build-id", "-o", "program"];
    fixture.run("gcc", &[&flags[..], &files].concat());
    let bias = 0x5555_0000_0000;
    let mut log = LogBuilder::new(1);
    log.start_of("/bin/other", 79, 1);
    log.module_record(Module {
        number: 0,
        time_ns: 0,
        path: fixture.path("program").display().to_string(),
        build_id: fixture.build_id("program"),
        stamp: None,
        bias,
        segments: vec![Segment {
            start: bias,
            len: 0x10_0000,
            file_offset: 0,
            flags: 5,
        }],
    });
    let table = fixture.run("nm", &["program"]);
    let inits = table
        .lines()
        .filter_map(|line| line.strip_suffix(" t init"));
    for address in inits {
        let address = u64::from_str_radix(address, 16).unwrap();
        let stack = log.stack(&[bias + address]);
        log.alloc(stack, 1000);
    }
    let log = write(folder, "homonyms.heaplog", &log.end());
    (fixture, log.display().to_string())
}

#[test]
fn diff() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut other = LogBuilder::new(512);
    other.start_of("/bin/other", 78, 1);
    let stack = other.stack(&[1, 2]);
    other.alloc(stack, 1000);
    let other = write(folder.path(), "other.heaplog", &other.end());
    let (_fixture, homonyms) = homonyms(folder.path());
    conforms(
        "heapprof diff --json",
        &[
            &["diff", "--json", "--force", &homonyms],
            &["diff", "--json", "--at", "start", "--at", "end"],
            &["diff", "--json", "--force", &other.display().to_string()],
        ],
    );
}

/// The lines of a difference in JSON are those of its table.
#[test]
fn a_difference_has_the_lines_of_its_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = crate::common::server_log(1);
    let server = write(folder.path(), "server.heaplog", &server);
    let (_fixture, homonyms) = homonyms(folder.path());
    let files = [&server.display().to_string(), homonyms.as_str()];
    let command = [&["diff", "--force"][..], &files].concat();
    let document = parsed(&stdout(&heapprof(&[&command[..], &["--json"]].concat())));
    let table = stdout(&heapprof(&[&command[..], &["--width", "0"]].concat()));
    let sites = document["sites"].as_array().expect("sites").iter();
    let inits: Vec<_> = sites.filter(|site| site["function"] == "init").collect();
    assert_eq!(inits.len(), 2, "{document}");
    for site in inits {
        let (file, line) = (&site["source"]["file"], &site["source"]["line"]);
        let place = format!("{}:{line}", file.as_str().expect("a file"));
        assert!(
            place.contains("/a.c:2") || place.contains("/b.c:2"),
            "{place}"
        );
        let row = table.lines().find(|row| row.ends_with(&place));
        assert!(row.is_some_and(|row| row.contains("init (")), "{table}");
    }
}

#[test]
fn export() {
    conforms("heapprof export -f json", &[&["export", "-f", "json"]]);
}

#[test]
fn processes_of_serve() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut log = LogBuilder::new(4096);
    let own = std::env::current_exe().expect("this test");
    log.start_of(
        &own.display().to_string(),
        std::process::id(),
        1_767_225_600_000_000_000,
    );
    let stack = log.stack(&[0x1]);
    log.alloc(stack, 1000);
    let mut damaged = log.current_bytes();
    damaged.extend(b"no frame");
    write(folder.path(), "damaged.heaplog", &damaged);
    write(folder.path(), "running.heaplog", &log.current_bytes());
    write(folder.path(), "foreign.heaplog", b"no log");
    let server = crate::serve::Server::of(&[folder.path()]);
    // The growth is that between two moments.
    server.until("/processes", "cut off at offset");
    let text = server.until("/processes", "\"growth_bytes_per_second\":0.0");
    are_documented(
        "heapprof serve",
        &[serde_json::from_str(&text).expect("JSON")],
    );
}
