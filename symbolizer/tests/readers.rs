//! The programs that people open dumps with, run for real: google-pprof, jeprof, go tool pprof.
//!
//! They must state the same totals as `heapprof top`, for all four metrics, and show the names. A
//! reader that is not installed is a failure, not a skip: `scripts/install-deps` installs them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{LogBuilder, heapprof, stderr, stdout, totals_line, write};
use heapprof_format::{Module, Segment};
use heapprof_symbolizer::Metric;
use tempfile::TempDir;

/// A program that ran, and a log of it.
struct World {
    folder: TempDir,
    program: PathBuf,
    log: PathBuf,
}

fn run(program: &str, args: &[&str], home: &Path) -> String {
    let output = Command::new(program)
        .args(args)
        .env("HOME", home) // they keep caches there
        .env("PPROF_TMPDIR", home)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; run scripts/install-deps"));
    let (out, err) = (stdout(&output), stderr(&output));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{out}{err}",
        output.status
    );
    out
}

fn world(interval: u64) -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/program.c");
    let program = folder.path().join("program");
    let (from, to) = (source.display().to_string(), program.display().to_string());
    run(
        "gcc",
        &[
            "-g",
            "-O2",
            "-fno-optimize-sibling-calls",
            "-fPIE",
            "-pie",
            "-o",
            &to,
            &from,
        ],
        folder.path(),
    );
    let said = run(&to, &[], folder.path());

    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("hex");
    let mut modules: Vec<Module> = Vec::new();
    let mut stacks: Vec<Vec<u64>> = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["module", bias, id, path] => modules.push(Module {
                number: 0,
                time_ns: 0,
                path: path.into(),
                build_id: (0..id.len() / 2)
                    .map(|i| hex(&id[2 * i..2 * i + 2]) as u8)
                    .collect(),
                stamp: None,
                bias: hex(bias),
                segments: Vec::new(),
            }),
            ["segment", start, len, offset, flags] => {
                let segment = Segment {
                    start: hex(start),
                    len: hex(len),
                    file_offset: hex(offset),
                    flags: flags.parse().expect("flags"),
                };
                modules
                    .last_mut()
                    .expect("a module before its segments")
                    .segments
                    .push(segment);
            }
            ["stack", ..] => stacks.push(words[1..].iter().map(|word| hex(word)).collect()),
            _ => panic!("the program said {line}"),
        }
    }

    let mut log = LogBuilder::new(interval);
    log.program(&to);
    for module in modules {
        log.module_record(module);
    }
    let [first, second] = &stacks[..] else {
        panic!("two stacks")
    };
    let (first, second) = (log.stack(first), log.stack(second));
    for size in [100, 1000, 1000, 70_000, 3 << 20] {
        for stack in [first, second] {
            let kept = log.alloc(stack, size);
            let freed = log.alloc(stack, size + 8);
            log.free(freed);
            if size == 100 {
                log.free(kept);
            }
        }
    }
    log.alloc(second, 12_345);
    let log = write(folder.path(), "run.heaplog", &log.end());
    World {
        folder,
        program,
        log,
    }
}

impl World {
    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Exports the log (or a dump of it) and returns the path of the result.
    fn export(&self, format: &str, from: &str, to: &str) -> String {
        let path = self.path(to);
        let output = heapprof(&["export", "--format", format, "-o", &path, from]);
        assert!(output.status.success(), "{}", stderr(&output));
        path
    }

    fn log(&self) -> String {
        self.log.display().to_string()
    }

    /// The total of a metric as google-pprof or jeprof say it: `Total: 123 B`.
    fn perl_total(&self, reader: &str, file: &str, metric: Metric) -> u64 {
        // Names do not matter here, and addr2line needs seconds for libc's, each time: they then
        // come from nm.
        const TOOLS: &str = "--tools=addr2line:/bin/false,nm:/usr/bin/nm,objdump:/usr/bin/objdump,c++filt:/usr/bin/c++filt";
        let text = self.perl_with(&[TOOLS], reader, file, metric);
        let line = text
            .lines()
            .find(|line| line.starts_with("Total: "))
            .expect("a total");
        line.split(' ')
            .nth(1)
            .expect("a number")
            .parse()
            .expect("a number")
    }

    fn perl(&self, reader: &str, file: &str, metric: Metric) -> String {
        self.perl_with(&[], reader, file, metric)
    }

    fn perl_with(&self, more: &[&str], reader: &str, file: &str, metric: Metric) -> String {
        let which = match metric {
            Metric::InUseBytes => "--inuse_space",
            Metric::InUseObjects => "--inuse_objects",
            Metric::AllocatedBytes => "--alloc_space",
            Metric::AllocatedObjects => "--alloc_objects",
        };
        let program = self.program.display().to_string();
        let mut args = vec!["--text", "--show_bytes", "--lines", which, &program, file];
        if std::fs::read(file).expect("a dump").starts_with(b"---") {
            // A symbolized dump is shown without the program.
            args = vec!["--text", "--show_bytes", which, file];
        }
        run(reader, &[more, &args].concat(), self.folder.path())
    }

    fn go(&self, file: &str, metric: Metric, more: &[&str]) -> String {
        let which = match metric {
            Metric::InUseBytes => "-sample_index=inuse_space",
            Metric::InUseObjects => "-sample_index=inuse_objects",
            Metric::AllocatedBytes => "-sample_index=alloc_space",
            Metric::AllocatedObjects => "-sample_index=alloc_objects",
        };
        let unit = if metric.is_bytes() {
            "-unit=B"
        } else {
            "-unit=count"
        };
        let mut args = vec!["tool", "pprof", "-top", "-nodefraction=0", which, unit];
        args.extend(more);
        args.push(file);
        run("go", &args, self.folder.path())
    }

    /// `Showing nodes accounting for 5, 100% of 5 total`
    fn go_total(&self, file: &str, metric: Metric) -> u64 {
        let text = self.go(file, metric, &[]);
        let whole = text
            .lines()
            .find_map(|line| line.strip_suffix(" total")?.rsplit(' ').next());
        whole
            .expect("a total")
            .trim_end_matches('B')
            .parse()
            .expect("a number")
    }
}

#[test]
fn all_readers_state_the_totals_that_top_states() {
    for interval in [1, 4096] {
        let world = world(interval);
        let plain = world.export("gperftools", &world.log(), "run.heap");
        let again = world.export("gperftools", &plain, "again.heap");
        let symbolized = world.path("symbolized.heap");
        assert!(
            heapprof(&["symbolize", "-o", &symbolized, &plain])
                .status
                .success()
        );
        let pprof = world.export("pprof", &world.log(), "run.pb.gz");

        let top = |file: &str| totals_line(&stdout(&heapprof(&["top", file])));
        let expected = top(&world.log());
        assert!(expected.iter().all(|&n| n > 0));
        for file in [&plain, &again, &symbolized] {
            assert_eq!(top(file), expected, "heapprof top {file}");
        }
        let metrics = [
            Metric::InUseObjects,
            Metric::InUseBytes,
            Metric::AllocatedObjects,
            Metric::AllocatedBytes,
        ];
        for (metric, expected) in metrics.into_iter().zip(expected) {
            for file in [&plain, &symbolized] {
                for reader in ["google-pprof", "jeprof"] {
                    assert_eq!(
                        world.perl_total(reader, file, metric),
                        expected,
                        "{reader} {metric} {file}"
                    );
                }
            }
            for file in [&plain, &pprof] {
                assert_eq!(
                    world.go_total(file, metric),
                    expected,
                    "go tool pprof {metric} {file}"
                );
            }
        }
    }
}

#[test]
fn a_heap_from_which_nothing_was_freed_still_has_four_columns() {
    let world = world(1);
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1000, 0x2000]);
    log.alloc(stack, 10);
    let log = write(world.folder.path(), "kept.heaplog", &log.end());
    let dump = world.export("gperftools", &log.display().to_string(), "kept.heap");
    assert_eq!(world.go_total(&dump, Metric::AllocatedBytes), 10);
    assert_eq!(
        world.perl_total("google-pprof", &dump, Metric::AllocatedBytes),
        10
    );
}

#[test]
fn readers_find_names_by_a_plain_dump() {
    let world = world(1);
    let plain = world.export("gperftools", &world.log(), "run.heap");
    for reader in ["google-pprof", "jeprof"] {
        let text = world.perl(reader, &plain, Metric::InUseBytes);
        for name in ["record", "allocate", "other", "main", "program.c"] {
            assert!(text.contains(name), "{reader}: {name} is not in\n{text}");
        }
    }
    // Go's own default for such files prunes a user's `allocate` and what is around it; not our
    // doing, and what the protobuf is for.
    let text = world.go(&plain, Metric::InUseBytes, &["-symbolize=local"]);
    for name in ["other", "record", "Build ID: "] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
}

#[test]
fn symbolized_dumps_need_no_program() {
    let world = world(1);
    let symbolized = world.path("symbolized.heap");
    assert!(
        heapprof(&["symbolize", "-o", &symbolized, &world.log()])
            .status
            .success()
    );
    std::fs::remove_file(&world.program).expect("the program can be removed");
    for reader in ["google-pprof", "jeprof"] {
        let text = world.perl(reader, &symbolized, Metric::InUseBytes);
        for name in ["record", "inlined_middle", "allocate", "other", "main"] {
            assert!(text.contains(name), "{reader}: {name} is not in\n{text}");
        }
        assert!(
            !text.contains("0x00"),
            "{reader} shows bare addresses:\n{text}"
        );
    }
    // And our own: names that no file can give any more come from the dump.
    let text = stdout(&heapprof(&["top", "--cum", &symbolized]));
    assert!(
        text.contains("inlined_middle") && text.contains("allocate"),
        "{text}"
    );
}

#[test]
fn go_shows_names_files_lines_and_inlined_functions_of_the_protobuf() {
    let world = world(1);
    let pprof = world.export("pprof", &world.log(), "run.pb.gz");
    std::fs::remove_file(&world.program).expect("the program can be removed");
    let text = world.go(&pprof, Metric::InUseBytes, &["-lines"]);
    let source = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/program.c"),
    )
    .expect("the source");
    let line_of = |what: &str| {
        source
            .lines()
            .position(|line| line.contains(what))
            .expect("a line")
            + 1
    };
    let call = line_of("the line of the inlined call");
    for expected in [
        format!("program.c:{call} (inline)"),
        format!("program.c:{}", line_of("    inlined_middle();")),
        "allocate".into(), // a user's own, not pruned
        "record".into(),
        "main".into(),
    ] {
        assert!(text.contains(&expected), "{expected} is not in\n{text}");
    }
    assert!(
        !text.contains(" malloc "),
        "the entry point is dropped:\n{text}"
    );

    let raw = run(
        "go",
        &["tool", "pprof", "-raw", &pprof],
        world.folder.path(),
    );
    for expected in [
        "inuse_space/bytes",
        "bytes:[",
        "PeriodType: space bytes",
        "[FN]",
    ] {
        assert!(raw.contains(expected), "{expected} is not in\n{raw}");
    }
    let comments = run(
        "go",
        &["tool", "pprof", "-comments", &pprof],
        world.folder.path(),
    );
    assert!(
        comments.contains("interval: 1 bytes") && comments.contains("estimator: exact"),
        "{comments}"
    );
    // Sizes as tags: only the blocks of 3 MiB.
    let big = world.go(&pprof, Metric::InUseBytes, &["-tagfocus=1MB:"]);
    assert!(
        big.contains(&format!("accounting for {}B", 2 * (3 << 20))),
        "{big}"
    );
}

/// Names do not depend on which of our inputs they are asked of.
#[test]
fn top_names_the_same_sites_of_a_log_and_of_its_dump() {
    let world = world(1);
    let plain = world.export("gperftools", &world.log(), "run.heap");
    let table = |file: &str| {
        let text = stdout(&heapprof(&["top", "--cum", file]));
        text.split("\n\n").nth(1).expect("a table").to_owned()
    };
    assert_eq!(table(&world.log()), table(&plain));
    assert!(table(&plain).contains("program.c:"), "{}", table(&plain));
}

#[test]
fn jeprof_reads_jemallocs_form_and_its_threads() {
    for interval in [1, 4096] {
        let world = world(interval);
        let dump = world.export("jemalloc", &world.log(), "run.jemalloc");
        let text = stdout(&heapprof(&["top", &world.log()]));
        let [_, in_use, _, allocated] = totals_line(&text);
        let program = world.program.display().to_string();
        for (which, expected) in [("--inuse_space", in_use), ("--alloc_space", allocated)] {
            for thread in [None, Some("--thread=0")] {
                let mut args = vec!["--text", "--show_bytes", which];
                args.extend(thread);
                args.extend([program.as_str(), dump.as_str()]);
                let text = run("jeprof", &args, world.folder.path());
                let total: u64 = text
                    .lines()
                    // `Total: 123 B`, of a thread `Total (t0): 123 B`
                    .find_map(|line| line.strip_prefix("Total")?.split(": ").nth(1))
                    .and_then(|rest| rest.split(' ').next())
                    .expect("a total")
                    .parse()
                    .expect("a number");
                // jeprof cuts the fraction off each line it unsamples.
                assert!(
                    total.abs_diff(expected) <= 20,
                    "{which} {thread:?}: {total}, not {expected}"
                );
                assert!(
                    text.contains("inlined_middle") || text.contains("allocate"),
                    "{text}"
                );
            }
        }
        // Our own reading of it is the same again.
        let [_, again, ..] = totals_line(&stdout(&heapprof(&["top", &dump])));
        assert!(again.abs_diff(in_use) <= 20, "{again}, not {in_use}");
    }
}

#[test]
fn callgrind_annotate_reads_our_callgrind_form() {
    let world = world(1);
    let file = world.export("callgrind", &world.log(), "callgrind.out.1");
    let [_, in_use, ..] = totals_line(&stdout(&heapprof(&["top", &world.log()])));
    let text = run(
        "callgrind_annotate",
        &["--inclusive=yes", "--threshold=100", "--tree=both", &file],
        world.folder.path(),
    );
    let plain = text.replace(',', "");
    assert!(plain.contains(&format!("{in_use} (100.0%)")), "{text}");
    assert!(
        text.contains("PROGRAM TOTALS") && text.contains(":main"),
        "{text}"
    );
    assert!(text.contains(":allocate"), "{text}");
}

#[test]
fn profiles_of_go_tool_pprof_are_read_again() {
    let world = world(4096);
    let dump = world.export("pprof", &world.log(), "run.pb.gz");
    let proto = world.path("proto.pb.gz");
    let args = ["tool", "pprof", "-proto", "-output", &proto, &dump];
    run("go", &args, world.folder.path());
    let expected = totals_line(&stdout(&heapprof(&["top", &world.log()])));
    for file in [&dump, &proto] {
        let output = heapprof(&["top", file]);
        assert_eq!(
            totals_line(&stdout(&output)),
            expected,
            "{}",
            stderr(&output)
        );
        assert!(
            stdout(&output).contains("program.c:"),
            "{}",
            stdout(&output)
        );
    }
    // And a text dump that Go made a profile of, names left to be found by us.
    let plain = world.export("gperftools", &world.log(), "run.heap");
    let args = [
        "tool",
        "pprof",
        "-proto",
        "-symbolize=none",
        "-output",
        &proto,
        &plain,
    ];
    run("go", &args, world.folder.path());
    let output = heapprof(&["top", &proto]);
    assert_eq!(totals_line(&stdout(&output)), expected);
    assert!(
        stdout(&output).contains("program.c:"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn profiles_of_jemalloc_itself_are_read_as_jeprof_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/leaky.c");
    let program = folder.path().join("leaky").display().to_string();
    let source = source.display().to_string();
    run(
        "gcc",
        &["-g", "-O1", "-pthread", "-o", &program, &source],
        folder.path(),
    );
    let prefix = folder.path().join("je").display().to_string();
    let settings =
        format!("prof:true,prof_final:true,prof_accum:true,lg_prof_sample:12,prof_prefix:{prefix}");
    let status = Command::new(&program)
        .env("LD_PRELOAD", "libjemalloc.so.2")
        .env("MALLOC_CONF", settings)
        .status()
        .expect("the program can be started");
    assert!(status.success());
    let dump = std::fs::read_dir(folder.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .find(|path| path.ends_with(".heap"))
        .expect("jemalloc's dump; run scripts/install-deps");
    for (which, index) in [("--inuse_space", 1), ("--alloc_space", 3)] {
        let args = ["--text", "--show_bytes", which, &program, &dump];
        let text = run("jeprof", &args, folder.path());
        let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
        let total: u64 = total
            .and_then(|rest| rest.split(' ').next())
            .expect("a total")
            .parse()
            .expect("a number");
        let output = heapprof(&["top", &dump]);
        let ours = totals_line(&stdout(&output))[index];
        assert!(
            ours.abs_diff(total) <= 100,
            "{which}: {ours}, jeprof says {total}"
        );
        assert!(
            stdout(&output).contains("keep_blocks"),
            "{}",
            stdout(&output)
        );
    }
    let output = heapprof(&["tree", "--by", "thread", "--json", &dump]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let threads = json["tree"]["children"].as_array().expect("threads");
    assert!(threads.len() >= 2, "{}", stdout(&output));
}

#[test]
fn a_bundle_gives_the_same_on_another_machine() {
    let world = world(4096);
    let bundle = world.path("run.tar");
    let made = |out: &str| {
        let output = heapprof(&["bundle", "-o", out, &world.log()]);
        assert!(output.status.success(), "{}", stderr(&output));
    };
    made(&bundle);
    let again = world.path("again.tar");
    made(&again);
    assert_eq!(
        std::fs::read(&bundle).unwrap(),
        std::fs::read(&again).unwrap()
    );

    let outputs = |file: &str| -> Vec<Vec<u8>> {
        let commands: [&[&str]; 4] = [
            &["symbolize"],
            &["top", "-n", "0"],
            &["export", "-f", "json"],
            &["tree", "--by", "line", "--min", "0"],
        ];
        let run = |command: &&[&str]| {
            let output = heapprof(&[*command, &[file]].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            output.stdout
        };
        commands.iter().map(run).collect()
    };
    let before = outputs(&world.log());
    // Another machine: another program has the name now, and libc is asked of the bundle alone.
    std::fs::rename(&world.program, world.folder.path().join("moved")).unwrap();
    std::fs::copy("/bin/true", &world.program).unwrap();
    std::fs::remove_file(format!("{}.names", world.log())).unwrap();
    assert_ne!(
        outputs(&world.log())[0],
        before[0],
        "the names came from the program"
    );
    assert_eq!(outputs(&bundle), before);

    // Unpacked, it is what PPROF_BINARY_PATH wants.
    let unpacked = world.folder.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let folder = unpacked.display().to_string();
    run("tar", &["-xf", &bundle, "-C", &folder], world.folder.path());
    let output = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["symbolize", &world.log()])
        .env("PPROF_BINARY_PATH", &folder)
        .output()
        .unwrap();
    assert_eq!(output.stdout, before[0]);
}
