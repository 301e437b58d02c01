//! Program: an executable, found as a shell finds it.
//!
//! It is searched for reasons why a preloaded library would not see its allocations.

use std::ffi::{CString, OsStr};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::RegularFile;
use memmap2::Mmap;
use object::elf::{EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};

/// Why a program was not found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("no such program")]
    Missing,
    #[error("is a folder")]
    Folder,
    #[error("is not executable")]
    NotExecutable,
}

impl NotFound {
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, NotFound::Missing)
    }
}

/// The file that `name` means: a path when it holds a slash, else the first in PATH.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, NotFound> {
    if name.as_bytes().contains(&b'/') {
        return executable(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut failure = NotFound::Missing;
    for folder in std::env::split_paths(&path) {
        let candidate = folder.join(name);
        match executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(NotFound::NotExecutable) => failure = NotFound::NotExecutable,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn executable(path: &Path) -> Result<(), NotFound> {
    let meta = fs::metadata(path).map_err(|_| NotFound::Missing)?;
    match () {
        () if meta.is_dir() => Err(NotFound::Folder),
        () if meta.permissions().mode() & 0o111 == 0 => Err(NotFound::NotExecutable),
        () => Ok(()),
    }
}

/// The C library that a program is linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Libc {
    Glibc,
    Musl,
}

impl Libc {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Libc::Glibc => "glibc",
            Libc::Musl => "musl",
        }
    }
}

/// An executable, and what was found inside.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    libc: Libc,
    loader: Option<PathBuf>,
    obstacle: Option<&'static str>,
    own_allocator: Option<String>,
    stripped_allocator: Option<&'static str>,
}

impl Program {
    /// Looks into the file, and for a script into its interpreter. The kernel judges what cannot be
    /// read.
    pub(crate) fn inspect(path: &Path) -> Program {
        let mut path = path.to_owned();
        // A script's interpreter may itself be a script; the kernel follows four.
        for _ in 0..4 {
            match interpreter(&path) {
                Some(next) => path = next,
                None => break,
            }
        }
        let mut program = Program {
            path,
            libc: Libc::Glibc,
            loader: None,
            obstacle: None,
            own_allocator: None,
            stripped_allocator: None,
        };
        if gains_privileges(&program.path) {
            program.obstacle = Some(
                "it gains privileges when started (setuid, setgid or file capabilities), and the \
                 loader then ignores LD_PRELOAD; run it as that user, or a copy without those bits",
            );
        } else if let Ok(map) = map(&program.path) {
            program.look_into(&map);
        }
        program
    }

    /// The file that will run: for a script, its interpreter.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the libc that its loader belongs to.
    pub(crate) fn libc(&self) -> Libc {
        self.libc
    }

    /// Its loader; `None`: it is a loader itself, or has none.
    pub(crate) fn loader(&self) -> Option<&Path> {
        self.loader.as_deref()
    }

    /// Why nothing of it could be seen.
    pub(crate) fn obstacle(&self) -> Option<&'static str> {
        self.obstacle
    }

    /// The symbol that gives away an allocator inside the program.
    pub(crate) fn own_allocator(&self) -> Option<&str> {
        self.own_allocator.as_deref()
    }

    /// The name of an allocator that seems to be inside of a program without symbols.
    pub(crate) fn stripped_allocator(&self) -> Option<&'static str> {
        self.stripped_allocator
    }

    fn look_into(&mut self, bytes: &[u8]) {
        const FOREIGN: &str = "it is not a 64-bit x86 program, and libheapprof.so is one";
        if !bytes.starts_with(b"\x7fELF") {
            return;
        }
        if bytes.get(4) != Some(&2) {
            self.obstacle = Some(FOREIGN);
            return;
        }
        let Ok(file) = ElfFile::<FileHeader64<Endianness>>::parse(bytes) else {
            return;
        };
        let endian = file.endian();
        if file.elf_header().e_machine(endian) != EM_X86_64 {
            self.obstacle = Some(FOREIGN);
            return;
        }
        let interpreter = file
            .elf_program_headers()
            .iter()
            .find(|header| header.p_type(endian) == PT_INTERP)
            .and_then(|header| header.data(endian, bytes).ok());
        let of_musl = |loader: &&[u8]| loader.windows(7).any(|part| part == b"ld-musl");
        if interpreter.filter(of_musl).is_some() || defines(&file, "_dl_debug_addr") {
            self.libc = Libc::Musl;
        }
        let path = interpreter.and_then(|path| path.split(|&byte| byte == 0).next());
        self.loader = path.map(|path| PathBuf::from(OsStr::from_bytes(path)));
        match interpreter {
            // A loader loads the program that it is told to run, and the preloaded libraries.
            None if is_loader(&file) => {}
            None => {
                self.obstacle = Some(
                    "it is a static executable, into which nothing can be preloaded; link it \
                     dynamically (without -static, or for Rust with a -gnu target or -C target-feature=-crt-static)",
                );
            }
            Some(_) if is_sanitized(&file) => {
                self.obstacle = Some(
                    "it is built with a sanitizer, whose runtime has to be the allocator and ends the \
                     program or crashes under another; profile a build without -fsanitize",
                );
            }
            Some(_) => {
                self.own_allocator = own_allocator(&file);
                self.stripped_allocator = heapprof_symbolizer::resolve::stripped_allocator(&file);
            }
        }
    }
}

/// Returns true if a function of that name is an allocator's. `malloc` itself counts, too: the
/// program's own definition comes before a preloaded one, and for every library if it is exported.
fn is_of_an_allocator(name: &str) -> bool {
    name == "malloc" || heapprof_symbolizer::resolve::is_of_an_allocator(name)
}

/// Returns true if the program calls the runtime of AddressSanitizer, ThreadSanitizer or
/// MemorySanitizer, or holds it.
fn is_sanitized(file: &ElfFile<'_, FileHeader64<Endianness>>) -> bool {
    let runtimes = ["__asan_init", "__tsan_init", "__msan_init"];
    file.dynamic_symbols()
        .filter_map(|symbol| symbol.name().ok())
        .any(|name| runtimes.contains(&name))
}

/// Returns true if it is a loader, glibc's or musl's, run as a program.
fn is_loader(file: &ElfFile<'_, FileHeader64<Endianness>>) -> bool {
    defines(file, "_rtld_global") || defines(file, "_dl_debug_addr")
}

fn defines(file: &ElfFile<'_, FileHeader64<Endianness>>, name: &str) -> bool {
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .any(|symbol| symbol.name() == Ok(name))
}

fn own_allocator(file: &ElfFile<'_, FileHeader64<Endianness>>) -> Option<String> {
    file.dynamic_symbols()
        .chain(file.symbols())
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok())
        .find(|name| is_of_an_allocator(name))
        .map(String::from)
}

fn map(path: &Path) -> io::Result<Mmap> {
    RegularFile::open(path)?.map()
}

/// The program that the kernel runs for a script: `#!/path args`, and for `env` what it will find.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = RegularFile::open(path).ok()?;
    file.file().take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line
        .split(|b| b" \t\r".contains(b))
        .filter(|word| !word.is_empty());
    let first = Path::new(OsStr::from_bytes(words.next()?));
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first.to_owned());
    }
    let is_name = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    words
        .find(is_name)
        .and_then(|word| find(OsStr::from_bytes(word)).ok())
}

/// Returns true if the kernel will start it with other rights than ours: the loader then distrusts
/// us.
fn gains_privileges(path: &Path) -> bool {
    let Ok(meta) = fs::metadata(path) else {
        return false;
    };
    // SAFETY: these calls cannot fail and touch no memory.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let setuid = meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid;
    let setgid = meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid;
    setuid || setgid || (uid != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    let name = c"security.capability";
    // SAFETY: both are C strings; a null buffer of length 0 asks for the length only.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    len > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_ok());
        assert!(find(OsStr::new("/bin/sh")).is_ok());
        assert!(
            find(OsStr::new("no-such-program"))
                .unwrap_err()
                .is_missing()
        );
        assert!(
            find(OsStr::new("/no/such/program"))
                .unwrap_err()
                .is_missing()
        );
        assert!(matches!(
            find(OsStr::new("/etc/passwd")),
            Err(NotFound::NotExecutable)
        ));
        assert!(matches!(
            find(OsStr::new("/etc")),
            Err(NotFound::Missing) | Err(NotFound::Folder)
        ));
    }

    #[test]
    fn a_script_is_its_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        for (line, expected) in [
            ("#!/bin/sh\n", "/bin/sh"),
            ("#! /bin/sh -e\n", "/bin/sh"),
            ("#!/usr/bin/env -S A=b sh\n", "sh"),
        ] {
            fs::write(&script, line).unwrap();
            assert!(
                interpreter(&script)
                    .unwrap()
                    .ends_with(expected.trim_start_matches('/')),
                "{line}"
            );
        }
    }

    #[test]
    fn an_ordinary_program_has_no_obstacle() {
        let program = Program::inspect(Path::new("/bin/sh"));
        assert_eq!((program.obstacle(), program.own_allocator()), (None, None));
    }
}
