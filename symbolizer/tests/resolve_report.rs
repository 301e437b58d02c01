//! The report about a module, cause by cause: what was tried, why it failed, what to do.

use crate::resolve_fixture::{C_INLINES, Fixture, installed, lines};
use heapprof_symbolizer::resolve::{ModuleRef, SearchPath, resolve_module};
use std::path::Path;

/// The report on `program`, asked for one address of it.
#[track_caller]
fn report_says(fixture: &Fixture, words: &[&str]) -> String {
    let id = fixture.build_id("program");
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[0x1139]);
    let report = symbols.report.to_string();
    for words in words {
        assert!(report.contains(words), "{words:?} in {report}");
    }
    report
}

fn stripped() -> Fixture {
    let fixture = Fixture::stripped("program.debug");
    fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    fixture
}

#[test]
fn which_file_was_used_is_said_with_its_path() {
    let fixture = stripped();
    let debug = fixture.path("program.debug");
    report_says(
        &fixture,
        &[&format!("{}: used as debug information", debug.display())],
    );
}

#[test]
fn a_wrong_checksum_is_said_with_both() {
    let fixture = stripped();
    let mut bytes = std::fs::read(fixture.path("program.debug")).expect("the debug file");
    let good = crc32fast::hash(&bytes);
    bytes.push(0);
    let bad = crc32fast::hash(&bytes);
    fixture.write("program.debug", bytes);
    let refused = format!("program.debug: refused: checksum {bad:08x}, the link says {good:08x}");
    report_says(
        &fixture,
        &[&refused, "no debug information for program (build-id "],
    );
}

#[test]
fn a_missing_debug_file_is_said_with_every_place_that_was_tried() {
    let fixture = stripped();
    std::fs::remove_file(fixture.path("program.debug")).expect("the debug file");
    let id = fixture.build_id("program");
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = format!(
        "debug/.build-id/{}/{}.debug: not there",
        &hex[..2],
        &hex[2..]
    );
    report_says(
        &fixture,
        &[
            "program.debug: not there",
            ".debug/program.debug: not there",
            &by_id,
        ],
    );
}

#[test]
fn a_debug_file_without_debug_information_is_said_to_have_none() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &[]);
    fixture.run("cp", &["program", "program.debug"]);
    fixture.run("objcopy", &["--strip-all", "program"]);
    fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    report_says(
        &fixture,
        &[
            "program.debug: used as symbols: it has no debug information",
            "-g (Rust: debug =",
        ],
    );
}

#[test]
fn damaged_symbols_in_gnu_debugdata_are_said() {
    let fixture = stripped();
    fixture.write("garbage", [7_u8; 99]);
    fixture.run(
        "objcopy",
        &["--add-section", ".gnu_debugdata=garbage", "program"],
    );
    report_says(&fixture, &[".gnu_debugdata cannot be decompressed"]);
}

#[test]
fn a_missing_dwz_file_is_said_with_its_build_id() {
    if !installed("dwz") {
        return eprintln!("skipped: no dwz");
    }
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    fixture.run("cp", &["program", "second"]);
    fixture.run(
        "dwz",
        &["-m", "shared", "-M", "shared", "program", "second"],
    );
    let id = fixture.build_id("shared");
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::remove_file(fixture.path("shared")).expect("the shared file");
    report_says(
        &fixture,
        &[
            &format!("the debug information shares shared (build-id {hex})"),
            "--debug-dir",
        ],
    );
}

/// The claimed size is refused before anything of it is allocated: what no machine has, and what no
/// compression does.
#[test]
fn a_section_that_claims_the_impossible_is_said() {
    for claimed in [1_u64 << 60, 1 << 31] {
        let fixture = Fixture::new();
        fixture.compile("program.c", C_INLINES, &["-g", "-gz=zlib"]);
        let mut bytes = std::fs::read(fixture.path("program")).expect("the program");
        // Elf64_Chdr: type 1, reserved, size, alignment, which is 1 for debug sections.
        let is_header = |w: &[u8]| {
            w[..8] == [1, 0, 0, 0, 0, 0, 0, 0]
                && w[10..16] == [0; 6]
                && w[16..] == [1, 0, 0, 0, 0, 0, 0, 0]
        };
        let (mut found, mut at) = (0, 0);
        while let Some(next) = bytes[at..].windows(24).position(is_header) {
            at += next;
            bytes[at + 8..at + 16].copy_from_slice(&claimed.to_le_bytes());
            (found, at) = (found + 1, at + 24);
        }
        assert!(found > 0, "no compressed section");
        fixture.write("program", bytes);
        report_says(
            &fixture,
            &[&format!("claims {claimed} bytes when decompressed")],
        );
    }
}

#[test]
fn a_file_that_is_no_elf_file_is_said_to_be_none() {
    let fixture = Fixture::new();
    fixture.write("program", "#!/bin/sh\n");
    let symbols = fixture.resolve_as(&fixture.path("program"), None, &[1]);
    let report = symbols.report.to_string();
    assert!(
        report.contains("is not an ELF file that can be read"),
        "{report}"
    );
}

/// The command that the report advises depends on the kind of the file.
#[test]
fn the_advice_is_for_the_kind_of_file() {
    let advice = |path: &str, id: Option<&[u8]>| {
        let fixture = stripped();
        std::fs::remove_file(fixture.path("program.debug")).expect("the debug file");
        fixture.write(
            &format!("root{path}"),
            std::fs::read(fixture.path("program")).expect("it"),
        );
        let search = SearchPath {
            debug_dirs: Vec::new(),
            sysroot: Some(fixture.path("root")),
            ..SearchPath::default()
        };
        let module = ModuleRef {
            path: Path::new(path),
            build_id: id,
        };
        resolve_module(&module, &[1], &search).report.to_string()
    };
    let libc = advice("/lib/x86_64-linux-gnu/libc.so.6", None);
    assert!(libc.contains("apt install libc6-dbg"), "{libc}");
    let other = advice("/usr/lib/x86_64-linux-gnu/libother.so.1", None);
    assert!(
        other.contains("-dbgsym") && other.contains("--debuginfod: a server may have "),
        "{other}"
    );
    let own = advice("/opt/own/program", None);
    assert!(own.contains("build it with -g"), "{own}");
}

#[test]
fn nothing_is_said_when_nothing_is_missing() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    assert_eq!(lines(&symbols, call).len(), 3);
    assert!(symbols.report.reasons.is_empty(), "{}", symbols.report);
}
