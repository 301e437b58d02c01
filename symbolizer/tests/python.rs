//! Stacks with Python functions: in tables, trees, exports, differences and joined logs.
//!
//! ```text
//!   0x10_0000  /opt/libheapprof.so     0x20_0000  /usr/bin/python3.11
//!   0x30_0000  /opt/rows.so            0x40_0000  /lib/libc.so.6
//!
//!   malloc, list in python, eval: load (line 11), main (line 21), call in python, rows.so,
//!   eval: <module> (line 30), start in python, start in libc
//! ```

use std::path::Path;

use heapprof_format::{Code, LineTableKind, Record, Start, code_address, is_code_address};
use heapprof_symbolizer::profile_of_log;

use crate::common::processes::{S, begin, put};
use crate::common::{LogBuilder, json, ok};

const MALLOC: u64 = 0x10_0100;
const IN_PYTHON: u64 = 0x20_0100;
const EVAL: u64 = 0x20_0800;
const IN_ROWS: u64 = 0x30_0100;
const IN_LIBC: u64 = 0x40_0100;

/// A function whose n-th instruction is in the n-th line behind the first.
fn function(name: &str, file: &str, first_line: u32) -> Code {
    const ONE_LINE_ON: [u8; 3] = [0x80 | 11 << 3, 0, 0];
    const SAME_LINE: [u8; 2] = [0x80, 0];
    let table = [&SAME_LINE[..], &ONE_LINE_ON, &ONE_LINE_ON].concat();
    Code::new(
        name.into(),
        file.into(),
        first_line,
        LineTableKind::Locations,
        table,
    )
}

fn load() -> Code {
    function("Table.load", "/app/rows.py", 10)
}

/// Writes the modules and the functions, and the stack from the module's text. Returns its number.
fn python_stack(log: &mut LogBuilder) -> u32 {
    for (path, start) in [
        ("/opt/libheapprof.so", 0x10_0000),
        ("/usr/bin/python3.11", 0x20_0000),
        ("/opt/rows.so", 0x30_0000),
        ("/lib/libc.so.6", 0x40_0000),
    ] {
        log.module(path, start, 0x1000);
    }
    let functions = [
        load(),
        function("main", "/app/work.py", 20),
        function("<module>", "/app/work.py", 30),
    ];
    for code in &functions {
        log.given(&Record::Code(code.clone()));
    }
    let [load, main, module] = functions.map(|code| code.start);
    let frames = [
        MALLOC,
        IN_PYTHON,
        EVAL,
        code_address(load, 1),
        code_address(main, 1),
        IN_PYTHON + 0x20,
        IN_ROWS,
        EVAL,
        code_address(module, 0),
        IN_PYTHON + 0x40,
        IN_LIBC,
    ];
    let exact: Vec<u32> = (0..)
        .zip(&frames)
        .filter(|(_, frame)| is_code_address(**frame))
        .map(|(index, _)| index)
        .collect();
    log.stack_ending(&frames, &exact, heapprof_format::WalkEnd::Root)
}

fn log_with(size: u64, start: Start) -> Vec<u8> {
    let mut log = LogBuilder::new(1);
    log.begins(start);
    let stack = python_stack(&mut log);
    log.alloc(stack, size);
    log.end()
}

fn write(folder: &Path, name: &str, size: u64, pid: u32) -> String {
    put(folder, name, &log_with(size, begin(pid, 1)))
}

#[test]
fn the_interpreters_frames_are_left_out_and_others_stay() {
    let profile = profile_of_log(&log_with(1000, begin(1, 1)), |_| {}).unwrap();
    let frames: Vec<u64> = profile.stacks[0]
        .frames
        .iter()
        .map(|&frame| if is_code_address(frame) { 0 } else { frame })
        .collect();
    assert_eq!(frames, [MALLOC, IN_PYTHON, 0, 0, IN_ROWS, 0, IN_LIBC]);
    assert_eq!(profile.stacks[0].interrupted, [2, 3, 5]);
}

/// A program that has the interpreter in its own file: only the loop itself is left out.
#[test]
fn a_program_with_the_interpreter_inside_keeps_its_own_frames() {
    let mut log = LogBuilder::new(1);
    log.program("/opt/server");
    log.module("/opt/server", 0x20_0000, 0x1000);
    let code = load();
    log.given(&Record::Code(code.clone()));
    let frames = [IN_PYTHON, EVAL, code_address(code.start, 0), IN_PYTHON + 8];
    let stack = log.stack_ending(&frames, &[2], heapprof_format::WalkEnd::Root);
    log.alloc(stack, 1000);
    let profile = profile_of_log(&log.end(), |_| {}).unwrap();
    let expected = [IN_PYTHON, code_address(code.start, 0), IN_PYTHON + 8];
    assert_eq!(profile.stacks[0].frames, expected);
}

#[test]
fn the_site_is_the_innermost_function_of_the_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.heaplog", 1000, 1);
    let document = json(&["top", "--json", "-n", "0", &file]);
    let site = &document["sites"][0];
    assert_eq!(site["function"], "Table.load");
    assert_eq!(
        (&site["file"], &site["line"]),
        (&"/app/rows.py".into(), &11.into())
    );
    let table = ok(&["top", "-n", "1", &file]);
    assert!(table.contains("Table.load  /app/rows.py:11"), "{table}");
    let by_module = ok(&["top", "--by", "module", &file]);
    assert!(by_module.contains("rows.py"), "{by_module}");
}

#[test]
fn trees_and_exports_have_functions_files_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.heaplog", 1000, 1);
    let tree = ok(&["tree", &file]);
    for name in ["<module>", "main", "Table.load"] {
        assert!(tree.contains(name), "{name}: {tree}");
    }
    let folded = ok(&["export", "-f", "folded", &file]);
    let names: Vec<&str> = folded.split([';', ' ']).collect();
    let place = |name: &str| names.iter().position(|it| *it == name);
    let places = ["<module>", "main", "Table.load"].map(place);
    assert!(places.is_sorted() && places[0].is_some(), "{folded}");
    let speedscope = ok(&["export", "-f", "speedscope", &file]);
    assert!(speedscope.contains("/app/rows.py"), "{speedscope}");
    let explained = ok(&["explain", &file]);
    assert!(!explained.contains("[python3.11+"), "{explained}");
}

/// pprof's form has the functions, and no mapping for them: no file has their code.
#[test]
fn pprof_has_the_functions_without_a_mapping() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "a.heaplog", 1000, 1);
    let out = folder.path().join("a.pb.gz").display().to_string();
    ok(&["export", "-f", "pprof", "-o", &out, &file]);
    let document = json(&["top", "--json", "--cum", "-n", "0", &out]);
    let sites = document["sites"].as_array().unwrap();
    let load = sites
        .iter()
        .find(|it| it["function"] == "Table.load")
        .unwrap();
    assert_eq!(
        (&load["file"], &load["line"]),
        (&"/app/rows.py".into(), &11.into())
    );
    assert_eq!(load["module"], "");
}

/// The same functions of two processes are one, in a sum and in a joined log.
#[test]
fn processes_have_the_same_functions_in_common() {
    let folder = tempfile::tempdir().unwrap();
    let files = [(1000, 1), (500, 2)]
        .map(|(size, pid)| write(folder.path(), &format!("{pid}.heaplog"), size, pid));
    let joined = folder.path().join("joined.heaplog").display().to_string();
    ok(&["join", &files[0], &files[1], "-o", &joined]);
    for args in [vec![&files[0], &files[1]], vec![&joined]] {
        let mut command = vec!["top", "--json", "-n", "0"];
        command.extend(args.iter().map(|it| it.as_str()));
        let document = json(&command);
        let sites = document["sites"].as_array().unwrap();
        let of_load: Vec<_> = sites
            .iter()
            .filter(|it| it["function"] == "Table.load")
            .collect();
        assert_eq!(of_load.len(), 1, "{document}");
        assert_eq!(of_load[0]["self"]["allocated-bytes"], 1500, "{document}");
    }
}

/// A function that was edited has other addresses. Its site is the same by its name and file.
#[test]
fn a_difference_finds_the_function_that_moved() {
    let folder = tempfile::tempdir().unwrap();
    let before = write(folder.path(), "a.heaplog", 1000, 1);
    let mut log = LogBuilder::new(1);
    log.begins(begin(2, 1));
    log.module("/usr/bin/python3.11", 0x20_0000, 0x1000);
    let moved = function("Table.load", "/app/rows.py", 14);
    log.given(&Record::Code(moved.clone()));
    let frames = [IN_PYTHON, EVAL, code_address(moved.start, 1)];
    let stack = log.stack_ending(&frames, &[2], heapprof_format::WalkEnd::Root);
    log.alloc(stack, 3000);
    let after = put(folder.path(), "b.heaplog", &log.end());
    let document = json(&["diff", "--json", &before, &after]);
    let sites = document["sites"].as_array().unwrap();
    let of_load: Vec<_> = sites
        .iter()
        .filter(|it| it["function"] == "Table.load")
        .collect();
    assert_eq!(of_load.len(), 1, "{document}");
}

/// Inherited blocks are named by the functions of the parent's log.
#[test]
fn inherited_blocks_have_the_parents_functions() {
    let folder = tempfile::tempdir().unwrap();
    let parent = write(folder.path(), "parent.heaplog", 1000, 1);
    let mut log = LogBuilder::new(1);
    let mut start = begin(2, 1);
    start.forked_from = 1;
    start.parent_log_number = 1;
    start.monotonic_ns = 100 * S;
    start.settings = vec![
        ("forked at".into(), (100 * S).to_string()),
        ("parent log".into(), parent),
    ];
    log.begins(start);
    let other = function("child", "/app/child.py", 1);
    log.given(&Record::Code(other.clone()));
    let stack = log.stack_ending(
        &[MALLOC, code_address(other.start, 0)],
        &[1],
        heapprof_format::WalkEnd::Root,
    );
    log.alloc(stack, 77);
    let child = put(folder.path(), "child.heaplog", &log.end());
    let document = json(&["top", "--json", "-n", "0", &child]);
    let sites = document["sites"].as_array().unwrap();
    let bytes = |name: &str| {
        let site = sites.iter().find(|it| it["function"] == name);
        site.map(|it| it["self"]["in-use-bytes"].as_u64().unwrap())
    };
    assert_eq!(
        (bytes("Table.load"), bytes("child")),
        (Some(1000), Some(77)),
        "{document}"
    );
}
