//! clang's programs in `compiled/`, every byte of their code: the frames are those that
//! llvm-symbolizer saw when `scripts/make-compiled-inputs` made them.

use heapprof_symbolizer::resolve::{ModuleRef, SearchPath, resolve_module};
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};

/// Where no line is known a column says nothing: llvm-symbolizer prints what is there, we leave it
/// out.
fn without_line(place: &str) -> Option<&str> {
    let (place, _) = place.rsplit_once(':')?;
    place.ends_with(":0").then_some(place)
}

/// One address and the frames from it on: mangled function and `file:line:column`, innermost first.
type Block = (u64, Vec<(String, String)>);

fn expected(path: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(path).expect("a text");
    text.split_terminator("\n\n")
        .map(|block| {
            let mut lines = block.lines();
            let address = lines.next().expect("an address").trim_start_matches("0x");
            let lines: Vec<&str> = lines.collect();
            let frames = lines.chunks(2).map(|pair| {
                let place = match without_line(pair[1]) {
                    Some(place) => format!("{place}:0"),
                    None => pair[1].to_owned(),
                };
                (pair[0].to_owned(), place)
            });
            let svma = u64::from_str_radix(address, 16).expect("hexadecimal");
            (svma, frames.collect())
        })
        .collect()
}

fn programs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compiled");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "expected")
        })
        .map(|path| path.with_extension(""))
        .collect();
    found.sort();
    found
}

#[test]
fn clangs_programs_have_the_frames_that_llvm_symbolizer_sees() {
    let programs = programs();
    assert!(programs.len() >= 10, "{programs:?}");
    for program in programs {
        let bytes = std::fs::read(&program).expect("the program");
        let object = object::File::parse(&*bytes).expect("an ELF file");
        let text = object.section_by_name(".text").expect("code");
        let svmas: Vec<u64> = (text.address()..text.address() + text.size()).collect();
        let search = SearchPath {
            debug_dirs: Vec::new(),
            ..SearchPath::default()
        };
        let module = ModuleRef {
            path: &program,
            build_id: None,
        };
        let symbols = resolve_module(&module, &svmas, &search);
        let blocks = expected(&program.with_extension("expected"));
        let mut compared = 0;
        for &svma in &svmas {
            let block = blocks.partition_point(|(begin, _)| *begin <= svma) - 1;
            let ours: Vec<(String, String)> = symbols
                .frames_of(svma)
                .iter()
                .map(|frame| {
                    let function = frame.function.as_ref().map_or("??", |name| name.raw());
                    let file = frame.file.as_deref().unwrap_or("??");
                    let (line, column) = (frame.line.unwrap_or(0), frame.column.unwrap_or(0));
                    (function.to_owned(), format!("{file}:{line}:{column}"))
                })
                .collect();
            let theirs = match blocks[block].1.as_slice() {
                [(function, place)] if function == "??" && place == "??:0:0" => &[],
                frames => frames,
            };
            assert_eq!(
                ours,
                theirs,
                "{svma:#x} of {}\n{}",
                program.display(),
                symbols.report
            );
            compared += ours.len();
        }
        assert!(
            compared > svmas.len(),
            "{} has inlined frames",
            program.display()
        );
    }
}
