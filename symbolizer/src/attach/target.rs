//! Target: what a process is, and whether heapprof can be attached to it.

use std::fs;
use std::io::Read as _;

use heapprof_format::{ATTACH_BLOCK_SYMBOL, ATTACH_LIBRARY, ATTACH_SYMBOL};

use super::arch::program;
use super::memory::Memory;
use super::modules::{self, Function, Module};

/// File name of the library that is preloaded.
const PRELOADED: &str = "libheapprof.so";
const LIBC: &str = "libc.so.6";

/// The functions of libc that the borrowed code calls.
pub(super) struct Functions {
    pub(super) pthread_create: u64,
    pub(super) pthread_self: u64,
    pub(super) pthread_detach: u64,
    pub(super) errno_location: u64,
    pub(super) dlopen: u64,
    pub(super) dlsym: u64,
    pub(super) dlerror: u64,
}

/// Our library in the process.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    /// The address of the function that the carrier enters.
    pub(super) enter: u64,
    /// The address of the block.
    pub(super) block: u64,
    /// The addresses of its code.
    pub(super) code: Vec<std::ops::Range<u64>>,
}

/// See the module's text.
pub(super) struct Target {
    pub(super) memory: Memory,
    pub(super) modules: Vec<Module>,
    pub(super) libc: usize,
    /// Modules with an allocator that takes the place of libc's.
    pub(super) allocators: Vec<usize>,
    pub(super) functions: Functions,
}

/// The library of heapprof that the process has.
#[derive(Debug, Clone)]
pub(super) enum Presence {
    Nothing,
    Preloaded,
    /// Mostly one. A second one comes if a program is killed while it attaches.
    Loaded(Vec<Loaded>),
}

/// Reads a line of the process's status.
pub(super) fn status_of(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Refuses what is no process to attach to, before its memory is looked at.
fn check_status(pid: u32) -> Result<(), String> {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return Err("there is no such process".into());
    };
    let of = |name| status_of(&status, name);
    if of("Tgid:") != pid.to_string() {
        return Err(format!(
            "that is a thread of process {}, which is the one to name",
            of("Tgid:")
        ));
    }
    if pid == std::process::id() {
        return Err("that is this program".into());
    }
    match of("State:").chars().next() {
        Some('Z' | 'X')
            if fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|it| it.count() <= 1) =>
        {
            return Err("it has ended".into());
        }
        Some('T') => {
            return Err(format!(
                "it is stopped by a signal; continue it first: kill -CONT {pid}"
            ));
        }
        _ => {}
    }
    match tracer_of(&status) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Says which other process traces it.
fn tracer_of(status: &str) -> Option<String> {
    let tracer = status_of(status, "TracerPid:");
    let is_other = !["", "0"].contains(&&tracer[..]) && tracer != std::process::id().to_string();
    is_other.then(|| {
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        format!(
            "process {tracer} ({}) traces it, and only one can; end that first",
            name.trim_end()
        )
    })
}

/// Says why the kernel does not permit it, and the way out.
pub(super) fn why_not_permitted(pid: u32) -> String {
    let user = |path: String| {
        let status = fs::read_to_string(path).unwrap_or_default();
        let ids = status_of(&status, "Uid:");
        ids.split_ascii_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let (its, ours) = (
        user(format!("/proc/{pid}/status")),
        user("/proc/self/status".into()),
    );
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    if let Some(why) = tracer_of(&status) {
        return why;
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match (ours == its, yama.trim()) {
        (false, _) if ours != "0" => format!(
            "not permitted: it belongs to user {its}; become that user or root (sudo heapprof attach {pid})"
        ),
        (_, "3") => "not permitted: this system forbids tracing until it is started again \
             (kernel.yama.ptrace_scope=3)"
            .into(),
        (_, "1" | "2") if ours != "0" => format!(
            "not permitted: only root may trace here (kernel.yama.ptrace_scope={}); \
             sudo heapprof attach {pid}, or sudo sysctl kernel.yama.ptrace_scope=0",
            yama.trim()
        ),
        _ => "not permitted: this process lacks CAP_SYS_PTRACE (in a container: --cap-add=SYS_PTRACE), \
             or the program has forbidden it (prctl PR_SET_DUMPABLE), or it is in another user namespace"
            .into(),
    }
}

/// Refuses a program of another processor or word size.
fn check_program(pid: u32) -> Result<(), String> {
    let mut head = [0; program::HEAD];
    let read =
        fs::File::open(format!("/proc/{pid}/exe")).and_then(|mut exe| exe.read_exact(&mut head));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(why_not_permitted(pid))
        }
        Err(error) => Err(format!(
            "cannot read its program: {error}; is it a kernel thread?"
        )),
        Ok(()) if program::is_supported(&head) => Ok(()),
        Ok(()) => Err(format!("it is not a {} program", program::KIND)),
    }
}

/// Refuses a processor that cannot store its extended state, as borrowed code does.
fn check_processor() -> Result<(), String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    match program::missing_instruction(&text) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "this processor (or virtual machine) has no instruction {missing}; start it by heapprof run"
        )),
    }
}

/// Why a program of an old glibc is refused: `dlopen` is in a library of its own there.
const OLD_GLIBC: &str = "its glibc is older than 2.34; start it by heapprof run";

/// Functions of runtimes that are the allocator of a program and see each of its accesses.
const SANITIZERS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
];

impl Target {
    /// Looks at a process, which goes on meanwhile.
    ///
    /// # Errors
    /// In words: why heapprof cannot be attached.
    pub(super) fn of(pid: u32) -> Result<Target, String> {
        check_status(pid)?;
        check_program(pid)?;
        check_processor()?;
        let denied = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => why_not_permitted(pid),
            _ => format!("cannot read its memory: {error}"),
        };
        let memory = Memory::open(pid).map_err(denied)?;
        let map = modules::mappings(pid).map_err(denied)?;
        let modules = modules::modules(&memory, &map);
        let has = |name: &str| modules.iter().any(|module| module.file().starts_with(name));
        // Debian's loader of musl is a link to its `libc.so`, in a folder of that name.
        let of_musl = |module: &Module| {
            has("ld-musl") || has("libc.musl") || module.path.contains("linux-musl/")
        };
        if modules.iter().any(of_musl) {
            return Err(
                "it is a program of musl, and only programs of glibc can be attached to; start it by \
                 heapprof run"
                    .into(),
            );
        }
        let libc = modules.iter().position(|module| module.file() == LIBC);
        let has_loader = has(program::LOADER);
        let Some(libc) = libc.filter(|_| has_loader) else {
            // Files of an older glibc have its version in their names.
            let why = if has("ld-2.") || has("libc-2.") {
                OLD_GLIBC
            } else if has_loader {
                "its C library is not loaded yet, or is not glibc; try again when it runs"
            } else {
                "it is linked statically, or with a C library that is not glibc, so no library can \
                 be loaded into it; link it dynamically"
            };
            return Err(why.into());
        };
        let symbols = modules[libc].symbols(&memory, false);
        let functions = Functions::among(&symbols).ok_or(OLD_GLIBC)?;
        let mut sanitizer = None;
        let mut is_allocator = |(number, module): (usize, &Module)| {
            if number == libc
                || module.file().starts_with("ld-linux")
                || module.file().starts_with("libheapprof")
            {
                return None;
            }
            let symbols = module.symbols(&memory, false);
            let has = |name: &str| symbols.iter().any(|symbol| symbol.name == name);
            sanitizer = sanitizer.or(SANITIZERS.iter().find(|(function, _)| has(function)));
            (has("malloc") && has("free")).then_some(number)
        };
        let allocators: Vec<_> = modules
            .iter()
            .enumerate()
            .filter_map(&mut is_allocator)
            .collect();
        if let Some((_, name)) = sanitizer {
            return Err(format!(
                "it is built with {name}, which is its allocator; attach to a build without it"
            ));
        }
        Ok(Target {
            memory,
            modules,
            libc,
            allocators,
            functions,
        })
    }

    /// Returns what the process has of heapprof.
    pub(super) fn presence(&self) -> Presence {
        let mut found = Vec::new();
        for module in &self.modules {
            if module.file() == PRELOADED {
                return Presence::Preloaded;
            }
            if module.file() == ATTACH_LIBRARY {
                let symbols = module.symbols(&self.memory, true);
                let address = |name: &str| {
                    let mut named = symbols.iter().filter(|symbol| symbol.name == name);
                    named.next().map(|symbol| symbol.code.start)
                };
                if let (Some(enter), Some(block)) =
                    (address(ATTACH_SYMBOL), address(ATTACH_BLOCK_SYMBOL))
                {
                    found.push(Loaded {
                        enter,
                        block,
                        code: module.code.clone(),
                    });
                }
            }
        }
        match found.is_empty() {
            true => Presence::Nothing,
            false => Presence::Loaded(found),
        }
    }
}

impl Functions {
    fn among(symbols: &[Function]) -> Option<Functions> {
        let address = |name: &str| {
            let mut named = symbols.iter().filter(|symbol| symbol.name == name);
            // The default version is not told apart: of two versions, the newer one comes last.
            named.next_back().map(|symbol| symbol.code.start)
        };
        Some(Functions {
            pthread_create: address("pthread_create")?,
            pthread_self: address("pthread_self")?,
            pthread_detach: address("pthread_detach")?,
            errno_location: address("__errno_location")?,
            dlopen: address("dlopen")?,
            dlsym: address("dlsym")?,
            dlerror: address("dlerror")?,
        })
    }
}
