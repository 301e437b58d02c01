//! Names that are kept beside a log: they outlive the files that they came from, and are believed
//! for no other build.
//!
//! ```text
//!  world (where one builds)      desk
//!    program                       run.heaplog         with the program's build-id
//!      rebuilt, stripped, deleted  run.heaplog.names   written by the first command
//! ```

use crate::common::{LogBuilder, heapprof, json, ok, stderr, stdout};
use crate::resolve_fixture::{C_INLINES, Fixture};
use crate::serve::Server;
use heapprof_format::{FileStamp, Module, Segment};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the module lies in the process.
const BIAS: u64 = 0x5555_0000_0000;

struct World {
    fixture: Fixture,
    desk: Fixture,
}

impl World {
    fn new(flags: &[&str]) -> World {
        let fixture = Fixture::new();
        fixture.compile("program.c", C_INLINES, flags);
        let desk = Fixture::new();
        World { fixture, desk }
    }

    fn program(&self) -> PathBuf {
        self.fixture.path("program")
    }

    fn build_id(&self) -> Vec<u8> {
        match self.fixture.run("readelf", &["-n", "program"]) {
            notes if notes.contains("Build ID: ") => self.fixture.build_id("program"),
            _ => Vec::new(),
        }
    }

    /// A log of the program as it is now: a block of so many bytes, allocated in `outer`.
    fn log(&self, name: &str, size: u64) -> String {
        self.log_of(name, size, &self.build_id())
    }

    fn log_of(&self, name: &str, size: u64, build_id: &[u8]) -> String {
        let call = self.fixture.call_site("program", "<outer>", "<sink>");
        let mut log = LogBuilder::new(1);
        log.program(&self.program().display().to_string());
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: self.program().display().to_string(),
            build_id: build_id.to_vec(),
            stamp: build_id.is_empty().then(|| stamp(&self.program())),
            bias: BIAS,
            segments: vec![Segment {
                start: BIAS,
                len: 0x10_0000,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[BIAS + call]);
        log.alloc(stack, size);
        self.desk.write(name, log.end()).display().to_string()
    }

    /// Builds it again with a function in front, which moves all others.
    fn rebuild(&self) {
        let before = fs::read(self.program()).unwrap();
        let text = format!(
            "int first(int x) {{ __asm__(\".rept 100; nop; .endr\"); return x; }}\n{C_INLINES}"
        );
        self.fixture.compile("program.c", &text, &["-g"]);
        assert!(fs::read(self.program()).unwrap() != before);
    }
}

fn stamp(path: &Path) -> FileStamp {
    let meta = fs::metadata(path).unwrap();
    FileStamp {
        inode: meta.ino(),
        size: meta.len(),
        modified_ns: meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64,
    }
}

fn names_of(log: &str) -> PathBuf {
    format!("{log}.names").into()
}

/// The outputs that are made of names.
fn outputs(log: &str, options: &[&str]) -> Vec<String> {
    let commands = [
        &["top"][..],
        &["tree", "--json"],
        &["export", "-f", "folded"],
    ];
    let all = commands.map(|command| ok(&[command, options, &[log]].concat()));
    all.to_vec()
}

#[test]
fn a_server_has_the_names_that_were_kept() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 1000);
    ok(&["top", &log]);
    world.rebuild();
    let has_name = |options: &[&str]| {
        let options = [&["--listen", "127.0.0.1:0"], options].concat();
        let server = Server::with(&[Path::new(&log)], &options);
        server.until("/processes", "\"state\":\"ended\"");
        let profile = server.pprof("/debug/pprof/heap");
        let (_, named) = server.get(&format!("/debug/pprof/symbol?{:#x}", BIAS));
        assert!(named.starts_with("num_symbols: 1"), "{named}");
        profile.string_table.iter().any(|text| text == "outer")
    };
    assert!(has_name(&[]));
    assert!(!has_name(&["--no-kept-names"]));
    // The server writes none.
    fs::remove_file(names_of(&log)).unwrap();
    assert!(!has_name(&[]));
    assert!(!names_of(&log).exists());
}

#[test]
fn names_outlive_a_rebuild_and_the_files_deletion() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    let before = outputs(&log, &[]);
    assert!(
        before[0].contains("middle") || before[0].contains("leaf"),
        "{before:?}"
    );
    let mode = fs::metadata(names_of(&log)).unwrap().permissions().mode();
    let mode_of_log = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & !mode_of_log, 0, "no wider than the log's");

    world.rebuild();
    assert_eq!(outputs(&log, &[]), before, "rebuilt");
    let without = ok(&["top", "--no-kept-names", &log]);
    assert!(without.contains("[program+0x"), "{without}");
    fs::remove_file(world.program()).unwrap();
    assert_eq!(outputs(&log, &[]), before, "deleted");
    let info = json(&["info", "--json", &log]);
    let names = &info["modules"][0]["names"];
    assert_eq!(names["unnamed"], 0, "{names}");
    assert_eq!(names["identity"], "verified");
    assert!(
        names["tried"]
            .to_string()
            .contains("used as names kept beside the log")
    );
}

/// The files count first: what is kept changes nothing while they are there.
#[test]
fn with_the_same_build_nothing_differs() {
    for flags in [&["-g"][..], &[]] {
        let world = World::new(flags);
        let log = world.log("run.heaplog", 100);
        let without = outputs(&log, &["--no-kept-names"]);
        let info = ok(&["info", "--json", "--no-kept-names", &log]);
        assert!(!names_of(&log).exists(), "it is not wanted");
        let first = outputs(&log, &[]);
        assert!(names_of(&log).exists());
        let kept = fs::read(names_of(&log)).unwrap();
        assert_eq!((&first, &outputs(&log, &[])), (&without, &without));
        assert_eq!(ok(&["info", "--json", &log]), info);
        assert_eq!(fs::read(names_of(&log)).unwrap(), kept, "nothing to add");
    }
}

/// `strip` leaves the build-id and takes the names.
#[test]
fn a_file_that_says_less_leaves_the_names_that_are_kept() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    let before = outputs(&log, &[]);
    world.fixture.run("strip", &["--strip-all", "program"]);
    assert_eq!(outputs(&log, &[]), before);
    assert!(ok(&["top", "--no-kept-names", &log]).contains("[program+0x"));
}

#[test]
fn names_of_another_build_are_never_believed() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    ok(&["top", &log]);
    let other = world.log_of("other.heaplog", 100, &[7; 20]);
    fs::copy(names_of(&log), names_of(&other)).unwrap();
    let top = ok(&["top", &other]);
    assert!(
        top.contains("[program+0x") && !top.contains("middle"),
        "{top}"
    );
}

/// Without a build-id the file's stamp tells builds apart, so a rebuilt file is not believed where
/// names are kept.
#[test]
fn a_module_without_a_build_id_is_told_by_its_stamp() {
    let world = World::new(&["-g", "-Wl,--build-id=none"]);
    let log = world.log("run.heaplog", 100);
    let before = outputs(&log, &[]);
    assert!(names_of(&log).exists());
    assert_eq!(outputs(&log, &[]), before);
    let text = C_INLINES
        .replace("outer", "renamed")
        .replace("middle", "other");
    let text = format!("int first(int x) {{ return x; }}\n{text}");
    world.fixture.run("mv", &["program", "old"]);
    world
        .fixture
        .compile("program.c", &text, &["-g", "-Wl,--build-id=none"]);
    assert_eq!(outputs(&log, &[]), before, "another file has the path");
    fs::remove_file(world.program()).unwrap();
    assert_eq!(outputs(&log, &[]), before);
    // A log whose file was replaced before anybody asked has no names to keep.
    world.fixture.run("mv", &["old", "program"]);
    let late = world.log("late.heaplog", 100);
    world.fixture.run("cp", &["program", "copy"]);
    world.fixture.run("mv", &["copy", "program"]);
    ok(&["top", &late]);
    assert!(!names_of(&late).exists());
}

#[test]
fn each_log_of_a_folder_has_its_own_names_and_several_share_them() {
    let world = World::new(&["-g"]);
    let a = world.log("heapprof.program.4711.heaplog", 100);
    let of_a = ok(&["top", &a]);
    world.rebuild();
    let b = world.log("heapprof.program.4712.heaplog", 200);
    let c = world.log("c.heaplog", 300);
    let both = ok(&["top", &b, &c]);
    let [of_b, of_c] = [&b, &c].map(|log| fs::read(names_of(log)).unwrap());
    assert_eq!(of_b, of_c);
    assert!(fs::read(names_of(&a)).unwrap() != of_b);
    let joined = world.desk.path("joined.heaplog").display().to_string();
    ok(&["join", "-o", &joined, &b, &c]);
    let of_join = ok(&["top", &joined]);
    fs::remove_file(world.program()).unwrap();
    assert_eq!(ok(&["top", &b, &c]), both);
    assert_eq!(ok(&["top", &a]), of_a);
    fs::remove_file(names_of(&b)).unwrap();
    assert_eq!(ok(&["top", &b, &c]), both, "one of them has all");
    assert_eq!(ok(&["top", &joined]), of_join);
}

/// A damaged file is as good as none, `info` says so, and it is written anew.
#[test]
fn a_damaged_file_is_refused_and_replaced() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    let before = ok(&["top", &log]);
    let kept = fs::read(names_of(&log)).unwrap();
    let program = fs::read(world.program()).unwrap();
    for damage in [&kept[..kept.len() / 2], b"", b"HPNAMES\x02later", &[0; 100]] {
        fs::remove_file(world.program()).unwrap();
        fs::write(names_of(&log), damage).unwrap();
        assert!(ok(&["top", &log]).contains("[program+0x"));
        let info = ok(&["info", &log]);
        assert!(info.contains("run.heaplog.names: refused: "), "{info}");
        assert_eq!(fs::read(names_of(&log)).unwrap(), damage, "nothing to say");
        fs::write(world.program(), &program).unwrap();
        assert_eq!(ok(&["top", &log]), before);
        assert_eq!(fs::read(names_of(&log)).unwrap(), kept);
    }
}

/// Nothing is read or written through a link, and where nothing can be written, the command does
/// its work.
#[test]
fn a_place_where_nothing_can_be_written_is_no_failure() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    let before = ok(&["top", "--no-kept-names", &log]);
    let target = world.desk.write("target", "another's");
    symlink(&target, names_of(&log)).unwrap();
    assert_eq!(ok(&["top", &log]), before);
    assert_eq!(fs::read(&target).unwrap(), b"another's");
    assert!(!names_of(&log).is_symlink(), "the link is replaced");

    fs::remove_file(names_of(&log)).unwrap();
    fs::create_dir(names_of(&log)).unwrap();
    let output = heapprof(&["top", &log]);
    assert_eq!(
        (stdout(&output), stderr(&output)),
        (before.clone(), String::new())
    );
    let said = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(["top", &log])
        .env("HEAPPROF_VERBOSE", "1")
        .output()
        .unwrap();
    assert!(said.status.success());
    assert!(
        stderr(&said).contains("note: the names are not kept in "),
        "{}",
        stderr(&said)
    );

    fs::remove_dir(names_of(&log)).unwrap();
    let folder = Path::new(&log).parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
    let output = heapprof(&["top", &log]);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!((stdout(&output), stderr(&output)), (before, String::new()));
}

/// A bundle that is made after a rebuild has what is kept, and a worse one takes no good one's
/// place.
#[test]
fn a_bundle_has_the_names_that_are_kept_and_is_not_replaced_by_a_worse_one() {
    let world = World::new(&["-g"]);
    let log = world.log("run.heaplog", 100);
    let before = outputs(&log, &[]);
    let [good, late, bare] = ["good.tar", "late.tar", "bare.tar"]
        .map(|name| world.desk.path(name).display().to_string());
    ok(&["bundle", "-o", &good, &log]);
    world.rebuild();
    ok(&["bundle", "-o", &late, &log]);
    ok(&["bundle", "--no-kept-names", "-o", &bare, &log]);
    let bytes = fs::read(&good).unwrap();
    let refused = heapprof(&["bundle", "--no-kept-names", "-o", &good, &log]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("it stays"),
        "{}",
        stderr(&refused)
    );
    assert_eq!(fs::read(&good).unwrap(), bytes);
    // As good is good enough.
    ok(&["bundle", "-o", &late, &good]);
    ok(&["bundle", "-o", &late, &log]);
    fs::remove_file(names_of(&log)).unwrap();
    for (bundle, is_named) in [(&good, true), (&late, true), (&bare, false)] {
        assert_eq!(outputs(bundle, &[]) == before, is_named, "{bundle}");
    }
    ok(&["bundle", "--overwrite", "-o", &good, &log]);
    assert!(outputs(&good, &[]) != before);
}

/// The loop of every developer: record, edit, rebuild, record, compare.
#[test]
fn a_difference_has_each_site_of_two_builds_once() {
    let world = World::new(&["-g"]);
    let before = world.log("before.heaplog", 100);
    ok(&["top", &before]);
    let address = world.fixture.address_of("program", "outer");
    world.rebuild();
    assert!(world.fixture.address_of("program", "outer") != address);
    let same = world.log("same.heaplog", 100);
    let more = world.log("more.heaplog", 130);
    let diff = ok(&["diff", &before, &same]);
    assert!(diff.contains("nothing differs in in-use-bytes"), "{diff}");
    let diff = json(&["diff", "--json", &before, &more]);
    let sites = diff["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 1, "{diff}");
    assert_eq!(sites[0]["before"], 100.0);
    assert_eq!(sites[0]["after"], 130.0);
    assert_eq!(sites[0]["verdict"], "exact");
    let without = json(&["diff", "--json", "--no-kept-names", &before, &more]);
    assert_eq!(without["sites"].as_array().unwrap().len(), 2, "{without}");
}
