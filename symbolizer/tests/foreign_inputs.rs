//! Heap profiles that gperftools and Go made of real programs, compared with the numbers of their
//! own tools. (jemalloc's profiles are in `readers.rs`, whose dumps jeprof reads.)

use std::path::Path;
use std::process::Command;

use crate::common::{heapprof, stderr, stdout, totals_line};

fn run(program: &str, args: &[&str], folder: &Path, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("PPROF_TMPDIR", folder)
        .current_dir(folder);
    command.envs(env.iter().copied());
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; run scripts/install-deps"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        stderr(&output)
    );
    stdout(&output)
}

fn source(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/readers")
        .join(name);
    path.display().to_string()
}

/// `top`'s totals: in use objects, bytes; allocated objects, bytes.
fn ours(file: &str) -> ([u64; 4], String) {
    let output = heapprof(&["top", "--cum", file]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    (totals_line(&text), text)
}

#[test]
fn profiles_of_gperftools_itself_are_read_as_google_pprof_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let program = folder.join("leaky").display().to_string();
    // Or gcc would leave out what is freed at once.
    let flags = ["-g", "-O1", "-fno-builtin", "-pthread", "-o"];
    let source = source("leaky.c");
    let args = [&flags[..], &[program.as_str(), &source]].concat();
    run("gcc", &args, folder, &[]);
    let prefix = folder.join("tc").display().to_string();
    let env = [
        ("LD_PRELOAD", "libtcmalloc.so.4"),
        ("HEAPPROFILE", prefix.as_str()),
        // A dump while both threads allocate, not only the last one.
        ("HEAP_PROFILE_ALLOCATION_INTERVAL", "1000000"),
    ];
    run(&program, &[], folder, &env);
    let mut dumps: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .filter(|path| path.ends_with(".heap"))
        .collect();
    dumps.sort();
    assert!(dumps.len() >= 3, "gperftools' dumps: {dumps:?}");
    for dump in [&dumps[0], &dumps[dumps.len() - 1]] {
        let (totals, text) = ours(dump);
        let options = [
            "--inuse_objects",
            "--inuse_space",
            "--alloc_objects",
            "--alloc_space",
        ];
        for (which, ours) in options.into_iter().zip(totals) {
            let args = ["--text", "--show_bytes", which, &program, dump];
            let said = run("google-pprof", &args, folder, &[]);
            let total = said.lines().find_map(|line| {
                line.strip_prefix("Total: ")?
                    .split(' ')
                    .next()?
                    .parse()
                    .ok()
            });
            assert_eq!(total, Some(ours), "{which} of {dump}: {said}");
        }
        assert!(totals[3] > totals[1], "it frees");
        assert!(text.contains("keep_blocks"), "{text}");
    }
}

#[test]
fn profiles_of_go_itself_are_read_as_its_tool_reads_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let path = |name: &str| folder.join(name).display().to_string();
    let (program, proto, text) = (path("leaky"), path("heap.pb.gz"), path("heap.txt"));
    // Go keeps its build for the next run in its own cache.
    run(
        "go",
        &["build", "-o", &program, &source("leaky.go")],
        folder,
        &[],
    );
    run(&program, &[&proto, &text], folder, &[]);
    for file in [&proto, &text] {
        let (totals, shown) = ours(file);
        let options = [
            "inuse_objects",
            "inuse_space",
            "alloc_objects",
            "alloc_space",
        ];
        for (which, ours) in options.into_iter().zip(totals) {
            let index = format!("-sample_index={which}");
            let unit = if which.ends_with("space") {
                "-unit=B"
            } else {
                "-unit=count"
            };
            let args = [
                "tool",
                "pprof",
                "-top",
                "-nodefraction=0",
                "-nodecount=9999",
                &index,
                unit,
                file,
            ];
            let said = run("go", &args, folder, &[]);
            let total = said
                .lines()
                .find_map(|line| line.strip_suffix(" total")?.rsplit(' ').next());
            let total: u64 = total
                .and_then(|total| total.trim_end_matches('B').parse().ok())
                .unwrap_or_else(|| panic!("a total in {said}"));
            // The text states samples. Each line is unsampled, and the tool cuts off where
            // heapprof rounds.
            let lines = 2 * said.lines().count() as u64 + 50;
            let tolerance = if file == &proto { 0 } else { lines };
            assert!(
                total.abs_diff(ours) <= tolerance,
                "{which} of {file}: {ours}, go says {total}"
            );
        }
        assert!(totals[1] > 4_000_000 && totals[3] > totals[1], "{totals:?}");
        // The text says neither where the program was nor, to its readers, a name.
        assert!(shown.contains("main.keep") == (file == &proto), "{shown}");
    }
}
