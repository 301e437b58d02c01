//! Programs with symbols, and bundles of such.
//!
//! ```text
//!   header | .symtab | .strtab | .shstrtab | section headers     .text has addresses, no bytes
//! ```

use std::io;
use std::path::{Path, PathBuf};

use crate::builder::{Builder, alone, module, write};

type Files = io::Result<Vec<PathBuf>>;

/// Where the program is mapped, and where its file says that its code begins.
const BIAS: u64 = 0x5000_0000_0000;
const CODE: u64 = 0x1000;

const HEADER: u64 = 64;
const SECTION: u64 = 64;

/// Appends a section's header: name, type, flags, address, offset, size, link, info, alignment,
/// size of an entry.
fn section(out: &mut Vec<u8>, words: [u64; 10]) {
    for (i, word) in words.into_iter().enumerate() {
        let bytes = word.to_le_bytes();
        // The name and the type are half as long, as are link and info.
        let is_half = matches!(i, 0 | 1 | 6 | 7);
        out.extend_from_slice(&bytes[..if is_half { 4 } else { 8 }]);
    }
}

/// A program of those functions: where they begin, and how long they are.
fn program(functions: &[(u64, u64)]) -> Vec<u8> {
    let (mut symbols, mut names) = (vec![0; 24], vec![0]);
    for (i, (at, size)) in functions.iter().enumerate() {
        symbols.extend_from_slice(&(names.len() as u32).to_le_bytes());
        symbols.extend_from_slice(&[0x12, 0, 1, 0]); // a global function, in section 1
        symbols.extend_from_slice(&(CODE + at).to_le_bytes());
        symbols.extend_from_slice(&size.to_le_bytes());
        names.extend_from_slice(format!("function_{i}\0").as_bytes());
    }
    let section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let code = functions
        .iter()
        .map(|(at, size)| at + size)
        .max()
        .unwrap_or(0);
    let at_symbols = HEADER;
    let at_names = at_symbols + symbols.len() as u64;
    let at_section_names = at_names + names.len() as u64;
    let at_sections = at_section_names + section_names.len() as u64;

    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [3u16, 62] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&1u32.to_le_bytes());
    for word in [CODE, 0, at_sections] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [HEADER as u16, 56, 0, SECTION as u16, 5, 4] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    out.extend_from_slice(&symbols);
    out.extend_from_slice(&names);
    out.extend_from_slice(section_names);
    section(&mut out, [0; 10]);
    // SHT_NOBITS; SHF_ALLOC and SHF_EXECINSTR.
    section(&mut out, [1, 8, 6, CODE, HEADER, code, 0, 0, 16, 0]);
    section(
        &mut out,
        [7, 2, 0, 0, at_symbols, symbols.len() as u64, 3, 1, 8, 24],
    );
    section(
        &mut out,
        [15, 3, 0, 0, at_names, names.len() as u64, 0, 0, 1, 0],
    );
    section(
        &mut out,
        [
            23,
            3,
            0,
            0,
            at_section_names,
            section_names.len() as u64,
            0,
            0,
            1,
            0,
        ],
    );
    out
}

/// A log with a stack through each of those places of the program.
fn log_of(folder: &Path, functions: &[(u64, u64)], places: impl Iterator<Item = u64>) -> Files {
    let path = write(folder, "server", &program(functions))?;
    let mut log = Builder::new();
    let mut server = module(0, path.display().to_string(), BIAS, 1 << 40);
    server.build_id.clear();
    log.module(server);
    for (stack, at) in (0..).zip(places) {
        log.stack(stack, vec![0x100, BIAS + CODE + at + 1]);
        log.alloc(0, stack, 16);
    }
    alone(log, folder)
}

pub(crate) fn symbols(count: u64, folder: &Path) -> Files {
    let functions: Vec<_> = (0..count).map(|i| (i * 16, 16)).collect();
    log_of(folder, &functions, (0..count).map(|i| i * 16))
}

pub(crate) fn nested(count: u64, folder: &Path) -> Files {
    let functions: Vec<_> = (0..count)
        .map(|i| (i * 16, (2 * count - 2 * i) * 16))
        .collect();
    log_of(folder, &functions, (0..count).map(|i| i * 32))
}

/// The program is below a root, if there is one: `--sysroot`.
pub(crate) fn offsets(count: u64, folder: &Path) -> Files {
    let mut log = Builder::new();
    let mut server = module(0, "/srv/server".into(), BIAS, 1 << 40);
    server.build_id.clear();
    log.module(server);
    for i in 0..count {
        log.stack(i as u32, vec![0x100, BIAS + i * 7 + 1]);
        log.alloc(0, i as u32, 16);
    }
    alone(log, folder)
}

/// A bundle is a tar file, whose first member is the log.
pub(crate) fn members(count: u64, folder: &Path) -> Files {
    let file = program(&[(0, 16)]);
    let mut log = Builder::new();
    let mut bundle = tar::Builder::new(Vec::new());
    let add = |bundle: &mut tar::Builder<Vec<u8>>, name: &str, data: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        bundle.append_data(&mut header, name, data)
    };
    for i in 0..count {
        let at = BIAS + (i << 24);
        let mut one = module(i as u32, format!("/srv/lib{i}.so"), at, 1 << 20);
        one.build_id.clear();
        log.module(one);
        log.stack(i as u32, vec![0x100, at + CODE + 1]);
        log.alloc(0, i as u32, 16);
    }
    add(&mut bundle, "input.heaplog", &log.end())?;
    for i in 0..count {
        add(&mut bundle, &format!("srv/lib{i}.so"), &file)?;
    }
    Ok(vec![write(folder, "input.tar", &bundle.into_inner()?)?])
}
