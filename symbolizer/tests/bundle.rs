//! Bundles: whatever a module's names came from, the archive holds it, and another machine gets the
//! same bytes.
//!
//! ```text
//!  world (the machine that ran)         desk (where one reads)
//!    program, libraries, debug files      run.heaplog, run.tar
//!      removed once the bundle is made      the same outputs as before
//! ```

use crate::common::{LogBuilder, heapprof, stderr};
use crate::resolve_fixture::{C_INLINES, Fixture, installed};
use heapprof_format::{FileStamp, Module, Segment};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Where the module lies in the process.
const BIAS: u64 = 0x5555_0000_0000;

/// A module of the run, and what has to be in the outputs so that they prove anything.
struct Case {
    world: Fixture,
    /// The recorded path.
    path: String,
    build_id: Vec<u8>,
    /// An address in it, or outside of it.
    avma: u64,
    /// Options by which its files are found.
    options: Vec<String>,
    /// A name that is only in the files.
    name: &'static str,
}

impl Case {
    /// About the call in `outer` of `program`, as it stands before anything is taken out of it.
    fn of(world: Fixture) -> Case {
        let call = world.call_site("program", "<outer>", "<sink>");
        let notes = world.run("readelf", &["-n", "program"]);
        let build_id = match notes.contains("Build ID: ") {
            true => world.build_id("program"),
            false => Vec::new(),
        };
        Case {
            path: world.path("program").display().to_string(),
            build_id,
            avma: BIAS + call,
            options: Vec::new(),
            name: "middle",
            world,
        }
    }

    fn compiled(flags: &[&str]) -> Case {
        let world = Fixture::new();
        world.compile("program.c", C_INLINES, flags);
        Case::of(world)
    }

    /// The same, its debug information in `detached`.
    fn stripped(flags: &[&str]) -> Case {
        let case = Case::compiled(flags);
        let world = &case.world;
        world.run("objcopy", &["--only-keep-debug", "program", "detached"]);
        world.run("objcopy", &["--strip-all", "program", "program"]);
        case
    }

    fn linked_to(self, debug: &str) -> Case {
        self.world.run("mv", &["detached", debug]);
        let link = format!("--add-gnu-debuglink={debug}");
        self.world.run("objcopy", &[&link, "program"]);
        self
    }

    fn moved_to_debug_dir(mut self) -> Case {
        let hex: String = self.build_id.iter().map(|b| format!("{b:02x}")).collect();
        let place = format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
        let bytes = std::fs::read(self.world.path("detached")).expect("a debug file");
        self.world.write(&place, bytes);
        self.world.run("rm", &["detached"]);
        let folder = self.world.path("debug").display().to_string();
        self.options.extend(["--debug-dir".into(), folder]);
        self
    }

    fn log(&self) -> Vec<u8> {
        let mut log = LogBuilder::new(1);
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            stamp: stamp(&self.path).filter(|_| self.build_id.is_empty()),
            bias: BIAS,
            segments: vec![Segment {
                start: BIAS,
                len: 0x10_0000,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[self.avma]);
        log.alloc(stack, 100);
        log.end()
    }

    /// Bundles it, takes the files away, and compares.
    fn holds(self) {
        let desk = Fixture::new();
        desk.write("run.heaplog", self.log());
        let log = desk.path("run.heaplog").display().to_string();
        let bundle = desk.path("run.tar").display().to_string();
        let again = desk.path("again.tar").display().to_string();
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let before = outputs(&log, &options, None);
        let text = String::from_utf8_lossy(&before[0]).into_owned();
        assert!(text.contains(self.name), "{} is not in {text}", self.name);
        for out in [&bundle, &again] {
            done(&[&["bundle", "-o", out, &log], &options[..]].concat(), None);
        }
        let bytes = std::fs::read(&bundle).expect("the bundle");
        assert!(
            bytes == std::fs::read(&again).expect("the bundle"),
            "same in, same out"
        );

        std::fs::remove_dir_all(self.world.path("")).expect("the machine that ran");
        std::fs::remove_file(&log).expect("the log");
        assert_eq!(outputs(&bundle, &[], None), before, "from the archive");
        done(&["bundle", "-o", &again, &bundle], None);
        assert_eq!(outputs(&again, &[], None), before, "a bundle's bundle");

        desk.run("mkdir", &["unpacked"]);
        desk.run("tar", &["-xf", "run.tar", "-C", "unpacked"]);
        let folder = desk.path("unpacked");
        let log = folder.join("run.heaplog").display().to_string();
        let there = folder.display().to_string();
        let options = ["--sysroot", &there, "--debug-dir", &there];
        assert_eq!(outputs(&log, &options, Some(folder)), before, "unpacked");
        std::fs::remove_file(&bundle).expect("the bundle");
        desk.run("mkdir", &["nothing"]);
        let nothing = desk.path("nothing").display().to_string();
        let nowhere = ["--sysroot", &nothing, "--no-kept-names"];
        assert_ne!(outputs(&log, &nowhere, None), before, "without any of it");
    }
}

/// The stamp that a log has of the file at a path.
fn stamp(path: &str) -> Option<FileStamp> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::metadata(path).ok()?;
    Some(FileStamp {
        inode: meta.ino(),
        size: meta.len(),
        modified_ns: (meta.mtime() * 1_000_000_000 + meta.mtime_nsec()) as u64,
    })
}

fn outputs(file: &str, options: &[&str], binary_path: Option<PathBuf>) -> Vec<Vec<u8>> {
    let commands: [&[&str]; 6] = [
        &["symbolize"],
        &["top", "--json"],
        &["export", "-f", "pprof"],
        &["export", "-f", "json"],
        &["timeline", "--csv", "--top", "5"],
        &["report", "-o", "-"],
    ];
    let run =
        |command: &[&str]| done(&[command, &[file], options].concat(), binary_path.as_ref()).stdout;
    commands.map(run).to_vec()
}

fn done(args: &[&str], binary_path: Option<&PathBuf>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heapprof"));
    command.args(args).env_clear();
    if let Some(path) = binary_path {
        command.env("PPROF_BINARY_PATH", path);
    }
    let output = command.output().expect("heapprof can be started");
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

#[test]
fn a_program_with_its_debug_information_inside() {
    Case::compiled(&["-g"]).holds();
}

#[test]
fn a_program_without_a_build_id() {
    Case::compiled(&["-g", "-Wl,--build-id=none"]).holds();
}

#[test]
fn a_debug_file_by_its_link() {
    Case::stripped(&["-g"]).linked_to("program.debug").holds();
}

#[test]
fn a_debug_file_by_its_link_of_a_program_without_a_build_id() {
    let flags = ["-g", "-Wl,--build-id=none"];
    Case::stripped(&flags).linked_to("some.debug").holds();
}

#[test]
fn a_debug_file_by_build_id() {
    Case::stripped(&["-g"]).moved_to_debug_dir().holds();
}

#[test]
fn the_debug_file_of_a_program_that_was_deleted() {
    let mut case = Case::stripped(&["-g"]).moved_to_debug_dir();
    case.world.run("rm", &["program"]);
    case.path.push_str(" (deleted)");
    case.holds();
}

#[test]
fn the_symbols_in_a_compressed_section() {
    assert!(installed("xz"), "run scripts/install-deps");
    // `middle` is a symbol of its own and in nothing but .gnu_debugdata.
    let world = Fixture::new();
    let text = C_INLINES.replace(
        "static inline __attribute__((always_inline)) int middle",
        "__attribute__((noinline)) int middle",
    );
    world.compile("program.c", &text, &[]);
    let call = world.address_of("program", "middle");
    world.run(
        "objcopy",
        &["-S", "--keep-symbol=middle", "program", "mini"],
    );
    world.run("xz", &["mini"]);
    world.run(
        "objcopy",
        &[
            "-S",
            "--add-section",
            ".gnu_debugdata=mini.xz",
            "program",
            "program",
        ],
    );
    Case {
        path: world.path("program").display().to_string(),
        build_id: world.build_id("program"),
        avma: BIAS + call,
        options: Vec::new(),
        name: "middle",
        world,
    }
    .holds();
}

/// Two programs that share what dwz found in both.
fn with_dwz(case: Case, file: &str) -> Case {
    assert!(installed("dwz"), "run scripts/install-deps");
    let world = &case.world;
    world.run("cp", &[file, "second"]);
    world.run("dwz", &["-m", "shared", "-M", "shared", file, "second"]);
    world.run("rm", &["second"]);
    let sections = world.run("readelf", &["-SW", file]);
    assert!(sections.contains(".gnu_debugaltlink"), "dwz shared nothing");
    case
}

#[test]
fn what_dwz_took_out_of_a_program() {
    with_dwz(Case::compiled(&["-g"]), "program").holds();
}

#[test]
fn what_dwz_took_out_of_a_debug_file() {
    with_dwz(Case::stripped(&["-g"]), "detached")
        .linked_to("program.debug")
        .holds();
}

#[test]
fn split_units() {
    Case::compiled(&["-g", "-gdwarf-5", "-gsplit-dwarf"]).holds();
}

#[test]
fn split_units_of_a_program_without_a_build_id() {
    Case::compiled(&["-g", "-gdwarf-5", "-gsplit-dwarf", "-Wl,--build-id=none"]).holds();
}

/// A program in one folder and its split units in another, as build systems do.
fn built_apart() -> Case {
    let world = Fixture::new();
    world.write("src/program.c", C_INLINES);
    world.run("mkdir", &["obj", "bin"]);
    let flags = "-O2 -g -gdwarf-5 -gsplit-dwarf -c -o obj/p.o src/program.c";
    let flags: Vec<&str> = flags.split(' ').collect();
    world.run("gcc", &flags);
    world.run("gcc", &["-Wl,--build-id", "-o", "program", "obj/p.o"]);
    let mut case = Case::of(world);
    case.world.run("mv", &["program", "bin"]);
    case.path = case.world.path("bin/program").display().to_string();
    case
}

#[test]
fn split_units_of_another_folder() {
    built_apart().holds();
}

#[test]
fn split_units_below_a_sysroot() {
    let mut case = built_apart();
    let here = case.world.path("").display().to_string();
    let root = format!("root/{here}");
    case.world.run("mkdir", &["-p", &root]);
    case.world.run("mv", &["bin", "obj", &root]);
    let root = case.world.path("root").display().to_string();
    case.options = vec!["--sysroot".into(), root];
    case.holds();
}

#[test]
fn a_package_of_split_units() {
    assert!(installed("dwp"), "run scripts/install-deps");
    let case = Case::compiled(&["-g", "-gdwarf-4", "-gsplit-dwarf"]);
    case.world
        .run("dwp", &["-e", "program", "-o", "program.dwp"]);
    case.world.run("sh", &["-c", "rm *.dwo"]);
    case.holds();
}

#[test]
fn a_package_beside_a_debug_file() {
    assert!(installed("dwp"), "run scripts/install-deps");
    let case = Case::compiled(&["-g", "-gdwarf-4", "-gsplit-dwarf"]);
    case.world
        .run("dwp", &["-e", "program", "-o", "program.debug.dwp"]);
    case.world.run("sh", &["-c", "rm *.dwo"]);
    case.world
        .run("objcopy", &["--only-keep-debug", "program", "detached"]);
    case.world
        .run("objcopy", &["--strip-all", "program", "program"]);
    case.linked_to("program.debug").holds();
}

/// Another machine's: this one's own has another build-id and is refused.
#[test]
fn the_vdso_of_another_kernel() {
    let mut case = Case::compiled(&["-g"]);
    case.world.run("mv", &["program", "detached"]);
    case = case.moved_to_debug_dir();
    case.path = "[vdso]".into();
    case.holds();
}

/// This machine's, which no file has: it is written into the archive from memory.
#[test]
fn the_vdso_of_this_kernel() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))
        .expect("a vDSO");
    let (begin, end) = line
        .split(' ')
        .next()
        .and_then(|r| r.split_once('-'))
        .expect("a range");
    let number = |text| u64::from_str_radix(text, 16).expect("hexadecimal");
    let (begin, end) = (number(begin), number(end));
    let world = Fixture::new();
    let (skip, count) = (format!("skip={begin}"), format!("count={}", end - begin));
    let pid = std::process::id();
    let from = format!("if=/proc/{pid}/mem");
    world.run(
        "dd",
        &[
            &from,
            "of=program",
            &skip,
            &count,
            "iflag=skip_bytes,count_bytes",
            "status=none",
        ],
    );
    let build_id = world.build_id("program");
    let table = world.run("readelf", &["-W", "--dyn-syms", "program"]);
    let row = table
        .lines()
        .find(|line| line.contains("__vdso_clock_gettime"))
        .expect("a symbol");
    let svma =
        u64::from_str_radix(row.split_whitespace().nth(1).expect("a value"), 16).expect("hex");
    world.run("rm", &["program"]);
    let desk = Fixture::new();
    let case = Case {
        path: "[vdso]".into(),
        build_id,
        avma: BIAS + svma,
        options: Vec::new(),
        name: "clock_gettime",
        world,
    };
    desk.write("run.heaplog", case.log());
    let (log, bundle) = (desk.path("run.heaplog"), desk.path("run.tar"));
    let (log, bundle) = (log.display().to_string(), bundle.display().to_string());
    let before = outputs(&log, &[], None);
    assert!(String::from_utf8_lossy(&before[0]).contains(case.name));
    done(&["bundle", "-o", &bundle, &log], None);
    assert_eq!(outputs(&bundle, &[], None), before);
    let names = desk.run("tar", &["-tf", "run.tar"]);
    assert!(names.contains(".debug"), "{names}");
}

#[test]
fn the_perf_map_of_code_made_at_run_time() {
    let mut case = Case::compiled(&["-g"]);
    case.avma = 0x7777_0000_1010;
    case.world
        .write("jit.map", "777700001000 20 JS:*hot /app/x.js:3\n");
    let map = case.world.path("jit.map").display().to_string();
    case.options = vec!["--perf-map".into(), map];
    case.name = "JS:hot /app/x.js:3";
    case.holds();
}

#[test]
fn the_perf_map_below_a_sysroot() {
    let mut case = Case::compiled(&["-g"]);
    case.avma = 0x7777_0000_1010;
    case.world.write(
        "root/tmp/perf-77.map",
        "777700001000 20 LazyCompile:~cold x.js:9\n",
    );
    let root = case.world.path("root").display().to_string();
    case.options = vec!["--sysroot".into(), root];
    case.name = "JS:cold";
    case.holds();
}

/// Every command reads a bundle, whatever kind of profile is in it.
#[test]
fn a_bundle_of_another_allocators_profile_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let jemalloc = "heap_v2/524288\n  t*: 1: 1024 [2: 2048]\n@ 0x10 0x21\n  t*: 1: 1024 [2: 2048]\n\nMAPPED_LIBRARIES:\n";
    let gperftools =
        "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0x1\n\nMAPPED_LIBRARIES:\n";
    for (name, text) in [("j.heap", jemalloc), ("g.heap", gperftools)] {
        let file = crate::common::write(folder.path(), name, text.as_bytes());
        let file = file.to_str().unwrap();
        let bundle = file.replace(".heap", ".tar");
        let pprof = file.replace(".heap", ".pb.gz");
        for (made, args) in [
            (&bundle, &["bundle", "-o", &bundle, file][..]),
            (&pprof, &["export", "-f", "pprof", "-o", &pprof, file]),
            (&bundle, &["bundle", "-o", &bundle, &pprof]),
        ] {
            for args in [args, &["top", made]] {
                let out = heapprof(args);
                assert!(out.status.success(), "{args:?}: {}", stderr(&out));
            }
        }
    }
}

/// A log names a file of the machine where the bundle is made, which its author has not seen.
#[test]
fn a_file_is_not_packed_because_a_log_names_it() {
    let world = Fixture::new();
    world.compile("program.c", C_INLINES, &["-g", "-Wl,--build-id=none"]);
    let path = world.path("program").display().to_string();
    let right = stamp(&path).unwrap();
    let call = world.call_site("program", "<outer>", "<sink>");
    let packed = |stamp: Option<FileStamp>, options: &[&str]| {
        let mut log = LogBuilder::new(1);
        log.module_record(Module {
            number: 0,
            time_ns: 0,
            path: path.clone(),
            build_id: Vec::new(),
            stamp,
            bias: BIAS,
            segments: vec![Segment {
                start: BIAS,
                len: 0x10_0000,
                file_offset: 0,
                flags: 5,
            }],
        });
        let stack = log.stack(&[BIAS + call]);
        log.alloc(stack, 100);
        let desk = Fixture::new();
        let log = desk.write("run.heaplog", log.end()).display().to_string();
        let bundle = desk.path("run.tar").display().to_string();
        let out = done(&[&["bundle", "-o", &bundle, &log], options].concat(), None);
        let names = desk.run("tar", &["-tf", "run.tar"]);
        assert_eq!(names.lines().next(), Some("run.heaplog"));
        let is_packed = names.lines().any(|name| name.ends_with("/program"));
        assert_eq!(names.lines().count(), 1 + usize::from(is_packed), "{names}");
        let word = format!("{path} is left out: it has no build-id");
        assert_eq!(stderr(&out).contains(&word), !is_packed, "{}", stderr(&out));
        is_packed
    };
    assert!(packed(Some(right), &[]));
    // A folder that the user names is enough, or the number of the file, which a dump has.
    assert!(packed(None, &["--sysroot", "/"]));
    let of_a_dump = FileStamp {
        inode: right.inode,
        ..FileStamp::default()
    };
    assert!(packed(Some(of_a_dump), &[]));
    let wrong: [fn(&mut FileStamp); 3] = [
        |stamp| stamp.inode += 1,
        |stamp| stamp.size += 1,
        |stamp| stamp.modified_ns += 1,
    ];
    for wrong in wrong {
        let mut stamp = right;
        wrong(&mut stamp);
        assert!(!packed(Some(stamp), &[]), "{stamp:?}");
    }
    assert!(!packed(None, &[]));
}

/// The program is behind the log: it is cut, or its header is damaged.
#[test]
fn a_bundle_without_all_its_files_says_so() {
    let case = Case::compiled(&["-g"]);
    let desk = Fixture::new();
    desk.write("run.heaplog", case.log());
    let path = |name: &str| desk.path(name).display().to_string();
    let (log, bundle) = (path("run.heaplog"), path("run.tar"));
    done(&["bundle", "-o", &bundle, &log], None);
    let whole = std::fs::read(&bundle).expect("the bundle");
    let log_ends = (512 + case.log().len()).next_multiple_of(512);
    let mut damaged = whole.clone();
    damaged[log_ends + 1] ^= 1;
    let cut = whole.len() / 2;
    desk.write("cut.tar", &whole[..cut]);
    desk.write("damaged.tar", damaged);
    std::fs::remove_dir_all(case.world.path("")).expect("the machine that ran");
    let words = |what: String| format!("the bundle is {what}: the files behind that are missing");
    for (file, words) in [
        ("run.tar", None),
        ("cut.tar", Some(words(format!("cut off at offset {cut}")))),
        (
            "damaged.tar",
            Some(words(format!("damaged at offset {log_ends}"))),
        ),
    ] {
        let file = path(file);
        let commands: [&[&str]; 8] = [
            &["top", &file],
            &["tree", &file],
            &["info", &file],
            &["explain", &file],
            &["symbolize", &file],
            &["export", "-f", "folded", &file],
            &["timeline", &file],
            &["diff", &file, "--at", "start", "--at", "end"],
        ];
        for command in commands {
            let said = stderr(&done(command, None));
            match &words {
                Some(words) => assert!(said.contains(words), "{command:?}: {said}"),
                None => assert!(!said.contains("the bundle is"), "{command:?}: {said}"),
            }
        }
        let documents: [&[&str]; 7] = [
            &["top", "--json", &file],
            &["top", "--json", &file, &log],
            &["tree", "--json", &file],
            &["info", "--json", &file],
            &["timeline", "--json", &file],
            &["diff", "--json", &log, &file],
            &["diff", "--json", &file, "--at", "start", "--at", "end"],
        ];
        for command in documents {
            let text = done(command, None).stdout;
            let document: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let caveats = document["caveats"].to_string();
            match &words {
                Some(words) => assert!(caveats.contains(words), "{command:?}: {caveats}"),
                None => assert!(!caveats.contains("the bundle is"), "{command:?}: {caveats}"),
            }
            assert_eq!(document["complete"], true, "{command:?}");
        }
        let said = stderr(&done(&["top", &log, "--debug-dir", &file], None));
        let expected = words.map(|words| format!("--debug-dir {file}: {words}"));
        match expected {
            Some(words) => assert!(said.contains(&words), "{said}"),
            None => assert!(!said.contains("the bundle is"), "{said}"),
        }
    }
    desk.write("stub.tar", &whole[..600]);
    let out = heapprof(&["top", &path("stub.tar")]);
    let said = stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no bundle of heapprof's, cut off at offset 600"),
        "{said}"
    );
}
