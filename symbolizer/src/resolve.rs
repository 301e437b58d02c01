//! Resolver: names for addresses, offline.
//!
//! You give a module as it was recorded in the profiled process ([`ModuleRef`]: a path and, if it
//! has one, a build-id) and addresses in it. You get frames with functions, files and lines
//! ([`ModuleSymbols`]), and a [`ModuleReport`]. The report says which files were used, which were
//! refused and why, and how the user can get missing ones. Nothing here fails: an unreadable module
//! gives no names and a reason.
//!
//! Addresses are *svmas*, the addresses stated in the ELF file (avma, the address in the process,
//! minus the load bias). They are resolved exactly as given: a caller with return addresses
//! subtracts 1 first.
//!
//! ```text
//!  ModuleRef ─> locate ─> files ─┬─> dwarf:  frames with inlines ─┬─> ModuleSymbols
//!                                └─> symtab: names for the rest  ─┘
//!
//!  locate: paths of candidates    files: opened and verified (build-id, CRC)
//!  kept: names from a file beside the log, where these say more
//! ```
//!
//! Where the speed comes from: the addresses of a module are known in advance and sorted. So one
//! thread reads each compilation unit once, front to back, and then forgets it. No table of
//! functions or lines is ever built (the addr2line crate, made for one question at a time, keeps
//! both).
//!
//! ```no_run
//! use heapprof_symbolizer::resolve::{ModuleRef, SearchPath, resolve_module};
//! use std::path::Path;
//!
//! let module = ModuleRef { path: Path::new("/usr/bin/server"), build_id: None };
//! let symbols = resolve_module(&module, &[0x1234], &SearchPath::default());
//! for frame in symbols.frames_of(0x1234) {
//!     let function = frame.function.as_ref().map_or("?", |name| name.demangled());
//!     println!("{function} {:?}:{:?}", frame.file, frame.line);
//! }
//! print!("{}", symbols.report);
//! ```
//!
//! Imports: `access`, `compressed`, `memory`, `regular_file`.
//!
//! Not here: which addresses a profile has (`naming::symbols`).

mod allocators;
pub(crate) mod archive;
mod completion;
mod constructor;
mod cpp_name;
mod debuginfod;
mod demangle;
mod dwarf;
mod elf;
mod error_text;
mod files;
mod frame;
mod kept;
mod known_modules;
mod length;
mod locate;
mod module;
mod module_symbols;
mod names;
pub(crate) mod perf_map;
mod plt;
mod report;
mod symtab;
mod usable;
mod vdso;

pub use allocators::{is_of_an_allocator, is_tapped, stripped_allocator};
pub use debuginfod::{Debuginfod, DebuginfodSettings, FetchAccount, Fetching};
pub use demangle::demangle;
pub(crate) use frame::MOST_INLINED;
pub use frame::{Frame, Name};
pub use kept::{KeptFile, KeptNames, ModuleKey, NamesError};
pub use known_modules::KnownModules;
pub(crate) use length::shortened;
pub use locate::{ModuleRef, SearchPath};
pub use module::{ModuleQuery, resolve_all, resolve_module};
pub use module_symbols::ModuleSymbols;
pub use perf_map::PerfMapReport;
pub use report::{BuildId, Identity, ModuleReport, Outcome, Quality, Reason, Role};
pub(crate) use usable::Usable;
