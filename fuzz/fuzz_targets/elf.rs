//! Any bytes as a program with debug information: the resolver answers every address, whatever the
//! answer. Seeds (scripts/fuzz) are small programs with DWARF of each version, split, compressed,
//! stripped with a debug link.
#![no_main]

use heapprof_symbolizer::resolve::{ModuleRef, SearchPath, resolve_module};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

/// In memory, one for each process: fuzzing writes it thousands of times a second.
static FILE: LazyLock<PathBuf> =
    LazyLock::new(|| PathBuf::from(format!("/dev/shm/heapprof-fuzz-elf.{}", std::process::id())));

fuzz_target!(|bytes: &[u8]| {
    // A new file each time: a file that is still mapped must not be cut.
    let _ = std::fs::remove_file(&*FILE);
    if std::fs::write(&*FILE, bytes).is_err() {
        return;
    }
    let module = ModuleRef {
        path: &FILE,
        build_id: None,
    };
    // Default addresses of linkers, with and without a fixed base, in steps that hit most
    // instructions.
    let svmas: Vec<u64> = (0x1000..0x1400)
        .chain(0x40_1000..0x40_1400)
        .step_by(3)
        .chain([0, u64::MAX])
        .collect();
    let search = SearchPath {
        debug_dirs: vec!["/dev/shm/heapprof-fuzz-none".into()],
        ..SearchPath::default()
    };
    let symbols = resolve_module(&module, &svmas, &search);
    let quality = symbols.report.quality;
    assert_eq!(
        quality.asked,
        quality.by_dwarf + quality.by_symbols + quality.unresolved
    );
    let _ = symbols.report.to_string();
});
