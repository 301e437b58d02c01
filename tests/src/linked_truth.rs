//! Linked truth: the fixture `truth`, linked statically with an allocator.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Build, Run, repository};

/// Further archives for [`Archive::all`]: `PREFIX=FILE`, separated by semicolons. The functions'
/// names begin with the prefix, which may be empty.
const VARIABLE: &str = "HEAPPROF_TEST_ARCHIVES";

/// An archive or object file with an allocator.
#[derive(Debug, Clone)]
pub struct Archive {
    /// A name that the linker finds, or a path.
    pub file: String,
    /// The prefix of the names of its functions.
    pub prefix: String,
}

/// The functions that the fixture calls.
const FUNCTIONS: [&str; 13] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "cfree",
    "free_sized",
    "free_aligned_sized",
];

/// Functions that not every archive has. libc's would be another allocator's.
const REST: &str = r#"
#include <malloc.h>
#include <stdlib.h>
#define WEAK __attribute__((weak))
WEAK void *pvalloc(size_t size) { return memalign(4096, (size + 4095) & ~(size_t)4095); }
WEAK void *valloc(size_t size) { return memalign(4096, size); }
WEAK void *reallocarray(void *block, size_t count, size_t size) { return realloc(block, count * size); }
WEAK void *memalign(size_t alignment, size_t size) { return aligned_alloc(alignment, size); }
WEAK void cfree(void *block) { free(block); }
WEAK void free_sized(void *block, size_t size) { free(block); }
WEAK void free_aligned_sized(void *block, size_t alignment, size_t size) { free(block); }
"#;

impl Archive {
    /// Returns the allocators of the distribution that can be linked statically, and those of the
    /// environment.
    ///
    /// # Panics
    /// If the variable is wrong.
    pub fn all() -> Vec<Archive> {
        let names = ["libjemalloc.a", "libtcmalloc_minimal.a"];
        let mut all = Vec::from(names.map(|file| Archive {
            file: format!("-l:{file}"),
            prefix: String::new(),
        }));
        let more = std::env::var(VARIABLE).unwrap_or_default();
        all.extend(more.split(';').filter(|it| !it.is_empty()).map(|it| {
            let (prefix, file) = it.split_once('=').expect("PREFIX=FILE");
            Archive {
                file: file.to_owned(),
                prefix: prefix.to_owned(),
            }
        }));
        all
    }

    /// The fixture `truth`, linked with this allocator.
    ///
    /// # Panics
    /// If the compiler refuses it.
    pub fn truth(&self) -> Run {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("rest.c"), REST).expect("a file");
        fs::write(path("prefixed.h"), self.header()).expect("a file");
        let object = |source: &str, flags: &[&str]| {
            let output = path(&format!("{source}.o"));
            let source = match source {
                "rest.c" => PathBuf::from(path(source)),
                source => repository().join("c-fixtures").join(source),
            };
            let run = Run::tool("gcc").args(["-O2", "-g", "-w", "-pthread", "-fPIC"]);
            let run = run.args([
                "-fno-optimize-sibling-calls",
                "-include",
                &path("prefixed.h"),
            ]);
            let source = source.display().to_string();
            let _ = run.args(flags).args([&source, "-o", &output]).run().well();
            output
        };
        let rest = object("rest.c", &["-c", "-fno-builtin"]);
        let truth = object("truth.c", &["-c"]);
        let plug_in = object("truth_plugin.c", &["-shared"]);
        // C++'s operators have no prefix.
        let cxx = Build::get().fixture("truth").with_file_name("truth_cxx.o");
        let cxx = cxx.display().to_string();
        let libraries = ["-rdynamic", &self.file, "-lm", "-lpthread", "-ldl"];
        let run = linked(&[&[rest.as_str(), &truth, &cxx], &libraries[..]].concat());
        let beside = run.folder().join("bin/truth_plugin.so");
        fs::copy(plug_in, beside).expect("a file");
        run
    }

    /// Returns the declarations of the functions under their names with the prefix.
    fn header(&self) -> String {
        let prefix = &self.prefix;
        if prefix.is_empty() {
            return String::new();
        }
        let mut header = String::from(
            "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <malloc.h>\n#include <stdlib.h>\n\
             #include <stdio.h>\n#include <string.h>\n",
        );
        for function in FUNCTIONS {
            let _ = writeln!(header, "#define {function} {prefix}{function}");
        }
        header.push_str(
            "void *malloc(size_t); void *calloc(size_t, size_t); void *realloc(void *, size_t);\n\
             void *reallocarray(void *, size_t, size_t); void free(void *); void cfree(void *);\n\
             int posix_memalign(void **, size_t, size_t); void *aligned_alloc(size_t, size_t);\n\
             void *memalign(size_t, size_t); void *valloc(size_t); void *pvalloc(size_t);\n\
             static inline void *found(void *handle, const char *name)\n{\n    char whole[64];\n",
        );
        let _ = writeln!(
            header,
            "    snprintf(whole, sizeof whole, \"%s%s\", strncmp(name, \"free_\", 5) ? \"\" : \"{prefix}\", name);",
        );
        header.push_str("    return dlsym(handle, whole);\n}\n#define dlsym found\n");
        header
    }
}

/// Returns a run of the program that g++ makes of these arguments, in the run's folder as
/// `bin/program`.
///
/// # Panics
/// If the compiler refuses it.
pub fn linked(arguments: &[&str]) -> Run {
    let made = Run::tool("g++");
    let made = made.args(arguments).args(["-o", "program"]).run().well();
    let run = Run::program("");
    let own = run.folder().join("bin");
    fs::create_dir(&own).expect("a fresh folder");
    let program: &Path = &own.join("program");
    fs::copy(made.folder().join("program"), program).expect("a program");
    run.with_program(program)
}
