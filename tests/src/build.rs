//! A build: the library, the program and the fixtures that are tested.
//!
//! `HEAPPROF_TARGET_DIR` names the folder with `libheapprof.so` and `heapprof`; without it,
//! `target/release` of the repository.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// See the module's text.
#[derive(Debug)]
pub struct Build {
    /// `libheapprof.so`.
    pub library: PathBuf,
    /// The `heapprof` program.
    pub heapprof: PathBuf,
    /// Folder of the fixtures.
    pub fixtures: PathBuf,
}

/// The repository's root.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the repository")
}

impl Build {
    /// The one that is tested.
    ///
    /// # Panics
    /// When there is none, or the fixtures cannot be built.
    pub fn get() -> &'static Build {
        static BUILD: OnceLock<Build> = OnceLock::new();
        BUILD.get_or_init(Build::find)
    }

    /// The path of a fixture.
    ///
    /// # Panics
    /// When there is no fixture of that name.
    pub fn fixture(&self, name: &str) -> PathBuf {
        let path = self.fixtures.join(name);
        assert!(path.exists(), "there is no fixture {name} in c-fixtures/");
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
        let fixtures = repository().join("target/fixtures");
        make_fixtures(&fixtures);
        Build {
            library,
            heapprof,
            fixtures,
        }
    }
}

/// Several test programs may start at once: one of them builds, the others wait.
fn make_fixtures(out: &Path) {
    fs::create_dir_all(out).expect("target/ is writable");
    let lock = File::create(out.join(".lock")).expect("target/fixtures/ is writable");
    // SAFETY: a descriptor of ours; the lock goes with it.
    let locked = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(locked, 0, "cannot lock {}", out.display());
    let made = Command::new("make")
        .arg("--silent")
        .arg("-C")
        .arg(repository().join("c-fixtures"))
        .arg(format!("OUT={}", out.display()))
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
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-g", "-O1", "-fno-builtin", "-Wall", "-o"])
        .arg(&out)
        .arg(&c)
        .args(flags)
        .arg("-ldl") // a library of its own before glibc 2.34
        .output()
        .expect("gcc runs (scripts/install-deps installs it)");
    assert!(
        compiled.status.success(),
        "gcc {name}.c failed:\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    out
}
