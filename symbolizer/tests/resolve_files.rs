//! The files of a module: those that are used, those that are refused, and the words of the report.

use crate::resolve_fixture::{C_INLINES, Fixture, installed, lines};
use heapprof_symbolizer::resolve::{
    Identity, ModuleQuery, ModuleRef, Outcome, Role, SearchPath, resolve_all, resolve_module,
};
use std::path::Path;

const COMPLETE: [&str; 3] = [
    "(inlined) leaf program.c:3",
    "(inlined) middle program.c:6",
    "outer program.c:9",
];

/// A stripped `program`, its debug information in `detached`, and the address of the call in
/// `outer`.
fn stripped() -> (Fixture, u64, Vec<u8>) {
    let fixture = Fixture::stripped("detached");
    let call = fixture.call_site("program", "<outer", "<sink");
    let id = fixture.build_id("program");
    (fixture, call, id)
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_debug_link_is_followed_to_each_of_its_places() {
    for place in [
        "program.debug",
        ".debug/program.debug",
        "debug/FOLDER/program.debug",
    ] {
        let (fixture, call, id) = stripped();
        fixture.run("mv", &["detached", "program.debug"]);
        fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
        let folder = fixture.path("").canonicalize().expect("a folder");
        let place = place.replace("FOLDER", folder.to_str().expect("text").trim_matches('/'));
        fixture.run(
            "mkdir",
            &[
                "-p",
                Path::new(&place)
                    .parent()
                    .and_then(Path::to_str)
                    .map_or(".", |p| if p.is_empty() { "." } else { p }),
            ],
        );
        if place != "program.debug" {
            fixture.run("mv", &["program.debug", &place]);
        }
        let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
        assert_eq!(
            lines(&symbols, call),
            COMPLETE,
            "{place}\n{}",
            symbols.report
        );
        assert!(
            symbols
                .report
                .opened()
                .any(|(_, role)| role == Role::DebugFile)
        );
    }
}

#[test]
fn a_debug_file_with_another_checksum_is_refused() {
    let (fixture, call, id) = stripped();
    fixture.run("mv", &["detached", "program.debug"]);
    fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let mut bytes = std::fs::read(fixture.path("program.debug")).expect("the debug file");
    bytes.push(0); // still a good ELF file, but not the one linked
    fixture.write("program.debug", bytes);
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(
        lines(&symbols, call),
        ["outer ?:0"],
        "the dynamic symbols remain"
    );
    assert!(
        symbols
            .report
            .tried
            .iter()
            .any(|(_, outcome)| matches!(outcome, Outcome::CrcDiffers { .. }))
    );
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let (fixture, call, id) = stripped();
    let hex = hex(&id);
    fixture.run("mkdir", &["-p", &format!("debug/.build-id/{}", &hex[..2])]);
    fixture.run(
        "mv",
        &[
            "detached",
            &format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]),
        ],
    );
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);

    // Even when the program itself is gone, or was replaced.
    std::fs::remove_file(fixture.path("program")).expect("the program");
    let symbols = fixture.resolve_as(&fixture.path("program (deleted)"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);
    assert_eq!(symbols.report.identity, Identity::Verified);
}

#[test]
fn a_debug_file_of_another_build_is_refused_by_its_build_id() {
    let (fixture, call, id) = stripped();
    let other = Fixture::new();
    other.compile(
        "program.c",
        &C_INLINES.replace("middle", "wrong"),
        &["-g", "-rdynamic"],
    );
    let hex = hex(&id);
    fixture.run("mkdir", &["-p", &format!("debug/.build-id/{}", &hex[..2])]);
    std::fs::copy(
        other.path("program"),
        fixture.path(&format!(
            "debug/.build-id/{}/{}.debug",
            &hex[..2],
            &hex[2..]
        )),
    )
    .expect("a copy");
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), ["outer ?:0"]);
    assert!(
        symbols
            .report
            .to_string()
            .contains("refused: another build"),
        "{}",
        symbols.report
    );
}

#[test]
fn a_program_that_was_replaced_gives_no_names() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let mut id = fixture.build_id("program");
    id[3] ^= 1;
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert!(symbols.frames_of(call).is_empty());
    assert_eq!(symbols.report.quality.unresolved, 1);
    assert_eq!(symbols.report.identity, Identity::NoFile);
    let report = symbols.report.to_string();
    assert!(
        report.contains("is another build than the one that ran"),
        "{report}"
    );
    assert!(report.contains("PPROF_BINARY_PATH"), "{report}");
}

#[test]
fn without_a_recorded_build_id_the_file_is_used_and_called_unverified() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve_as(&fixture.path("program"), None, &[call]);
    assert_eq!(lines(&symbols, call), COMPLETE);
    assert_eq!(symbols.report.identity, Identity::Unverified);
    assert!(
        symbols.report.to_string().contains("unverified"),
        "{}",
        symbols.report
    );
}

#[test]
fn a_stripped_library_has_the_names_it_exports_and_advice() {
    let (fixture, call, id) = stripped();
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), ["outer ?:0"]);
    assert_eq!(symbols.report.quality.by_symbols, 1);
    let report = symbols.report.to_string();
    assert!(
        report.contains(&format!(
            "no debug information for program (build-id {})",
            hex(&id)
        )),
        "{report}"
    );
    assert!(report.contains("--debug-dir"), "{report}");
}

#[test]
fn mini_debug_info_names_what_is_not_exported() {
    if !installed("xz") {
        return eprintln!("skipped: no xz");
    }
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &[]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    fixture.run(
        "objcopy",
        &[
            "-S",
            "--remove-section",
            ".gnu_debuglink",
            "--remove-section",
            ".comment",
            "--keep-symbol=outer",
            "program",
            "mini",
        ],
    );
    fixture.run("xz", &["mini"]);
    fixture.run(
        "objcopy",
        &[
            "-S",
            "--add-section",
            ".gnu_debugdata=mini.xz",
            "program",
            "program",
        ],
    );
    let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
    assert_eq!(lines(&symbols, call), ["outer ?:0"], "{}", symbols.report);
    assert!(
        symbols
            .report
            .opened()
            .any(|(_, role)| role == Role::MiniDebugInfo)
    );
}

#[test]
fn what_dwz_shared_is_followed() {
    if !installed("dwz") {
        return eprintln!("skipped: no dwz");
    }
    let fixture = Fixture::new();
    // Two programs with the same inlined functions: dwz -m moves what they share into `shared`.
    fixture.compile("program.c", C_INLINES, &["-g"]);
    fixture.run("cp", &["program", "second"]);
    fixture.run(
        "dwz",
        &["-m", "shared", "-M", "shared", "program", "second"],
    );
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    assert!(
        symbols
            .report
            .opened()
            .any(|(_, role)| role == Role::Supplementary),
        "{}",
        symbols.report
    );
    assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);

    std::fs::remove_file(fixture.path("shared")).expect("the shared file");
    let symbols = fixture.resolve(call);
    assert_eq!(
        symbols.frames_of(call).len(),
        3,
        "the frames are still known"
    );
    assert!(
        symbols.report.to_string().contains("which was not found"),
        "{}",
        symbols.report
    );
}

#[test]
fn a_sysroot_and_pprofs_folders_are_searched() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    let hex = hex(&id);
    let recorded = ModuleRef {
        path: Path::new("/opt/nowhere/program"),
        build_id: Some(&id),
    };
    for place in [
        "root/opt/nowhere/program".to_owned(),
        format!("bin/{hex}/program"),
        "bin/program".into(),
        format!("bin/{}/{}.debug", &hex[..2], &hex[2..]),
    ] {
        for folder in ["root", "bin"] {
            let _ = std::fs::remove_dir_all(fixture.path(folder));
        }
        fixture.write(
            &place,
            std::fs::read(fixture.path("program")).expect("the program"),
        );
        let search = SearchPath {
            sysroot: Some(fixture.path("root")),
            binary_dirs: vec![fixture.path("bin")],
            ..fixture.search()
        };
        let symbols = resolve_module(&recorded, &[call], &search);
        assert_eq!(
            lines(&symbols, call),
            COMPLETE,
            "{place}\n{}",
            symbols.report
        );
    }
}

/// A link means a place in the process's file system: an absolute link does not lead out of it.
#[test]
fn links_below_a_sysroot_stay_there() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    let path = Path::new("/opt/nowhere/program");
    let program = std::fs::read(fixture.path("program")).expect("the program");
    fixture.write("root/real/at/last", program);
    for (from, to) in [
        ("root/opt/nowhere", "/alternatives"),
        ("root/alternatives/program", "/etc/../etc/program"),
        ("root/etc/program", "../real/at/last"),
        ("root/round", "/round"),
    ] {
        let from = fixture.path(from);
        std::fs::create_dir_all(from.parent().expect("a folder")).expect("a folder");
        std::os::unix::fs::symlink(to, from).expect("a link");
    }
    let search = SearchPath {
        sysroot: Some(fixture.path("root")),
        ..fixture.search()
    };
    for build_id in [Some(&id[..]), None] {
        let symbols = resolve_module(&ModuleRef { path, build_id }, &[call], &search);
        assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);
    }
    // Ours is none of theirs, and a circle is no place.
    std::os::unix::fs::symlink(fixture.path("program"), fixture.path("root/ours")).expect("a link");
    for path in ["/ours", "/round"] {
        let path = Path::new(path);
        let module = ModuleRef {
            path,
            build_id: None,
        };
        let symbols = resolve_module(&module, &[call], &search);
        assert!(lines(&symbols, call).is_empty(), "{}", symbols.report);
    }
}

/// A file at the place of a deleted file counts as another file, unless a build-id shows that both
/// are the same.
#[test]
fn the_successor_of_a_deleted_file_without_a_build_id_gives_no_names() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g", "-Wl,--build-id=none"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve_as(&fixture.path("program (deleted)"), None, &[call]);
    assert!(lines(&symbols, call).is_empty(), "{}", symbols.report);
    // A copy that the user puts forward is the user's word.
    let search = SearchPath {
        binary_dirs: vec![fixture.path("")],
        ..fixture.search()
    };
    let path = Path::new("/nowhere/program (deleted)");
    let module = ModuleRef {
        path,
        build_id: None,
    };
    let symbols = resolve_module(&module, &[call], &search);
    assert_eq!(lines(&symbols, call), COMPLETE, "{}", symbols.report);
}

/// Stripped off a program that was compiled without `-g`.
#[test]
fn a_detached_file_with_symbols_alone_gives_names() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &[]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let id = fixture.build_id("program");
    fixture.run(
        "objcopy",
        &["--only-keep-debug", "program", "program.debug"],
    );
    fixture.run("objcopy", &["--strip-all", "program"]);
    fixture.run("objcopy", &["--add-gnu-debuglink=program.debug", "program"]);
    let hex = hex(&id);
    let places = [
        "program.debug".to_owned(),
        format!("debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]),
    ];
    let bytes = std::fs::read(fixture.path("program.debug")).expect("the debug file");
    std::fs::remove_file(fixture.path("program.debug")).expect("the debug file");
    for place in places {
        fixture.write(&place, &bytes);
        let symbols = fixture.resolve_as(&fixture.path("program"), Some(&id), &[call]);
        assert_eq!(lines(&symbols, call), ["outer ?:0"], "{}", symbols.report);
        let opened = |(path, role)| path == fixture.path(&place) && role == Role::SymbolFile;
        assert!(symbols.report.opened().any(opened), "{}", symbols.report);
        assert!(symbols.report.to_string().contains("no debug information"));
        std::fs::remove_file(fixture.path(&place)).expect("the debug file");
    }
}

#[test]
fn memory_without_a_file_says_so() {
    let fixture = Fixture::new();
    for path in ["[heap]", "", "//anon", "/memfd:jit (deleted)"] {
        let symbols = fixture.resolve_as(Path::new(path), None, &[0x10]);
        assert!(symbols.frames_of(0x10).is_empty());
        assert!(
            symbols
                .report
                .to_string()
                .contains("no file holds its names"),
            "{}",
            symbols.report
        );
    }
}

#[test]
fn things_that_are_not_elf_files_are_reasons() {
    let fixture = Fixture::new();
    let text = fixture.write("text", "not an ELF file");
    fixture.run("mkfifo", &["pipe"]);
    for path in [
        text,
        fixture.path("pipe"),
        fixture.path(""),
        fixture.path("nothing"),
        fixture.write("empty", ""),
    ] {
        let symbols = fixture.resolve_as(&path, None, &[0x10]);
        assert_eq!(symbols.report.quality.unresolved, 1);
        assert!(!symbols.report.reasons.is_empty(), "{}", symbols.report);
    }
}

#[test]
fn the_vdso_is_named_when_it_is_this_kernels() {
    let fixture = Fixture::new();
    let symbols = fixture.resolve_as(Path::new("[vdso]"), None, &[0x800]);
    assert!(symbols.frames_of(0x800).is_empty());
    assert!(
        symbols.report.to_string().contains("vDSO"),
        "{}",
        symbols.report
    );
    let symbols = fixture.resolve_as(Path::new("[vdso]"), Some(&[1; 20]), &[0x800]);
    let Some(Outcome::BuildIdDiffers { found: Some(own) }) =
        symbols.report.tried.first().map(|(_, o)| o.clone())
    else {
        return eprintln!("skipped: this machine has no readable vDSO");
    };
    let all: Vec<u64> = (0..0x4000).step_by(16).collect();
    let symbols = fixture.resolve_as(Path::new("[vdso]"), Some(&own.0), &all);
    let names: Vec<&str> = symbols
        .iter()
        .flat_map(|(_, frames)| frames)
        .filter_map(|frame| Some(frame.function.as_ref()?.raw()))
        .collect();
    assert!(
        names.iter().any(|name| name.contains("clock_gettime")),
        "{names:?}\n{}",
        symbols.report
    );
}

#[test]
fn many_modules_are_answered_in_the_order_of_the_questions() {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-g"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let program = fixture.path("program");
    let modules = [
        program.as_path(),
        Path::new("[heap]"),
        program.as_path(),
        Path::new("/nowhere"),
    ];
    let svmas = [call];
    let asked = modules.map(|path| ModuleQuery {
        module: ModuleRef {
            path,
            build_id: None,
        },
        svmas: &svmas,
    });
    let answers = resolve_all(&asked, &fixture.search());
    let named: Vec<usize> = answers
        .iter()
        .map(|symbols| symbols.frames_of(call).len())
        .collect();
    assert_eq!(named, [3, 0, 3, 0]);
    let paths: Vec<&Path> = answers
        .iter()
        .map(|symbols| symbols.report.path.as_path())
        .collect();
    assert_eq!(paths, modules);
}

#[test]
fn a_symbol_names_what_its_size_covers_and_a_label_reaches_to_the_next() {
    let fixture = Fixture::new();
    // outer: 32 bytes with `inner` in the middle; a hole of 16; a bare label up to `main`.
    let text = ".text\n.globl outer,_outer_too,main\n.type outer,@function\n.type _outer_too,@function\n\
        .type inner,@function\n.type main,@function\n\
        outer: _outer_too: .fill 8,1,0x90\ninner: .fill 8,1,0x90\n.size inner,8\n.fill 16,1,0x90\n.size outer,32\n\
        .size _outer_too,32\n.fill 16,1,0x90\nlabel: .fill 16,1,0x90\nmain: ret\n.size main,1\n\
        .section .note.GNU-stack,\"\",@progbits\n";
    fixture.write("program.s", text);
    fixture.run("gcc", &["-Wl,--build-id", "-o", "program", "program.s"]);
    let outer = fixture.address_of("program", "outer");
    let expected = [
        (0, "outer"),
        (7, "outer"),
        (8, "inner"),
        (15, "inner"),
        (16, "outer"),
        (31, "outer"),
        (32, ""),
        (47, ""),
        (48, "label"),
        (63, "label"),
        (64, "main"),
    ];
    let svmas = expected.map(|(offset, _)| outer + offset);
    let symbols = fixture.resolve_as(&fixture.path("program"), None, &svmas);
    let found = svmas.map(|svma| {
        symbols
            .frames_of(svma)
            .first()
            .and_then(|frame| Some(frame.function.as_ref()?.raw()))
    });
    assert_eq!(
        found.map(Option::unwrap_or_default),
        expected.map(|(_, name)| name)
    );
}

/// The place of the header of the first section of that kind, in an ELF file of 64 bits.
fn section_header(bytes: &[u8], kind: u32) -> usize {
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().unwrap()) as usize;
    let mut headers = (table..bytes.len()).step_by(64);
    let is_it = |&at: &usize| bytes[at + 4..at + 8] == kind.to_le_bytes();
    headers.find(is_it).expect("a section of that kind")
}

/// `elfcompress` packs any section that it is told to. A parser that takes the packed bytes for a
/// table refuses the whole file.
#[test]
fn a_table_that_cannot_be_read_costs_no_names_of_dwarf() {
    const SYMTAB: u32 = 2;
    const SHF_COMPRESSED: u8 = 8;
    type Damage = fn(&mut Vec<u8>, usize);
    let damage: [(u32, Damage); 2] = [
        (SYMTAB, |bytes, header| {
            // In front, what says how it is compressed: by zlib, to that size.
            let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let (offset, size) = (word(header + 24) as usize, word(header + 32));
            let mut packed = [1, size, 8].map(u64::to_le_bytes).concat();
            let mut packer =
                flate2::write::ZlibEncoder::new(&mut packed, flate2::Compression::default());
            let table = &bytes[offset..offset + size as usize];
            std::io::Write::write_all(&mut packer, table).unwrap();
            packer.finish().unwrap();
            let end = bytes.len() as u64;
            bytes[header + 24..header + 32].copy_from_slice(&end.to_le_bytes());
            let size = packed.len() as u64;
            bytes[header + 32..header + 40].copy_from_slice(&size.to_le_bytes());
            bytes[header + 9] |= SHF_COMPRESSED;
            bytes.extend(packed);
        }),
        // A table that ends inside of an entry.
        (SYMTAB, |bytes, header| bytes[header + 32] += 1),
    ];
    for (kind, damage) in damage {
        let fixture = Fixture::new();
        fixture.compile("program.c", C_INLINES, &["-g"]);
        let call = fixture.call_site("program", "<outer>", "<sink>");
        let id = fixture.build_id("program");
        let path = fixture.path("program");
        let expected = lines(&fixture.resolve_as(&path, Some(&id), &[call]), call);
        assert_eq!(expected.len(), 3);
        let mut bytes = std::fs::read(&path).unwrap();
        let header = section_header(&bytes, kind);
        damage(&mut bytes, header);
        fixture.write("program", bytes);
        let symbols = fixture.resolve_as(&path, Some(&id), &[call]);
        assert_eq!(lines(&symbols, call), expected, "{}", symbols.report);
    }
}
