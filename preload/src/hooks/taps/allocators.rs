//! Allocators of a module: found by the names of its functions, or named by the user.

use std::ffi::CStr;
use std::ops::Range;

use heapprof_format::SLACK_UNKNOWN;

use super::functions::{Family, flat_names, known_by};
use super::plan::{Functions, Take, TapRequest, plan};
use super::tapped_function::UsableSize;
use super::{TapOutcome, user_functions};
use crate::allocator;
use crate::os::elf_symbols::{self, ElfSymbols};
use crate::os::executable;
use crate::os::libc_trampolines;
use crate::os::link_map::Module;
use crate::os::sys::{File, MappedFile};

/// Prepares the taps of each allocator of a module, and hands them to `take`, with the range of the
/// module's code. Without `take`, each allocator counts as refused, and its outcome is its name.
pub(super) fn for_each_allocator(
    module: &Module,
    owns_malloc: bool,
    mut take: Option<&mut Take<'_>>,
    outcomes: &mut Vec<TapOutcome>,
) {
    let is_program = module.is_program();
    let path = if is_program {
        EXECUTABLE
    } else {
        module.path()
    };
    let path_bytes = path.to_bytes();
    if !path_bytes.contains(&b'/') {
        return; // the kernel's own, which has no file
    }
    // Libraries of the distribution have dynamic symbols only, and there are many. The loader's
    // hash table answers faster than a look at every symbol.
    let is_system = SYSTEM.iter().any(|folder| path_bytes.starts_with(folder));
    let has_signature = SIGNATURES
        .iter()
        .any(|name| module.function(name).is_some());
    let name = match is_program {
        true => String::from_utf8_lossy(&executable::path()).into_owned(),
        false => path.to_string_lossy().into_owned(),
    };
    let named: Vec<_> = user_functions::in_module(module).collect();
    // In a running process, the functions behind `malloc` are tapped as all others.
    let serves = cfg!(feature = "attach")
        && allocator::next_library().is_some_and(|library| library == module.path());
    let announces = [c"dlclose", c"_dl_debug_state"];
    let loads =
        cfg!(feature = "attach") && (announces.iter()).any(|name| module.function(name).is_some());
    let maps = cfg!(feature = "attach")
        && libc_trampolines::is_libc(module)
        && module.function(c"mmap").is_some();
    if is_system && !has_signature && named.is_empty() && !serves && !loads && !maps {
        return;
    }
    let owns_malloc = owns_malloc && is_program || serves;
    let file = File::open(path, libc::O_RDONLY, 0).ok();
    let Some(file) = file.and_then(|file| MappedFile::of(&file)) else {
        return;
    };
    let debug_file = match ElfSymbols::full(file.bytes()) {
        Some(_) => None,
        None => elf_symbols::debug_file(file.bytes()),
    };
    let debug_file = debug_file.as_ref().map_or(&[][..], MappedFile::bytes);
    // A stripped library may still export its allocator's functions, under any prefix.
    let dynamic = || ElfSymbols::dynamic(file.bytes());
    let full = ElfSymbols::full(file.bytes()).or_else(|| ElfSymbols::full(debug_file));
    let Some(symbols) = full.or_else(dynamic) else {
        return;
    };
    let Some(code) = elf_symbols::code_range(file.bytes()) else {
        return;
    };
    let code = module.address(code.start)..module.address(code.end);
    let mut tapped: Vec<u64> = Vec::new();
    let is_next = allocator::next_library().is_some_and(|library| library == module.path());
    let may_serve = allocator::next_library().is_some() && module.function(c"malloc").is_some();
    let calls_own_functions = is_next && calls_own_functions_of_next();
    let named = named.into_iter().map(Functions::Named);
    let mut known = allocators(&symbols, owns_malloc);
    if loads {
        known.push((Family::Loader, b""));
    }
    if maps {
        known.push((Family::Mappings, b""));
    }
    let known = known
        .into_iter()
        .map(|(family, prefix)| Functions::Known(family, prefix));
    // Under its usual names, jemalloc is known by a function that only jemalloc has.
    let is_another = (is_program || owns_malloc)
        && !symbols
            .functions()
            .any(|function| function.name == b"mallocx");
    for functions in named.chain(known) {
        let is_usual = matches!(functions, Functions::Known(Family::Usual, _));
        let name = format!("{} in {name}", functions.name(is_another));
        // jemalloc's own functions are never called from our hooks. Those of others are, also
        // through a library in front that passes calls of malloc on.
        let is_called_by_hooks = may_serve && !is_usual && !serves;
        let is_named = matches!(functions, Functions::Named(_));
        if is_next && is_called_by_hooks && !is_named && !calls_own_functions {
            continue; // each block is recorded at malloc
        }
        let is_allocator = !matches!(
            functions,
            Functions::Known(Family::Loader | Family::Mappings, _)
        );
        let Some(take) = &mut take else {
            if is_allocator {
                outcomes.push(TapOutcome::Refused(name));
            }
            continue;
        };
        let usable = usable_size(module, &code, &symbols, functions);
        let wanted = TapRequest {
            module,
            code: code.clone(),
            functions,
            has_usual_names: owns_malloc || is_program,
            flat_names: flat_names(module.file() == b"libc.so.6", &symbols),
            usable,
        };
        let planned = plan(&wanted, &symbols, &tapped).and_then(|planned| {
            if !planned.entries.is_empty() {
                take(&planned, &code)?;
            }
            Ok(planned.entries)
        });
        outcomes.push(match planned {
            Ok(entries) if entries.is_empty() => continue,
            Ok(entries) => {
                let number = entries.len();
                tapped.extend(entries);
                match functions {
                    Functions::Known(Family::Loader, _) => continue,
                    #[cfg(feature = "attach")]
                    Functions::Known(Family::Mappings, _) => {
                        outcomes.push(TapOutcome::TappedMappings);
                        continue;
                    }
                    _ => {}
                }
                let remark = match usable {
                    Some(_) => String::new(),
                    None => format!("; {SLACK_UNKNOWN}"),
                };
                let what = format!("{name} ({number} functions{remark})");
                match is_called_by_hooks {
                    true => TapOutcome::TappedNext(what),
                    false => TapOutcome::Tapped(what),
                }
            }
            Err(why) if is_usual => TapOutcome::RefusedMalloc(why),
            #[cfg(feature = "attach")]
            Err(why) if matches!(functions, Functions::Known(Family::Loader, _)) => {
                TapOutcome::RefusedLoader(format!("{name}: {why}"))
            }
            #[cfg(feature = "attach")]
            Err(why) if matches!(functions, Functions::Known(Family::Mappings, _)) => {
                TapOutcome::RefusedMappings(why)
            }
            Err(why) => TapOutcome::Refused(format!("{name}: {why}")),
        });
    }
}

/// Returns true if the program calls own functions of the allocator that serves it.
#[cfg(not(feature = "attach"))]
fn calls_own_functions_of_next() -> bool {
    allocator::own_call_into_next().is_some()
}

/// No hook calls an allocator: each is tapped at all functions.
#[cfg(feature = "attach")]
fn calls_own_functions_of_next() -> bool {
    false
}

/// Returns the allocator's function for the usable bytes of a block. A linker may have dropped it.
fn usable_size(
    module: &Module,
    code: &Range<u64>,
    symbols: &ElfSymbols<'_>,
    functions: Functions<'_>,
) -> Option<UsableSize> {
    let found = |is_wanted: &dyn Fn(&[u8]) -> bool| {
        let mut functions = symbols.functions();
        let function = functions.find(|it| it.size > 0 && is_wanted(it.name))?;
        let entry = module.address(function.value);
        code.contains(&entry).then_some(entry)
    };
    let entry = match functions {
        Functions::Known(family, prefix) => family
            .usable_size_names()
            .iter()
            .find_map(|&wanted| found(&|name| name.strip_prefix(prefix) == Some(wanted))),
        Functions::Named(named) => {
            let wanted = named.usable_size()?;
            found(&|name| name == wanted.as_bytes())
        }
    }?;
    // SAFETY: a function of that name has this type in each of the known allocators. For a function
    // that HEAPPROF_TAP names, the user vouches, as for the types of those that are tapped.
    Some(unsafe { std::mem::transmute::<usize, UsableSize>(entry as usize) })
}

/// Returns the allocators that the symbols tell of, with the prefixes of their functions.
fn allocators<'a>(symbols: &ElfSymbols<'a>, owns_malloc: bool) -> Vec<(Family, &'a [u8])> {
    let mut found = Vec::new();
    if owns_malloc {
        found.push((Family::Usual, &b""[..]));
    }
    for function in symbols.functions() {
        let known = known_by(function.name);
        found.extend(known.filter(|known| !found.contains(known)));
    }
    // One name may be a coincidence.
    found.retain(|&(family, prefix)| {
        let mut functions = symbols.functions();
        functions.any(|function| family.is_confirmed_by(function.name, prefix))
    });
    found
}

/// Folders of the distribution's libraries.
const SYSTEM: [&[u8]; 3] = [b"/lib/", b"/lib64/", b"/usr/lib/"];
/// Functions by which allocators in such libraries are known.
const SIGNATURES: [&CStr; 4] = [c"mallocx", c"mi_malloc", c"tc_malloc", c"sn_rust_alloc"];

/// The program's file.
const EXECUTABLE: &CStr = c"/proc/self/exe";
