//! Names that no module has, and reading on another machine: recordings of real programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use heapprof_tests::{Finished, Run};

/// A perf map in `/tmp`, which is removed when the test ends.
struct PerfMap(PathBuf);

impl Drop for PerfMap {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn outputs(file: &Path) -> Vec<String> {
    let commands: [&[&str]; 3] = [
        &["symbolize"],
        &["top", "--json"],
        &["export", "-f", "speedscope"],
    ];
    let run = |command: &[&str]| Run::heapprof().args(command).arg(file).run().well().stdout;
    commands.map(run).to_vec()
}

fn bundled(file: &Path) -> PathBuf {
    let out = file.with_extension("tar");
    let bundle = Run::heapprof().arg("bundle").arg("-o").arg(&out);
    let _ = bundle.arg(file).run().well();
    out
}

/// JavaScript has no unwind tables, but keeps frame pointers: walks lead through it, and node's
/// perf map has its names.
#[test]
fn node_names_its_own_code() {
    const PROGRAM: &str = "
        function fillBuffers(n) {
            const all = [];
            for (let i = 0; i < n; i++) all.push(Buffer.alloc(20000, i & 255));
            return all;
        }
        let kept = [];
        for (let i = 0; i < 200; i++) kept = fillBuffers(20);
        console.log(kept.length);
    ";
    let run = Run::program("/usr/bin/node").interval(4096);
    fs::write(run.folder().join("x.js"), PROGRAM).expect("a file");
    // Without the last option V8 copies its built-in functions, to a place that the map does not
    // tell.
    let options = ["--perf-basic-prof", "--no-short-builtin-calls", "x.js"];
    let ran = run.args(options).run().well();
    assert_eq!(ran.stdout, "20\n");
    let map = PerfMap(format!("/tmp/perf-{}.map", ran.pid).into());
    let log = ran.log_path();

    let info = |ran: &Finished| Run::heapprof().arg("info").arg(ran.log_path()).run().stdout;
    let said = info(&ran);
    let (asked, named) = addresses_outside(&said);
    assert!(asked > 0, "no walk led through JavaScript:\n{said}");
    let before = outputs(&log);
    assert!(before[0].contains("JS:"), "{}", before[0]);
    // Interpreted or compiled, it is one function.
    let tree = Run::heapprof().args(["tree", "--all-frames", "--min", "0"]);
    let tree = tree
        .args(["-m", "allocated-bytes"])
        .arg(&log)
        .run()
        .well()
        .stdout;
    let names = tree
        .lines()
        .filter_map(|line| Some(&line[line.find("JS:")?..]));
    let own: BTreeSet<&str> = names.filter(|name| name.contains("fillBuffers")).collect();
    assert_eq!(own.len(), 1, "{own:?}");
    assert!(
        own.iter().all(|name| name.starts_with("JS:fillBuffers ")),
        "{own:?}"
    );
    // From the process's first function to the script's own and on.
    let folded = Run::heapprof()
        .args(["export", "--format", "folded"])
        .args(["--metric", "allocated-bytes"])
        .arg(&log)
        .run()
        .well();
    // In one run of fifty there is a sample in `InterpreterOnStackReplacement_ToBaseline`. In its
    // frame, the word of the return address has the loop's number: V8 keeps it in the upper half.
    // The resolver looks up the byte before.
    let frames = folded.stdout.lines().flat_map(|line| line.split(';'));
    let numbers: BTreeSet<&str> = frames
        .filter(|frame| frame.starts_with("[0x") && frame.ends_with("ffffffff]"))
        .collect();
    assert_eq!(named + numbers.len() as u64, asked, "{said}{numbers:?}");
    let parts = ["_start;", ";node::", "fillBuffers"];
    let functions = [";malloc ", ";calloc "]; // depending on the version
    let is_whole = |line: &str| {
        parts.iter().all(|part| line.contains(part)) && functions.iter().any(|it| line.contains(it))
    };
    assert!(folded.stdout.lines().any(is_whole), "{}", folded.stdout);
    // Few walks end in brand-new code: the library's thread looks for code as soon as one ended
    // there.
    let bytes = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    let of = |wanted: &dyn Fn(&str) -> bool| -> u64 {
        let lines = folded.stdout.lines().filter(|line| wanted(line));
        lines.filter_map(bytes).sum()
    };
    let (all, cut_off) = (
        of(&|line| line.contains("JS:")),
        of(&|line| line.starts_with("JS:")),
    );
    assert!(
        cut_off < all / 8,
        "{cut_off} of {all} bytes:\n{}",
        folded.stdout
    );

    let bundle = bundled(&log);
    drop(map);
    assert_eq!(addresses_outside(&info(&ran)), (asked, 0));
    assert_ne!(outputs(&log), before, "the names came from the map");
    assert_eq!(outputs(&bundle), before, "and the bundle has it");
}

/// Returns two numbers of `info`: addresses outside modules, and those with a name.
fn addresses_outside(info: &str) -> (u64, u64) {
    let line = info
        .lines()
        .find_map(|line| line.split_once("outside every module (code made at run time?): "));
    let (_, rest) = line.unwrap_or_else(|| panic!("no such line:\n{info}"));
    let numbers: Vec<u64> = rest
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    (numbers[0], numbers[1])
}

/// A child's log needs its parent's; a child's bundle does not.
#[test]
fn the_bundle_of_a_forked_child_has_what_it_inherited() {
    let ran = Run::fixture("fork_inherits")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let parent = ran.folder().join("t.heaplog");
    let children = ran.files_ending(".heaplog");
    let child = children.iter().find(|name| *name != "t.heaplog");
    let child = ran.folder().join(child.expect("a child's log"));
    let before = outputs(&child);
    let bundle = bundled(&child);
    fs::remove_file(parent).expect("the parent's log");
    assert_ne!(
        outputs(&child),
        before,
        "the child had something from its parent"
    );
    assert_eq!(outputs(&bundle), before);
}
