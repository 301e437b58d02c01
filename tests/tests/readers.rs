//! Three real readers open the dump as it is and find the same totals as `heapprof top`:
//! google-pprof (google-perftools), jeprof (libjemalloc-dev) and `go tool pprof` (golang-go), all
//! as Debian ships them. A missing reader is a failure: run scripts/install-deps.

use std::path::Path;

use heapprof_symbolizer::Metric;
use heapprof_tests::{Account, Build, Finished, Json, Run};

const PERL_READERS: [&str; 2] = ["google-pprof", "jeprof"];

fn record(interval: u64) -> Finished {
    Run::fixture("truth")
        .interval(interval)
        .prefix("t")
        .run()
        .well()
}

/// Returns the path of a reader.
#[track_caller]
fn reader(name: &str) -> std::path::PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run scripts/install-deps"))
}

/// Returns the totals of `heapprof top` for a file in the run's folder.
fn top(ran: &Finished, file: &str) -> Account {
    let top = Run::heapprof()
        .in_folder_of(ran)
        .args(["top", "--json", file])
        .run()
        .well();
    Json::parse(&top.stdout).totals()
}

/// Runs google-pprof or jeprof on a file.
///
/// These need the program beside a dump, and refuse it beside a symbolized one.
fn perl_reader(
    ran: &Finished,
    name: &str,
    option: &str,
    binary: Option<&Path>,
    file: &str,
) -> String {
    Run::tool(reader(name))
        .in_folder_of(ran)
        .args(["--text", "--show_bytes", option])
        .args(binary)
        .arg(file)
        .run()
        .well()
        .stdout
}

/// Returns the number in `Total: 123 B` or `Total: 12 objects`.
#[track_caller]
fn total_of_perl_reader(text: &str) -> u64 {
    let total = text.lines().find_map(|line| line.strip_prefix("Total: "));
    let number = total.and_then(|rest| rest.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no total in: {text:.300}"))
}

fn go_pprof(ran: &Finished, args: &[&str]) -> String {
    Run::tool(reader("go"))
        .in_folder_of(ran)
        .env("PPROF_TMPDIR", ran.folder())
        .env("GOCACHE", ran.folder())
        .env("GOFLAGS", "-mod=mod")
        .args(["tool", "pprof"])
        .args(args)
        .run()
        .well()
        .stdout
}

/// Returns the number in `… of 12345B total` or `… of 12345 total`.
#[track_caller]
fn total_of_go(text: &str) -> u64 {
    let line = text
        .lines()
        .find(|line| line.starts_with("Showing nodes accounting for"));
    let total = line.and_then(|line| line.rsplit(" of ").next()?.strip_suffix(" total"));
    let number = total.and_then(|total| total.trim_end_matches(char::is_alphabetic).parse().ok());
    number.unwrap_or_else(|| panic!("no total in: {text:.300}"))
}

const METRICS: [(Metric, &str, &str); 4] = [
    (Metric::InUseBytes, "--inuse_space", "inuse_space"),
    (Metric::InUseObjects, "--inuse_objects", "inuse_objects"),
    (Metric::AllocatedBytes, "--alloc_space", "alloc_space"),
    (Metric::AllocatedObjects, "--alloc_objects", "alloc_objects"),
];

/// At interval 1 and sampled, where no reader may unsample the numbers again.
#[test]
fn three_readers_see_the_totals_that_top_shows() {
    for interval in [1, 524_288] {
        let ran = record(interval);
        let expected = top(&ran, "t.0001.heap");
        assert_eq!(expected, top(&ran, "t.heaplog"));
        assert!(
            expected.in_use_objects > 1000 && expected.in_use_bytes > 1 << 20,
            "{expected:?}"
        );
        let symbolize =
            Run::heapprof()
                .in_folder_of(&ran)
                .args(["symbolize", "t.0001.heap", "-o", "s.heap"]);
        let _ = symbolize.run().well();
        assert_eq!(expected, top(&ran, "s.heap"));

        let truth = Build::get().fixture("truth");
        for (metric, option, sample_index) in METRICS {
            let case = format!("{} at interval {interval}", metric.name());
            for name in PERL_READERS {
                for (file, binary) in [("t.0001.heap", Some(truth.as_path())), ("s.heap", None)] {
                    let text = perl_reader(&ran, name, option, binary, file);
                    assert_eq!(
                        total_of_perl_reader(&text),
                        expected.get(metric),
                        "{name} {file}, {case}"
                    );
                }
            }
            let sample_index = format!("-sample_index={sample_index}");
            let go = |file| {
                go_pprof(
                    &ran,
                    &["-top", "-unit=bytes", "-nodecount=1", &sample_index, file],
                )
            };
            assert_eq!(
                total_of_go(&go("t.0001.heap")),
                expected.get(metric),
                "go, {case}"
            );
        }
    }
}

/// The symbolized dump needs neither the program nor its libraries.
#[test]
fn the_symbolized_dump_shows_names_without_the_binary() {
    let ran = record(1);
    for input in ["t.0001.heap", "t.heaplog"] {
        let out = format!("{input}.symbolized");
        let _ = Run::heapprof()
            .in_folder_of(&ran)
            .args(["symbolize", input, "-o", &out])
            .run()
            .well();
        let moved = std::fs::read_to_string(ran.folder().join(&out)).unwrap();
        // As on another machine: no mapping names an existing file.
        let (head, maps) = moved.split_once("MAPPED_LIBRARIES:").expect("mappings");
        let maps = maps.replace(" /", " /nonexistent/");
        std::fs::write(
            ran.folder().join(&out),
            format!("{head}MAPPED_LIBRARIES:{maps}"),
        )
        .unwrap();
        for name in PERL_READERS {
            let text = perl_reader(&ran, name, "--alloc_space", None, &out);
            // In C, in C++, inlined, in a plug-in, and at the bottom of the stacks.
            for function in [
                "site_malloc_8m",
                "site_new_array",
                "site_inline_helper",
                "site_plugin_malloc",
                "worker",
            ] {
                let line = text.lines().find(|line| {
                    line.split_whitespace()
                        .any(|word| word == function || word.starts_with(&format!("{function}(")))
                });
                assert!(
                    line.is_some(),
                    "{name} {out}: no {function} in\n{text:.2000}"
                );
            }
            let line = text
                .lines()
                .find(|line| line.ends_with(" site_malloc_8m"))
                .expect("the line");
            assert!(line.contains("8388608"), "{name}: {line}");
        }
    }
}

/// The exported profile is complete: go needs no file of the program.
#[test]
fn go_shows_functions_files_lines_and_inlined_frames_of_the_exported_profile() {
    let ran = record(1);
    let expected = top(&ran, "t.heaplog");
    for input in ["t.heaplog", "t.0001.heap"] {
        let _ = Run::heapprof()
            .in_folder_of(&ran)
            .args(["export", "--format", "pprof", "-o", "t.pb.gz", input])
            .run()
            .well();
        for (metric, _, sample_index) in METRICS {
            let sample_index = format!("-sample_index={sample_index}");
            let text = go_pprof(
                &ran,
                &[
                    "-symbolize=none",
                    "-top",
                    "-unit=bytes",
                    "-nodecount=1",
                    &sample_index,
                    "t.pb.gz",
                ],
            );
            assert_eq!(
                total_of_go(&text),
                expected.get(metric),
                "{input}: {}",
                metric.name()
            );
        }
        let text = go_pprof(
            &ran,
            &[
                "-symbolize=none",
                "-top",
                "-cum",
                "-lines",
                "-unit=bytes",
                "-nodefraction=0",
                "-nodecount=100000",
                "-sample_index=alloc_space",
                "t.pb.gz",
            ],
        );
        let line_of = |words: &[&str]| {
            text.lines()
                .find(|line| words.iter().all(|word| line.contains(word)))
        };
        for words in [
            &["site_malloc_8m ", "c-fixtures/truth.c:"][..],
            &["site_inlined_one ", "c-fixtures/truth.c:", "(inline)"],
            &["site_inlined_two ", "c-fixtures/truth.c:", "(inline)"],
            &["host_of_inlined_sites ", "c-fixtures/truth.c:"],
            &["site_plugin_malloc ", "c-fixtures/truth_plugin.c:"],
            &["site_new_array ", "c-fixtures/truth_cxx.cpp:"],
        ] {
            assert!(
                line_of(words).is_some(),
                "{input}: no line with {words:?} in\n{text:.3000}"
            );
        }
        let host = line_of(&["host_of_inlined_sites "]).expect("checked");
        assert!(!host.contains("(inline)"), "{host}");
        // The numbers of a site, by its name.
        let eight = line_of(&["site_malloc_8m "]).expect("checked");
        assert!(eight.contains("8388608B"), "{eight}");
    }
}

/// jemalloc's own dumps have frames of its profiler on top: these are no sites.
#[test]
fn jemallocs_own_dumps_have_the_programs_sites() {
    const PROGRAM: &str = "
        #include <stdlib.h>
        void *kept[1000];
        __attribute__((noipa)) void allocates(void) {
            for (int i = 0; i < 1000; i++) kept[i] = malloc(10000);
        }
        int main(void) { allocates(); return kept[999] == 0; }
    ";
    let flags = [
        "-g",
        "-rdynamic",
        "-l:libjemalloc.a",
        "-lstdc++",
        "-lm",
        "-ldl",
        "-pthread",
    ];
    let ran = Run::compiled("own_profiler", PROGRAM, &flags)
        .without_library()
        .env("MALLOC_CONF", "prof:true,prof_final:true,lg_prof_sample:12")
        .run()
        .well();
    let dumps = ran.files_ending(".heap");
    assert_eq!(dumps.len(), 1, "{:?}", ran.files());
    let top = Run::heapprof()
        .in_folder_of(&ran)
        .args(["top", "--json", &dumps[0]])
        .run()
        .well();
    let top: serde_json::Value = serde_json::from_str(&top.stdout).unwrap();
    let sites = top["sites"].as_array().unwrap().iter();
    let own = sites.filter(|site| site["self"]["in-use-bytes"].as_u64() > Some(0));
    let own: Vec<&str> = own.filter_map(|site| site["function"].as_str()).collect();
    assert_eq!(own[0], "allocates", "{own:?}");
    let inside = |name: &&str| name.contains("prof_") || name.contains("malloc");
    assert!(!own.iter().any(inside), "{own:?}");
}
