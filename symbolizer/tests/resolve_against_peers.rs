//! The same questions asked of us and of others, on a real binary: this test program itself, glibc,
//! and whatever `HEAPPROF_COMPARE=FILE` names.
//!
//! gimli's addr2line crate reads the same DWARF with other code (tables kept, one question at a
//! time). Every function, file and line must be the same, innermost first; where they may differ is
//! written at `same`.

use heapprof_symbolizer::resolve::{Frame, ModuleRef, SearchPath, resolve_module};
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};

/// Addresses spread over the text of a file: every n-th byte, n not a multiple of anything the
/// compiler aligns to.
fn addresses(file: &Path, count: u64) -> Vec<u64> {
    let bytes = std::fs::read(file).expect("a file");
    let object = object::File::parse(&*bytes).expect("an ELF file");
    let text = object.section_by_name(".text").expect("a text section");
    let step = (text.size() / count).max(1) | 1;
    (text.address()..text.address() + text.size())
        .step_by(step as usize)
        .collect()
}

/// Whether the two mean the same place. Allowed: the physical function may have another of its
/// names (the symbol table's public or mangled one); a frame that addr2line leaves unnamed may have
/// a name; and the column of a line's start, which addr2line gives as 0.
fn same(ours: &Frame, theirs: &addr2line::Frame<'_, impl gimli::Reader>) -> bool {
    let name = theirs
        .function
        .as_ref()
        .and_then(|function| Some(function.raw_name().ok()?.into_owned()));
    let our_name = ours.function.as_ref().map(|name| name.raw());
    let location = theirs.location.as_ref();
    let alias = !ours.inlined
        && name.as_ref().is_none_or(|name| {
            our_name.is_some_and(|ours| ours.starts_with('_') || name.ends_with(ours))
        });
    (our_name == name.as_deref() || alias)
        && ours.file.as_deref() == location.and_then(|location| location.file)
        && ours.line == location.and_then(|location| location.line)
        && ours.column.unwrap_or(0) == location.and_then(|location| location.column).unwrap_or(0)
}

fn compare(module: &Path, dwarf: &Path, count: u64) {
    let svmas = addresses(module, count);
    let symbols = resolve_module(
        &ModuleRef {
            path: module,
            build_id: None,
        },
        &svmas,
        &SearchPath::default(),
    );
    let peer = addr2line::Loader::new(dwarf).expect("a file that addr2line reads");
    let (mut frames_compared, mut different) = (0_u64, Vec::new());
    for (svma, ours) in symbols.iter() {
        let mut theirs = peer.find_frames(svma).expect("frames");
        let mut count = 0;
        let mut differs = false;
        while let Some(frame) = theirs.next().expect("a frame") {
            differs |= !ours.get(count).is_some_and(|ours| same(ours, &frame));
            count += 1;
        }
        // Where DWARF knows nothing, one frame by the symbol table is ours alone.
        differs |=
            count != ours.len() && !(count == 0 && ours.len() == 1 && ours[0].file.is_none());
        frames_compared += count as u64;
        if differs {
            different.push(svma);
        }
    }
    eprintln!(
        "{}: {} addresses, {frames_compared} frames, {} addresses differ",
        module.display(),
        svmas.len(),
        different.len()
    );
    for &svma in different.iter().take(5) {
        eprintln!("{svma:#x} {:#?}", symbols.frames_of(svma));
        let mut theirs = peer.find_frames(svma).expect("frames");
        while let Some(frame) = theirs.next().expect("a frame") {
            let name = frame
                .function
                .and_then(|function| Some(function.raw_name().ok()?.into_owned()));
            let place = frame
                .location
                .map(|place| (place.file.map(str::to_owned), place.line, place.column));
            eprintln!("   {name:?} {place:?}");
        }
    }
    assert!(
        frames_compared > 0,
        "nothing to compare in {}",
        module.display()
    );
    assert!(
        different.is_empty(),
        "{} addresses of {} differ",
        different.len(),
        module.display()
    );
}

#[test]
fn this_program_has_the_frames_that_addr2line_sees() {
    let program = std::env::current_exe().expect("this program");
    compare(&program, &program, 20_000);
}

#[test]
fn optimised_cpp_has_the_frames_that_addr2line_sees() {
    let fixture = crate::resolve_fixture::Fixture::new();
    let text = "#include <algorithm>\n#include <iostream>\n#include <map>\n#include <regex>\n#include <string>\n\
        int main(int argc, char **argv) {\n  std::map<std::string, std::regex> all;\n\
        for (int i = 0; i < argc; i++) all.emplace(argv[i], std::regex(argv[i]));\n\
        for (auto &[k, v] : all) std::cout << std::regex_replace(k, v, \"x\") << '\\n';\n}\n";
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program = fixture.compile("program.cc", text, &["-g", version, "-std=c++17"]);
        compare(&program, &program, 20_000);
    }
}

#[test]
fn glibc_has_the_frames_that_addr2line_sees() {
    let libc = PathBuf::from("/lib/x86_64-linux-gnu/libc.so.6");
    if !Path::new("/usr/share/doc/libc6-dbg").exists() {
        return eprintln!("skipped: no libc6-dbg (apt install libc6-dbg)");
    }
    let fixture = crate::resolve_fixture::Fixture::new();
    let id = fixture.build_id("/lib/x86_64-linux-gnu/libc.so.6");
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    compare(&libc, Path::new(&debug), 20_000);
}

#[test]
#[ignore = "needs HEAPPROF_COMPARE=FILE, a large binary with debug information in it"]
fn a_named_program_has_the_frames_that_addr2line_sees() {
    let program =
        PathBuf::from(std::env::var_os("HEAPPROF_COMPARE").expect("HEAPPROF_COMPARE=FILE"));
    compare(&program, &program, 100_000);
}
