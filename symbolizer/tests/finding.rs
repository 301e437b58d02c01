//! The right file among several: by checksum, by build-id, by time.

use crate::common::{LogBuilder, heapprof, stderr, stdout};
use crate::resolve_fixture::{C_INLINES, Fixture, installed, lines};
use heapprof_format::{Module, Segment};
use heapprof_symbolizer::resolve::{Outcome, Role};

const BIAS: u64 = 0x5555_0000_0000;

fn module(path: String, build_id: Vec<u8>) -> Module {
    Module {
        number: 0,
        time_ns: 0,
        path,
        build_id,
        stamp: None,
        bias: BIAS,
        segments: vec![Segment {
            start: BIAS,
            len: 0x10_0000,
            file_offset: 0,
            flags: 5,
        }],
    }
}

/// A file of the link's name but another checksum stands in two of its places, the right one in the
/// third.
#[test]
fn a_debug_link_takes_the_file_with_its_checksum_from_any_of_its_places() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g", "-rdynamic"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    fixture.run("objcopy", &["--only-keep-debug", "program", "x.debug"]);
    fixture.run("objcopy", &["--strip-all", "program", "program"]);
    fixture.run("objcopy", &["--add-gnu-debuglink=x.debug", "program"]);
    let right = std::fs::read(fixture.path("x.debug")).expect("the debug file");
    let wrong = [&right[..], b"\0"].concat();
    let folder = fixture.path("").canonicalize().expect("a folder");
    let places = [
        "x.debug".to_owned(),
        ".debug/x.debug".to_owned(),
        format!("debug{}/x.debug", folder.display()),
    ];
    for (i, right_place) in places.iter().enumerate() {
        for place in &places {
            fixture.write(place, if place == right_place { &right } else { &wrong });
        }
        let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
        assert_eq!(lines(&symbols, call).len(), 3, "{}", symbols.report);
        let refused = symbols.report.tried.iter();
        let refused = refused.filter(|(_, o)| matches!(o, Outcome::CrcDiffers { .. }));
        assert_eq!(refused.count(), i, "{}", symbols.report);
    }
    for place in &places {
        fixture.write(place, &wrong);
    }
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), ["outer ?:0"]);
    let report = symbols.report.to_string();
    assert_eq!(report.matches("refused: checksum").count(), 3, "{report}");
}

/// dwz ran again: the file that is shared now has the name, but not the content, that the program
/// refers to.
#[test]
fn shared_debug_information_of_another_build_is_refused() {
    assert!(installed("dwz"), "run scripts/install-deps");
    let fixture = Fixture::new();
    let shared = |text: &str| {
        fixture.compile("program.c", text, &["-g"]);
        fixture.run("cp", &["program", "second"]);
        let args = ["-m", "shared", "-M", "shared", "program", "second"];
        fixture.run("dwz", &args);
        std::fs::read(fixture.path("shared")).expect("the shared file")
    };
    let wrong = shared(&C_INLINES.replace("middle", "wrong"));
    let right = shared(C_INLINES);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    fixture.write("shared", wrong);
    let symbols = fixture.resolve(call);
    let report = symbols.report.to_string();
    assert!(report.contains("refused: another build"), "{report}");
    assert!(report.contains("which was not found"), "{report}");
    let named = lines(&symbols, call).join(" ");
    assert!(!named.contains("wrong"), "{named}");

    // The right one by build-id, in a debug folder, where Debian's packages have it.
    let path = fixture.write("right", right);
    let notes = fixture.run("readelf", &["-n", &path.display().to_string()]);
    let hex = notes.split("Build ID: ").nth(1).expect("a build-id").trim();
    let place = format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    fixture.run("install", &["-D", "right", &place]);
    let symbols = fixture.resolve(call);
    assert_eq!(lines(&symbols, call)[1], "(inlined) middle program.c:6");
    let mut opened = symbols.report.opened();
    assert!(opened.any(|(_, role)| role == Role::Supplementary));
}

/// A library is unloaded and another is loaded at its place: the same address is two functions.
#[test]
fn one_address_is_named_by_the_module_of_its_time() {
    let (first, second) = (Fixture::new(), Fixture::new());
    first.compile("program.c", C_INLINES, &["-g"]);
    let text = C_INLINES.replace("middle", "mitten");
    second.compile("program.c", &text, &["-g"]);
    let call = first.call_site("program", "<outer>", "<sink>");
    assert_eq!(call, second.call_site("program", "<outer>", "<sink>"));

    let mut log = LogBuilder::new(1);
    // The first comes back at the end: a third module, of the same file. A block and an unloading
    // are an event each, and a millisecond passes with each.
    let times = [(&first, 100, 0), (&second, 2000, 2), (&first, 30_000, 4)];
    for (fixture, bytes, ms) in times {
        let path = fixture.path("program").display().to_string();
        let mut module = module(path, fixture.build_id("program"));
        module.time_ns = ms * 1_000_000;
        let number = log.module_record(module);
        let stack = log.stack(&[BIAS + call]);
        log.alloc(stack, bytes);
        log.flush();
        log.module_gone(number);
    }
    let path = first.write("run.heaplog", log.end()).display().to_string();
    let output = heapprof(&["export", "-f", "folded", &path]);
    let mut found: Vec<(bool, bool, u64)> = stdout(&output)
        .lines()
        .map(|line| {
            let bytes = line.rsplit(' ').next().and_then(|n| n.parse().ok());
            (
                line.contains("middle"),
                line.contains("mitten"),
                bytes.expect("a number"),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [(false, true, 2000), (true, false, 30_100)],
        "{}",
        stdout(&output)
    );
}

#[test]
fn a_program_that_was_rebuilt_since_names_nothing_and_info_says_so() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let path = fixture.path("program").display().to_string();
    let mut log = LogBuilder::new(1);
    log.module_record(module(path, fixture.build_id("program")));
    let stack = log.stack(&[BIAS + call]);
    log.alloc(stack, 100);
    let log = fixture
        .write("run.heaplog", log.end())
        .display()
        .to_string();
    let before = stdout(&heapprof(&["symbolize", "--no-kept-names", &log]));
    assert!(before.contains("middle"), "{before}");

    fixture.compile(
        "program.c",
        &C_INLINES.replace("sink(x * 3)", "sink(x * 5)"),
        &["-g"],
    );
    let output = heapprof(&["symbolize", &log]);
    let after = stdout(&output);
    for name in ["middle", "outer", "leaf"] {
        assert!(!after.contains(name), "{after}");
    }
    assert!(stderr(&output).contains("1 of 1 addresses have no name"));
    let info = stdout(&heapprof(&["info", &log]));
    assert!(
        info.contains("is another build than the one that ran"),
        "{info}"
    );
    assert!(info.contains("refused: another build"), "{info}");
}
