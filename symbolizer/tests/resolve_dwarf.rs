//! Frames from DWARF of every kind that compilers write: versions 2 to 5, split, compressed, lines
//! only.

use crate::resolve_fixture::{C_INLINES, CPP_INLINES, Fixture, RUST_INLINES, installed, lines};

const C_EXPECTED: [&str; 3] = [
    "(inlined) leaf program.c:3",
    "(inlined) middle program.c:6",
    "outer program.c:9",
];

#[track_caller]
fn c_frames_are_complete_with(flags: &[&str]) {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, flags);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    assert_eq!(
        lines(&symbols, call),
        C_EXPECTED,
        "{flags:?}\n{}",
        symbols.report
    );
    assert_eq!(symbols.report.quality.by_dwarf, 1);
    assert!(symbols.report.reasons.is_empty(), "{}", symbols.report);
}

#[test]
fn each_version_of_dwarf_gives_inlined_frames_and_lines() {
    for version in ["-gdwarf-2", "-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        c_frames_are_complete_with(&["-g", version]);
    }
}

#[test]
fn the_least_debug_information_gives_inlined_frames_and_lines() {
    c_frames_are_complete_with(&["-g1"]);
}

#[test]
fn the_64_bit_format_is_read() {
    c_frames_are_complete_with(&["-g", "-gdwarf64"]);
}

#[test]
fn compressed_sections_are_read() {
    c_frames_are_complete_with(&["-g", "-gz=zlib"]);
    c_frames_are_complete_with(&["-g", "-gz=zlib-gnu"]);
}

#[test]
fn sections_compressed_with_zstd_are_read() {
    let fixture = Fixture::new();
    fixture.write("try.c", C_INLINES);
    let flags = ["-g", "-Wl,--compress-debug-sections=zstd"];
    let can = std::process::Command::new("gcc")
        .args(["-o", "try", "try.c"])
        .args(flags)
        .current_dir(fixture.path(""))
        .output()
        .is_ok_and(|output| output.status.success());
    if !can {
        return eprintln!("skipped: this linker cannot compress with zstd");
    }
    let sections = fixture.run("readelf", &["-WSt", "try"]);
    assert!(sections.contains("COMPRESSED"), "{sections}");
    c_frames_are_complete_with(&flags);
}

/// Lines of dropped code stay in the file, from address 0 on, and reach into the addresses of what
/// was kept.
#[test]
fn lines_of_dropped_code_are_no_other_codes() {
    let rows = (0..1000).map(|i| format!("    a[{}] += a[{}] * {i};\n", i % 64, i * 7 % 64));
    let rows: String = rows.collect();
    let text = format!("void dropped(volatile int *a) {{\n{rows}}}\n{C_INLINES}");
    let shift = 1002;
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let fixture = Fixture::new();
        let flags = ["-g", version, "-ffunction-sections", "-Wl,--gc-sections"];
        fixture.compile("program.c", &text, &flags);
        let call = fixture.call_site("program", "<outer>", "<sink>");
        let symbols = fixture.resolve(call);
        let expected = [
            format!("(inlined) leaf program.c:{}", shift + 3),
            format!("(inlined) middle program.c:{}", shift + 6),
            format!("outer program.c:{}", shift + 9),
        ];
        assert_eq!(lines(&symbols, call), expected, "{version}");
    }
}

#[test]
fn link_time_optimised_code_keeps_its_frames() {
    c_frames_are_complete_with(&["-g", "-flto"]);
}

#[test]
fn split_units_are_found_beside_the_objects() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        c_frames_are_complete_with(&["-g", version, "-gsplit-dwarf"]);
    }
}

/// The binary is small, and what it leads to is large: entries of types, and next to no code.
#[test]
fn a_split_unit_may_be_much_larger_than_the_binary() {
    let types =
        (1..60_000).map(|i| format!("struct s{i} {{ int a; struct s{} *next; }};\n", i - 1));
    let types: String = types.collect();
    let text = format!("struct s0 {{ int a; }};\n{types}struct s59999 *all;\n{C_INLINES}");
    let fixture = Fixture::new();
    fixture.compile("program.c", &text, &["-g", "-gsplit-dwarf"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    assert_eq!(lines(&symbols, call).len(), 3, "{}", symbols.report);
}

#[track_caller]
fn package_is_read(fixture: &Fixture, dwp: &str) {
    let call = fixture.call_site("program", "<outer>", "<sink>");
    // With a limit: llvm-dwp 14 never ends on what gcc 12 writes as DWARF 5.
    fixture.run(
        "timeout",
        &["60", dwp, "-e", "program", "-o", "program.dwp"],
    );
    fixture.run("sh", &["-c", "rm *.dwo"]);
    let symbols = fixture.resolve(call);
    assert_eq!(lines(&symbols, call), C_EXPECTED, "{}", symbols.report);
}

#[test]
fn split_units_are_found_in_a_package() {
    if !installed("dwp") {
        return eprintln!("skipped: no dwp");
    }
    let fixture = Fixture::new();
    fixture.compile(
        "program.c",
        C_INLINES,
        &["-g", "-gdwarf-4", "-gsplit-dwarf"],
    );
    package_is_read(&fixture, "dwp");
}

#[test]
fn split_units_of_dwarf_5_are_found_in_a_package() {
    if !installed("clang") || !installed("llvm-dwp") {
        return eprintln!("skipped: no clang, or no llvm-dwp");
    }
    let fixture = Fixture::new();
    // clang knows no `noclone`.
    fixture.write("program.c", C_INLINES.replace(", noclone", ""));
    fixture.run(
        "clang",
        &[
            "-O2",
            "-g",
            "-gdwarf-5",
            "-gsplit-dwarf",
            "-Wl,--build-id",
            "-c",
            "program.c",
        ],
    );
    fixture.run("clang", &["-Wl,--build-id", "-o", "program", "program.o"]);
    package_is_read(&fixture, "llvm-dwp");
}

#[test]
fn a_missing_split_unit_leaves_the_symbol_and_the_line_and_a_reason() {
    let fixture = Fixture::new();
    fixture.compile(
        "program.c",
        C_INLINES,
        &["-g", "-gdwarf-5", "-gsplit-dwarf"],
    );
    fixture.run("sh", &["-c", "rm *.dwo"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    assert_eq!(lines(&symbols, call), ["outer program.c:3"]);
    let report = symbols.report.to_string();
    assert!(
        report.contains("split debug information of 1 compilation units was not found"),
        "{report}"
    );
}

#[test]
fn a_split_unit_of_another_compilation_is_refused() {
    let fixture = Fixture::new();
    let flags = ["-g", "-gdwarf-5", "-gsplit-dwarf"];
    fixture.compile("program.c", C_INLINES, &flags);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    fixture.run(
        "sh",
        &[
            "-c",
            "for f in *.dwo; do mv $f kept; echo $f > name; done; cp program program.kept",
        ],
    );
    fixture.compile("program.c", &C_INLINES.replace("middle", "wrong"), &flags);
    fixture.run("sh", &["-c", "mv program.kept program"]);
    let symbols = fixture.resolve(call);
    assert!(
        !lines(&symbols, call)
            .iter()
            .any(|line| line.contains("wrong")),
        "{}",
        symbols.report
    );
    assert!(
        symbols
            .report
            .to_string()
            .contains("belongs to another compilation"),
        "{}",
        symbols.report
    );
}

#[test]
fn cpp_names_are_demangled_with_their_scope() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let fixture = Fixture::new();
        fixture.compile("program.cc", CPP_INLINES, &["-g", version]);
        let call = fixture.call_site("program", "_ZN2ns4draw", "_ZN2ns4sink");
        let symbols = fixture.resolve(call);
        let expected = [
            "(inlined) int ns::Shape::scaled<long>(long) program.cc:6",
            "ns::draw(ns::Shape&, long) program.cc:10",
        ];
        assert_eq!(lines(&symbols, call), expected, "{}", symbols.report);
        let raw = symbols.frames_of(call)[1]
            .function
            .as_ref()
            .map(|name| name.raw().to_owned());
        assert_eq!(raw.as_deref(), Some("_ZN2ns4drawERNS_5ShapeEl"));
    }
}

#[test]
fn a_lambda_inside_a_function_is_a_function_of_its_own() {
    let fixture = Fixture::new();
    fixture.compile("program.cc", CPP_INLINES, &["-g", "-O0"]);
    let call = fixture.call_site("program", "clEi>", "_ZN2ns4draw");
    let symbols = fixture.resolve(call);
    let found = lines(&symbols, call);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("operator()(int) const program.cc:20"),
        "{found:?}"
    );
}

#[test]
fn rust_names_are_demangled_without_hashes() {
    for scheme in [
        "-Csymbol-mangling-version=legacy",
        "-Csymbol-mangling-version=v0",
    ] {
        let fixture = Fixture::new();
        let always = [
            "-O",
            "-Cdebuginfo=2",
            "-Clink-arg=-Wl,--build-id",
            "-Zunstable-options",
        ];
        fixture.compile(
            "program.rs",
            RUST_INLINES,
            &[&always[..], &[scheme]].concat(),
        );
        let call = fixture.call_site("program", "outer", "sink");
        let symbols = fixture.resolve(call);
        let found = lines(&symbols, call);
        let v0 = scheme.ends_with("v0");
        let leaf = if v0 {
            "(inlined) program::ns::leaf::<i32> program.rs:8"
        } else {
            "(inlined) program::ns::leaf program.rs:8"
        };
        assert_eq!(
            found,
            [leaf, "program::ns::outer program.rs:12"],
            "{}",
            symbols.report
        );
    }
}

#[test]
fn rust_line_tables_alone_give_full_names_by_the_symbol_table() {
    let fixture = Fixture::new();
    let flags = [
        "-O",
        "-Clink-arg=-Wl,--build-id",
        "-Cdebuginfo=line-tables-only",
    ];
    fixture.compile("program.rs", RUST_INLINES, &flags);
    let call = fixture.call_site("program", "outer", "sink");
    let symbols = fixture.resolve(call);
    let found = lines(&symbols, call);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("(inlined)") && found[0].ends_with("program.rs:8"),
        "{found:?}"
    );
    assert_eq!(found[1], "program::ns::outer program.rs:12");
}

#[test]
fn clang_line_tables_alone_give_full_names_by_the_symbol_table() {
    if !installed("clang++") {
        return eprintln!("skipped: no clang++");
    }
    let fixture = Fixture::new();
    fixture.write("program.cc", CPP_INLINES);
    fixture.run(
        "clang++",
        &[
            "-O2",
            "-gline-tables-only",
            "-Wl,--build-id",
            "-o",
            "program",
            "program.cc",
        ],
    );
    let call = fixture.call_site("program", "_ZN2ns4draw", "_ZN2ns4sink");
    let symbols = fixture.resolve(call);
    assert_eq!(
        lines(&symbols, call).last().map(String::as_str),
        Some("ns::draw(ns::Shape&, long) program.cc:10")
    );
}

#[test]
fn addresses_are_answered_in_any_order_and_strangers_are_not() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let main = fixture.address_of("program", "main");
    let outer = fixture.address_of("program", "outer");
    let svmas = [u64::MAX, outer, 0, main, outer, 1 << 40, main];
    let symbols = fixture.resolve_as(
        &fixture.path("program"),
        Some(&fixture.build_id("program")),
        &svmas,
    );
    assert_eq!(symbols.report.quality.asked, 5);
    assert_eq!(symbols.report.quality.unresolved, 3);
    assert!(
        lines(&symbols, main)
            .last()
            .is_some_and(|line| line.starts_with("main "))
    );
    assert!(
        lines(&symbols, outer)
            .last()
            .is_some_and(|line| line.starts_with("outer "))
    );
    for stranger in [0, u64::MAX, 1 << 40, main + 1] {
        assert!(symbols.frames_of(stranger).is_empty());
    }
}

#[test]
fn debians_libc_has_names_files_and_lines() {
    let libc = std::path::Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let fixture = Fixture::new();
    if !libc.exists() || !std::path::Path::new("/usr/share/doc/libc6-dbg").exists() {
        return eprintln!("skipped: no libc6-dbg (apt install libc6-dbg)");
    }
    let id = fixture.build_id("/lib/x86_64-linux-gnu/libc.so.6");
    let table = fixture.run(
        "nm",
        &["-D", "--defined-only", "/lib/x86_64-linux-gnu/libc.so.6"],
    );
    for (function, file) in [
        ("malloc", "malloc.c"),
        ("qsort", "msort.c"),
        ("realloc", "malloc.c"),
    ] {
        let row = table
            .lines()
            .find(|line| line.contains(&format!(" T {function}@@")))
            .expect(function);
        let svma = u64::from_str_radix(&row[..16], 16).expect("an address");
        let module = heapprof_symbolizer::resolve::ModuleRef {
            path: libc,
            build_id: Some(&id),
        };
        let symbols =
            heapprof_symbolizer::resolve::resolve_module(&module, &[svma], &Default::default());
        let found = lines(&symbols, svma);
        assert!(
            found
                .last()
                .is_some_and(|line| line.starts_with(&format!("{function} {file}:"))),
            "{found:?}"
        );
        assert_eq!(
            symbols.report.identity,
            heapprof_symbolizer::resolve::Identity::Verified
        );
    }
}
