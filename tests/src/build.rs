//! Build: the library, the program and the fixtures under test.
//!
//! `HEAPPROF_TARGET_DIR` names the folder with `libheapprof.so` and `heapprof`; without it, the
//! folder is `target/release` of the repository. The library for programs of musl is in `musl`
//! beside that folder (`scripts/build-musl`). With `HEAPPROF_TEST_LIBC=musl` all fixtures are
//! programs of musl (`scripts/musl-suites`).

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// See the module's text.
#[derive(Debug)]
pub struct Build {
    /// `libheapprof.so`, for programs of glibc.
    library: PathBuf,
    /// `libheapprof.so`, for programs of musl.
    musl_library: PathBuf,
    /// The `heapprof` program.
    pub heapprof: PathBuf,
    /// Folder of the fixtures.
    pub fixtures: PathBuf,
}

/// Returns true if the fixtures are programs of musl.
pub fn is_over_musl() -> bool {
    std::env::var_os("HEAPPROF_TEST_LIBC").is_some_and(|libc| libc == "musl")
}

/// Returns true if this system's C library is glibc, and older than that version.
///
/// # Panics
/// If `getconf` does not tell the version of a glibc.
pub fn is_glibc_before(major: u32, minor: u32) -> bool {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let Ok(output) = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    else {
        return false;
    };
    let Some(version) = output.trim().strip_prefix("glibc ") else {
        return false;
    };
    let mut parts = version
        .split('.')
        .map(|part| part.parse().expect("a number"));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part()) < (major, minor)
}

/// Returns the setting of the library that all runs have (`HEAPPROF_TEST_WITH=NAME=VALUE`).
pub(crate) fn setting_of_all_runs() -> Option<(String, String)> {
    let setting = std::env::var("HEAPPROF_TEST_WITH").ok();
    let setting = setting.filter(|setting| !setting.is_empty())?;
    let (name, value) = setting.split_once('=').expect("a name and a value");
    Some((name.to_owned(), value.to_owned()))
}

/// Returns true if an ELF file names musl's loader, or is linked with musl.
fn is_of_musl(file: &Path) -> bool {
    let bytes = fs::read(file).unwrap_or_default();
    let has = |words: &[u8]| bytes.windows(words.len()).any(|part| part == words);
    bytes.starts_with(b"\x7fELF") && has(b"/lib/ld-musl-") && !has(b"/lib64/ld-linux-")
}

/// Returns the repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
}

impl Build {
    /// Returns the build under test.
    ///
    /// # Panics
    /// If there is none, or the fixtures cannot be built.
    pub fn get() -> &'static Build {
        static BUILD: OnceLock<Build> = OnceLock::new();
        BUILD.get_or_init(Build::find)
    }

    /// Returns the path of a fixture.
    ///
    /// # Panics
    /// If there is no fixture of that name.
    pub fn fixture(&self, name: &str) -> PathBuf {
        let path = self.fixtures.join(name);
        assert!(path.exists(), "there is no fixture {name} in c-fixtures/");
        path
    }

    /// Returns the library for that program.
    pub fn library_for(&self, program: &Path) -> &Path {
        match is_of_musl(program) {
            true => &self.musl_library,
            false => &self.library,
        }
    }

    /// Returns the library for the fixtures.
    pub fn library(&self) -> &Path {
        match is_over_musl() {
            true => &self.musl_library,
            false => &self.library,
        }
    }

    /// Returns the path of a fixture that is a program of musl.
    ///
    /// # Panics
    /// If there is no fixture of that name, no library for it, or the fixtures cannot be built.
    pub fn fixture_over_musl(&self, name: &str) -> PathBuf {
        static FOLDER: OnceLock<PathBuf> = OnceLock::new();
        assert!(
            self.musl_library.is_file(),
            "{} is missing: run scripts/build-musl",
            self.musl_library.display()
        );
        let fixtures = FOLDER.get_or_init(|| {
            let folder = repository().join("target/fixtures-musl");
            make_fixtures(&folder, &["LIBC=musl"]);
            folder
        });
        let path = fixtures.join(name);
        assert!(path.exists(), "there is no fixture {name} over musl");
        path
    }

    fn find() -> Build {
        let release = std::env::var_os("HEAPPROF_TARGET_DIR")
            .map_or_else(|| repository().join("target/release"), PathBuf::from);
        let library = release.join("libheapprof.so");
        let heapprof = release.join("heapprof");
        for file in [&library, &heapprof] {
            assert!(
                file.is_file(),
                "{} is missing: run `cargo build --release && make -C c-fixtures`",
                file.display()
            );
        }
        let (fixtures, over) = match is_over_musl() {
            true => ("target/fixtures-musl", &["LIBC=musl"][..]),
            false => ("target/fixtures", &[][..]),
        };
        let fixtures = repository().join(fixtures);
        make_fixtures(&fixtures, over);
        Build {
            library,
            musl_library: release.join("../musl/libheapprof.so"),
            heapprof,
            fixtures,
        }
    }
}

/// Makes the fixtures. Several test programs may start at once: one builds, and the others wait.
fn make_fixtures(out: &Path, over: &[&str]) {
    fs::create_dir_all(out).expect("target/ is writable");
    let lock = File::create(out.join(".lock")).expect("target/fixtures/ is writable");
    // SAFETY: the descriptor is this function's; the lock ends with it.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "cannot lock {}", out.display());
    let made = Command::new("make")
        .arg("--silent")
        .arg("-C")
        .arg(repository().join("c-fixtures"))
        .arg(format!("OUT={}", out.display()))
        .args(over)
        .output()
        .expect("make runs (scripts/install-deps installs it)");
    assert!(
        made.status.success(),
        "make -C c-fixtures failed:\n{}{}",
        String::from_utf8_lossy(&made.stdout),
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Compiles a C program.
pub(crate) fn c_program(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (c, out) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&c, source).expect("the folder is writable");
    // musl's compiler: see c-fixtures/Makefile.
    let (compiler, over): (&str, &[&str]) = match is_over_musl() {
        true => (
            "musl-gcc",
            &[
                "-Wl,--eh-frame-hdr",
                "-idirafter",
                "/usr/include",
                "-idirafter",
                "/usr/include/x86_64-linux-gnu",
            ],
        ),
        false => ("gcc", &[]),
    };
    let compiled = Command::new(compiler)
        .args(over)
        .args(["-std=gnu11", "-g", "-O1", "-fno-builtin", "-Wall", "-o"])
        .arg(&out)
        .arg(&c)
        .args(flags)
        .arg("-ldl") // a library of its own before glibc 2.34, and an empty one in musl
        .output()
        .expect("gcc runs (scripts/install-deps installs it)");
    assert!(
        compiled.status.success(),
        "gcc {name}.c failed:\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    out
}
