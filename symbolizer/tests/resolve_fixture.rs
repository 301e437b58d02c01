//! Programs for the tests of `resolve`: compiled into a folder of their own, with addresses that
//! are known.
//!
//! Where the compiler put a place is asked of `nm` and `objdump`, never of the code under test.

use heapprof_symbolizer::resolve::{ModuleRef, ModuleSymbols, SearchPath, resolve_module};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A C program in which `leaf` and `middle` are inlined into `outer`, across two lines each.
pub(crate) const C_INLINES: &str = "\
extern int sink(int);
static inline __attribute__((always_inline)) int leaf(int x) {
    return sink(x * 3) + 1;
}
static inline __attribute__((always_inline)) int middle(int x) {
    return leaf(x) * 2 + 1;
}
__attribute__((noinline, noclone)) int outer(int x) {
    return middle(x) + 5;
}
__attribute__((noinline, noclone)) int sink(int x) {
    __asm__ volatile(\"\" : \"+r\"(x));
    return x;
}
int main(int argc, char **argv) {
    (void)argv;
    return outer(argc) == 0;
}
";

/// The same in C++: a namespace, a template, a lambda and a local class.
pub(crate) const CPP_INLINES: &str = "\
namespace ns {
int sink(int);
struct Shape {
    int area;
    template <typename T> inline __attribute__((always_inline)) int scaled(T by) {
        return sink(area * static_cast<int>(by)) + 1;
    }
};
__attribute__((noinline)) int draw(Shape &shape, long by) {
    return shape.scaled<long>(by) + 5;
}
__attribute__((noinline)) int sink(int x) {
    __asm__ volatile(\"\" : \"+r\"(x));
    return x;
}
}
int main(int argc, char **) {
    ns::Shape shape{argc};
    auto twice = [&](int by) __attribute__((noinline)) {
        return ns::draw(shape, by) * 2;
    };
    return twice(argc) == 0;
}
";

/// And in Rust.
pub(crate) const RUST_INLINES: &str = "\
mod ns {
    #[inline(never)]
    pub(crate) fn sink(x: i32) -> i32 {
        std::hint::black_box(x)
    }
    #[inline(always)]
    fn leaf<T: Into<i32>>(x: T) -> i32 {
        sink(x.into()).wrapping_add(1)
    }
    #[inline(never)]
    pub(crate) fn outer(x: i32) -> i32 {
        leaf(x).wrapping_mul(5)
    }
}
fn main() {
    let args = std::env::args().count() as i32;
    std::process::exit(i32::from(ns::outer(args) == 0));
}
";

/// A folder that is removed when the test ends, with helpers to build in it.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
}

/// A frame in one line: `function file:line`, the file without its folder, `(inlined)` in front
/// where it is.
pub(crate) fn lines(symbols: &ModuleSymbols, svma: u64) -> Vec<String> {
    let frames = symbols.frames_of(svma).iter();
    frames
        .map(|frame| {
            let inlined = if frame.inlined { "(inlined) " } else { "" };
            let function = frame.function.as_ref().map_or("?", |name| name.demangled());
            let file = frame
                .file
                .as_deref()
                .map_or("?", |file| file.rsplit('/').next().unwrap_or(file));
            format!("{inlined}{function} {file}:{}", frame.line.unwrap_or(0))
        })
        .collect()
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Fixture {
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Runs a program in the folder; panics if it fails.
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        // rustc no longer lets a stable program choose the legacy mangling, but old binaries have
        // it.
        let output = Command::new(program)
            .args(args)
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(self.dir.path())
            .output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(
            output.status.success(),
            "{program} {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Compiles `text` (its language told by the name) to `program`.
    pub(crate) fn compile(&self, name: &str, text: &str, flags: &[&str]) -> PathBuf {
        self.write(name, text);
        let compiler = match name.rsplit('.').next() {
            Some("c") => "gcc",
            Some("cc") => "g++",
            _ => "rustc",
        };
        let always: &[&str] = if compiler == "rustc" {
            &["-o", "program"]
        } else {
            &["-O2", "-Wl,--build-id", "-o", "program"]
        };
        self.run(compiler, &[&[name], always, flags].concat());
        self.path("program")
    }

    /// Puts `text`, in assembly, together to `program`; where its `main` is, and what is said of
    /// that address.
    pub(crate) fn assemble(&self, text: String) -> (u64, ModuleSymbols) {
        self.write("program.s", text);
        self.run("gcc", &["-Wl,--build-id", "-o", "program", "program.s"]);
        let main = self.address_of("program", "main");
        (main, self.resolve(main))
    }

    /// `program` of [`C_INLINES`] without symbols that are not dynamic, its debug information in
    /// the file `detached`.
    pub(crate) fn stripped(detached: &str) -> Fixture {
        let fixture = Fixture::new();
        fixture.compile("program.c", C_INLINES, &["-g", "-rdynamic"]);
        fixture.run("objcopy", &["--only-keep-debug", "program", detached]);
        fixture.run("objcopy", &["--strip-all", "program"]);
        fixture
    }

    /// The address of a symbol, as `nm` has it. The name is matched whole, or as the part of a
    /// mangled one.
    pub(crate) fn address_of(&self, file: &str, symbol: &str) -> u64 {
        let table = self.run("nm", &[file]);
        let mut rows = table.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.next()?, fields.next()?))
        });
        let found = rows.find(|(_, kind, name)| {
            matches!(*kind, "t" | "T")
                && (*name == symbol || (name.starts_with('_') && name.contains(symbol)))
        });
        let (address, ..) = found.unwrap_or_else(|| panic!("{symbol} in {table}"));
        u64::from_str_radix(address, 16).expect("an address")
    }

    /// The address of the one call to `callee` in `caller`, as `objdump` has it.
    pub(crate) fn call_site(&self, file: &str, caller: &str, callee: &str) -> u64 {
        let listing = self.run("objdump", &["-d", "--no-show-raw-insn", file]);
        let mut inside = false;
        for line in listing.lines() {
            if line.ends_with(">:") {
                inside = line.contains(caller);
            } else if inside
                && (line.contains("call") || line.contains("jmp"))
                && line.contains(callee)
            {
                let address = line.trim().split(':').next().expect("an address");
                return u64::from_str_radix(address, 16).expect("an address");
            }
        }
        panic!("no call of {callee} in {caller}: {listing}");
    }

    /// The build-id, as `readelf` has it.
    pub(crate) fn build_id(&self, file: &str) -> Vec<u8> {
        let notes = self.run("readelf", &["-n", file]);
        let hex = notes
            .split("Build ID: ")
            .nth(1)
            .expect("a build-id")
            .split_whitespace()
            .next()
            .expect("a word");
        (0..hex.len() / 2)
            .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    }

    /// A search path that sees nothing of this machine.
    pub(crate) fn search(&self) -> SearchPath {
        SearchPath {
            debug_dirs: vec![self.path("debug")],
            ..SearchPath::default()
        }
    }

    /// Resolves one address of `program`, its build-id recorded rightly.
    pub(crate) fn resolve(&self, svma: u64) -> ModuleSymbols {
        let id = self.build_id("program");
        self.resolve_as(&self.path("program"), Some(&id), &[svma])
    }

    pub(crate) fn resolve_as(
        &self,
        path: &Path,
        build_id: Option<&[u8]>,
        svmas: &[u64],
    ) -> ModuleSymbols {
        resolve_module(&ModuleRef { path, build_id }, svmas, &self.search())
    }
}

/// The path of a program of this machine, if it is installed.
pub(crate) fn installed(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}
