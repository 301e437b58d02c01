//! Stacks of Python programs have the interpreter's own frames, as the interpreter tells them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use heapprof_format::{Counter, Record, is_code_address};
use heapprof_tests::{Block, Finished, Named, Run, repository};

/// The oldest and the newest minor version whose frames are read.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=14;

/// More bytes than the head of an object that the fixture makes.
const HEAD: u64 = 100;

/// Pythons of these versions, each once: of the system, and below the folder of pyenv.
fn pythons() -> Vec<(u32, PathBuf)> {
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let pyenv = pyenv.or_else(|| Some(std::env::home_dir()?.join(".pyenv")));
    let versions = pyenv.and_then(|it| it.join("versions").read_dir().ok());
    let of_pyenv = versions.into_iter().flatten().flatten();
    let of_pyenv = of_pyenv.map(|version| version.path().join("bin"));
    let system = ["/usr/bin", "/usr/local/bin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = system.into_iter().chain(of_pyenv).collect();
    let found = VERSIONS.filter_map(|minor| {
        let name = format!("python3.{minor}");
        let mut programs = folders.iter().map(|folder| folder.join(&name));
        Some((minor, programs.find(|program| program.is_file())?))
    });
    found.collect()
}

fn sites(python: &Path) -> Run {
    let script = repository().join("tests/fixtures/python_sites.py");
    Run::program(python)
        .arg(script)
        .env("PYTHONUTF8", "1")
        .interval(1)
        .prefix("t")
}

/// The Python frames of a stack, innermost first, as the fixture writes them.
fn python_frames(named: &Named, stack: usize) -> Vec<String> {
    let is_python = |file: &str| file.ends_with(".py") || file.starts_with('<');
    let functions = named.stacks[stack].iter().filter_map(|function| {
        let file = function.file.as_deref().filter(|file| is_python(file))?;
        let line = function.line.unwrap_or(0);
        Some(format!("{}:{line}:{file}", function.plain))
    });
    functions.collect()
}

/// Compares the stack of each block that the fixture tells of with what the interpreter says.
#[track_caller]
fn assert_told(ran: &Finished, minor: u32) {
    let log = ran.log().whole();
    let named = log.named();
    let blocks = log.blocks();
    let mut told = 0;
    for line in ran.stdout.lines() {
        let mut fields = line.split('\t');
        let size: u64 = fields.next().unwrap().parse().unwrap();
        let expected: Vec<&str> = fields.collect();
        // A block has the object's head, too.
        let of_size = |it: &&Block| (size..size + HEAD).contains(&it.size);
        let stacks: Vec<usize> = blocks.iter().filter(of_size).map(|it| it.stack).collect();
        assert!(!stacks.is_empty(), "3.{minor}: no block of {size}");
        for stack in stacks {
            let found = python_frames(named, stack);
            assert_eq!(found, expected, "3.{minor}: {}", named.shown(stack));
        }
        told += 1;
    }
    assert!(told >= 20, "3.{minor}: {told}");
    let lost = log.losses().get(&Counter::LostPythonFrames).copied();
    assert_eq!(lost.unwrap_or(0), 0, "3.{minor}");
}

#[test]
fn each_block_has_the_functions_files_and_lines_that_the_interpreter_tells() {
    let pythons = pythons();
    if pythons.is_empty() {
        return println!("skip: no Python from 3.8 to 3.14");
    }
    for (minor, python) in pythons {
        assert_told(&sites(&python).run().well(), minor);
    }
}

/// Behind the first Python frame, no frame of the interpreter's own file is left. Frames of other
/// files are: the callback goes through libffi and libc.
#[test]
fn frames_of_the_interpreter_between_python_frames_are_left_out() {
    let Some((_, python)) = pythons().into_iter().find(|(minor, _)| *minor == 11) else {
        return println!("skip: no Python 3.11");
    };
    let ran = sites(&python).run().well();
    let log = ran.log().whole();
    let named = log.named();
    let of_size = |size: u64| {
        let mut blocks = log.blocks().into_iter();
        let block = blocks.find(|it| (size..size + HEAD).contains(&it.size));
        &named.stacks[block.unwrap().stack]
    };
    let stack = of_size(111_000);
    let first = stack
        .iter()
        .position(|it| it.plain.contains("compare"))
        .unwrap();
    assert!(first > 0, "native frames come first");
    let (inner, outer) = stack.split_at(first);
    let is_interpreter = |module: &str| module.starts_with("python3.11");
    assert!(inner.iter().any(|it| is_interpreter(&it.module)));
    assert!(
        !outer.iter().any(|it| is_interpreter(&it.module)),
        "{outer:?}"
    );
    assert!(
        outer
            .iter()
            .any(|it| it.plain == "qsort" || it.module.starts_with("libffi"))
    );
}

#[test]
fn the_setting_leaves_stacks_as_they_are() {
    let Some((_, python)) = pythons().pop() else {
        return println!("skip: no Python from 3.8 to 3.14");
    };
    let ran = sites(&python).env("HEAPPROF_PYTHON", "0").run().well();
    let log = ran.log().whole();
    let is_code = |record: &Record| match record {
        Record::Code(_) => true,
        Record::Stack(stack) => stack.frames.iter().any(|it| is_code_address(*it)),
        _ => false,
    };
    assert!(!log.records.iter().any(is_code));
    let settings: BTreeMap<_, _> = log.start().settings.iter().cloned().collect();
    assert_eq!(
        settings.get("HEAPPROF_PYTHON").map(String::as_str),
        Some("0")
    );
}

/// Small objects lie in arenas, which the interpreter maps.
#[test]
fn arenas_of_small_objects_are_told_as_such() {
    let script = "import time\nx = []\nfor i in range(6):\n    x.append([object() for _ in range(50000)])\n    time.sleep(0.2)\n";
    let Some((_, python)) = pythons().pop() else {
        return;
    };
    let ran = Run::program(&python)
        .args(["-c", script])
        .env("PYTHONMALLOC", "pymalloc")
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "100")
        .interval(1)
        .prefix("t")
        .run()
        .well();
    let log = ran.folder().join("t.heaplog");
    let shown = |args: &[&str]| {
        let at = ["--at", "80%"];
        let run = Run::heapprof().args([args, &at].concat()).arg(&log);
        run.run().well().stdout
    };
    let by_allocator = shown(&["top", "-m", "mapped", "--by", "allocator"]);
    assert!(by_allocator.contains("Python's pymalloc"), "{by_allocator}");
    for args in [
        &["rss"][..],
        &["top", "-m", "mapped-resident", "--by", "mapping"],
    ] {
        let names = shown(args);
        assert!(names.contains("[arenas of pymalloc]"), "{names}");
    }
}
