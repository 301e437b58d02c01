//! The functions of known allocators: their names, and how each takes its arguments.

use std::ffi::CStr;

use crate::os::elf_symbols::ElfSymbols;

mod mimalloc;

use mimalloc::MIMALLOC;

/// The effect of a call. The numbers are those of integer arguments, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// Returns a new block of so many bytes.
    Allocate { size: u8 },
    /// Returns a new block of `count` times `size` bytes.
    AllocateArray { count: u8, size: u8 },
    /// Stores the address of a new block, and returns 0.
    AllocateInto { place: u8, size: u8 },
    /// Returns a new block with a C string, which fills it.
    AllocateString,
    /// Returns a new block with a C string, if the argument at `buffer` is null.
    AllocateStringUnless { buffer: u8 },
    /// Stores the address of a new block with a C string, which fills it, or null, and returns 0.
    AllocateStringInto { place: u8 },
    /// Returns a new block, if there is no argument at `buffer` or that argument is null. The block
    /// comes from another function of the allocator, whose call the compiler may have left out.
    AllocateWithin {
        function: &'static CStr,
        buffer: Option<u8>,
    },
    /// Returns the block, resized, or null and leaves it.
    Resize { ptr: u8, size: u8 },
    /// Returns the block, resized to `count` times `size` bytes, or null and leaves it.
    ResizeArray { ptr: u8, count: u8, size: u8 },
    /// Resizes the block whose address is stored at `place` to `count` times `size` bytes, stores
    /// the new address there, and returns 0.
    ResizeStored { place: u8, count: u8, size: u8 },
    /// Resizes the block where it is, if it can, and returns its usable bytes.
    ResizeInPlace { ptr: u8, size: u8 },
    /// Frees the block.
    Free { ptr: u8 },
    /// Frees blocks that only the allocator knows.
    FreeUnseen { function: &'static CStr },
    /// Frees blocks that only the allocator knows, if the C string at `name` names that control.
    Control { name: u8 },
    /// May unload a library.
    Unload,
    /// Announces to debuggers that libraries come or go, or that they have.
    Announce,
    /// Maps or unmaps memory.
    Mapping(MappingCall),
}

/// A function that maps or unmaps memory, with the arguments of libc's function of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MappingCall {
    Mmap,
    Munmap,
    Mremap,
    Sbrk,
}

use Call::{
    Allocate, AllocateArray, AllocateInto, Announce, Control, Free, Resize, ResizeArray,
    ResizeInPlace, ResizeStored, Unload,
};

/// A function: its name behind the allocator's prefix, and what a call does.
type Function = (&'static [u8], Call);

/// C's functions, which every allocator has.
const STANDARD: &[Function] = &[
    (b"malloc", Allocate { size: 0 }),
    (b"calloc", AllocateArray { count: 0, size: 1 }),
    (b"realloc", Resize { ptr: 0, size: 1 }),
    (
        b"reallocarray",
        ResizeArray {
            ptr: 0,
            count: 1,
            size: 2,
        },
    ),
    (
        b"reallocarr",
        ResizeStored {
            place: 0,
            count: 1,
            size: 2,
        },
    ),
    (b"free", Free { ptr: 0 }),
    (b"cfree", Free { ptr: 0 }),
    (b"free_sized", Free { ptr: 0 }),
    (b"free_aligned_sized", Free { ptr: 0 }),
    (b"memalign", Allocate { size: 1 }),
    (b"aligned_alloc", Allocate { size: 1 }),
    (b"posix_memalign", AllocateInto { place: 0, size: 2 }),
    (b"valloc", Allocate { size: 0 }),
    (b"pvalloc", Allocate { size: 0 }),
];

/// C++'s operators, for a program that brings its own.
const OPERATORS: &[Function] = &[
    (b"_Znwm", Allocate { size: 0 }),
    (b"_Znam", Allocate { size: 0 }),
    (b"_ZnwmRKSt9nothrow_t", Allocate { size: 0 }),
    (b"_ZnamRKSt9nothrow_t", Allocate { size: 0 }),
    (b"_ZnwmSt11align_val_t", Allocate { size: 0 }),
    (b"_ZnamSt11align_val_t", Allocate { size: 0 }),
    (b"_ZnwmSt11align_val_tRKSt9nothrow_t", Allocate { size: 0 }),
    (b"_ZnamSt11align_val_tRKSt9nothrow_t", Allocate { size: 0 }),
    (b"_ZdlPv", Free { ptr: 0 }),
    (b"_ZdaPv", Free { ptr: 0 }),
    (b"_ZdlPvm", Free { ptr: 0 }),
    (b"_ZdaPvm", Free { ptr: 0 }),
    (b"_ZdlPvRKSt9nothrow_t", Free { ptr: 0 }),
    (b"_ZdaPvRKSt9nothrow_t", Free { ptr: 0 }),
    (b"_ZdlPvSt11align_val_t", Free { ptr: 0 }),
    (b"_ZdaPvSt11align_val_t", Free { ptr: 0 }),
    (b"_ZdlPvmSt11align_val_t", Free { ptr: 0 }),
    (b"_ZdaPvmSt11align_val_t", Free { ptr: 0 }),
    (b"_ZdlPvSt11align_val_tRKSt9nothrow_t", Free { ptr: 0 }),
    (b"_ZdaPvSt11align_val_tRKSt9nothrow_t", Free { ptr: 0 }),
];

/// jemalloc's own functions (jemalloc(3), "Non-standard API").
const JEMALLOC: &[Function] = &[
    (b"mallocx", Allocate { size: 0 }),
    (b"rallocx", Resize { ptr: 0, size: 1 }),
    (b"xallocx", ResizeInPlace { ptr: 0, size: 1 }),
    (b"dallocx", Free { ptr: 0 }),
    (b"sdallocx", Free { ptr: 0 }),
    (b"mallctl", Control { name: 0 }),
    (b"mallctlnametomib", Control { name: 0 }),
];

/// tcmalloc's own functions (`gperftools/tcmalloc.h`), behind `tc_`.
const TCMALLOC: &[Function] = &[
    (b"malloc_skip_new_handler", Allocate { size: 0 }),
    (b"new", Allocate { size: 0 }),
    (b"new_nothrow", Allocate { size: 0 }),
    (b"newarray", Allocate { size: 0 }),
    (b"newarray_nothrow", Allocate { size: 0 }),
    (b"new_aligned", Allocate { size: 0 }),
    (b"new_aligned_nothrow", Allocate { size: 0 }),
    (b"newarray_aligned", Allocate { size: 0 }),
    (b"newarray_aligned_nothrow", Allocate { size: 0 }),
    (b"delete", Free { ptr: 0 }),
    (b"delete_nothrow", Free { ptr: 0 }),
    (b"delete_sized", Free { ptr: 0 }),
    (b"delete_aligned", Free { ptr: 0 }),
    (b"delete_aligned_nothrow", Free { ptr: 0 }),
    (b"delete_sized_aligned", Free { ptr: 0 }),
    (b"deletearray", Free { ptr: 0 }),
    (b"deletearray_nothrow", Free { ptr: 0 }),
    (b"deletearray_sized", Free { ptr: 0 }),
    (b"deletearray_aligned", Free { ptr: 0 }),
    (b"deletearray_aligned_nothrow", Free { ptr: 0 }),
    (b"deletearray_sized_aligned", Free { ptr: 0 }),
];

/// snmalloc's functions for Rust (`snmalloc-sys`), behind `sn_`.
const SNMALLOC: &[Function] = &[
    (b"rust_alloc", Allocate { size: 1 }),
    (b"rust_alloc_zeroed", Allocate { size: 1 }),
    (b"rust_dealloc", Free { ptr: 0 }),
    (b"rust_realloc", Resize { ptr: 0, size: 3 }),
];

/// The loader's functions by which a walk learns that code is gone, and this library that libraries
/// come and go.
const LOADER: &[Function] = &[(b"dlclose", Unload), (ANNOUNCES, Announce)];

/// The name of glibc's function for debuggers.
const ANNOUNCES: &[u8] = b"_dl_debug_state";

/// libc's functions that map and unmap memory. `brk` is left out: what it adds is not in its
/// arguments.
const MAPPINGS: &[Function] = &[
    (b"mmap", Call::Mapping(MappingCall::Mmap)),
    (b"mmap64", Call::Mapping(MappingCall::Mmap)),
    (b"munmap", Call::Mapping(MappingCall::Munmap)),
    (b"mremap", Call::Mapping(MappingCall::Mremap)),
    (b"sbrk", Call::Mapping(MappingCall::Sbrk)),
];

/// An allocator, as its symbols tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// jemalloc with a prefix.
    Jemalloc,
    /// mimalloc.
    Mimalloc,
    /// gperftools' tcmalloc.
    Tcmalloc,
    /// snmalloc's functions for Rust.
    Snmalloc,
    /// The program's own malloc, under its usual names, and jemalloc's functions without a prefix.
    Usual,
    /// The loader, which is no allocator.
    Loader,
    /// libc's functions for mappings, which are no allocator.
    Mappings,
}

impl Family {
    /// The name in messages. `is_another`: a malloc under its usual names is not jemalloc's.
    pub(super) fn name(self, is_another: bool) -> &'static str {
        match self {
            Family::Usual if !is_another => "jemalloc",
            Family::Jemalloc => "jemalloc",
            Family::Mimalloc => "mimalloc",
            Family::Tcmalloc => "tcmalloc",
            Family::Snmalloc => "snmalloc",
            Family::Usual => "malloc",
            Family::Loader => "the loader",
            Family::Mappings => "mappings",
        }
    }

    /// The functions, behind the prefix.
    fn functions(self) -> &'static [&'static [Function]] {
        match self {
            Family::Jemalloc => &[STANDARD, JEMALLOC],
            Family::Mimalloc => &[STANDARD, MIMALLOC],
            Family::Tcmalloc => &[STANDARD, TCMALLOC],
            Family::Snmalloc => &[SNMALLOC],
            Family::Usual => &[STANDARD, OPERATORS, JEMALLOC],
            Family::Loader => &[LOADER],
            Family::Mappings => &[MAPPINGS],
        }
    }

    /// Returns the names of functions that return the usable bytes of a block, behind the prefix.
    pub(super) fn usable_size_names(self) -> &'static [&'static [u8]] {
        match self {
            Family::Jemalloc | Family::Usual => &[b"malloc_usable_size"],
            Family::Mimalloc => &[b"usable_size", b"malloc_usable_size", b"malloc_size"],
            Family::Tcmalloc => &[b"malloc_size"],
            Family::Snmalloc => &[b"rust_usable_size"],
            Family::Loader | Family::Mappings => &[],
        }
    }

    /// Returns true if the function of that name takes back blocks of this allocator, by which a
    /// second name confirms it.
    pub(super) fn is_confirmed_by(self, name: &[u8], prefix: &[u8]) -> bool {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| match self {
            Family::Jemalloc => [&b"dallocx"[..], b"sdallocx"].contains(&rest),
            Family::Snmalloc => rest == b"rust_dealloc",
            Family::Mimalloc | Family::Tcmalloc | Family::Usual => rest == b"free",
            Family::Loader | Family::Mappings => false,
        })
    }

    /// Returns true if the function of that name never calls another one that is tapped.
    pub(super) fn is_flat(self, call: Call, name: &[u8]) -> bool {
        match self {
            Family::Jemalloc | Family::Snmalloc => true,
            // Functions for aligned blocks may call `tc_malloc`.
            Family::Tcmalloc => !has(name, b"align") && !has(name, b"valloc"),
            Family::Mimalloc | Family::Usual => matches!(call, Free { .. }),
            Family::Loader | Family::Mappings => false,
        }
    }

    /// Returns what a call of the function with that name does. `None`: it is no function of this
    /// allocator that gives out or takes back blocks.
    pub(super) fn call(self, name: &[u8], prefix: &[u8]) -> Option<Call> {
        let rest = name.strip_prefix(prefix)?;
        let mut functions = self.functions().iter().copied().flatten();
        functions.find_map(|&(name, call)| (name == rest).then_some(call))
    }
}

/// Returns true if a name has that part.
fn has(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|it| it == part)
}

/// Returns the functions without a prefix, in a module with these symbols, that never call a tapped
/// one. glibc's and mimalloc's `realloc` may call `malloc`, as tcmalloc's functions for aligned
/// blocks and C++'s operators do.
pub(super) fn flat_names(is_glibc: bool, symbols: &ElfSymbols<'_>) -> &'static [&'static [u8]] {
    static FLAT: [&[u8]; 7] = [
        b"malloc",
        b"calloc",
        b"realloc",
        b"posix_memalign",
        b"aligned_alloc",
        b"mallocx",
        b"rallocx",
    ];
    let knows = |known: &[u8]| symbols.functions().any(|it| it.name == known);
    if knows(b"mallocx") {
        &FLAT
    } else if knows(b"tc_malloc") {
        &FLAT[..3]
    } else if is_glibc {
        &FLAT[..2]
    } else {
        &[]
    }
}

/// Returns true if that is a name of C's or C++'s, without a prefix.
pub(super) fn is_usual(name: &[u8]) -> bool {
    let mut usual = STANDARD.iter().chain(OPERATORS);
    usual.any(|&(known, _)| known == name)
}

/// Returns the allocator that a function of that name belongs to, and the prefix of its functions,
/// if the function is the one by which the allocator is known.
pub(super) fn known_by(name: &[u8]) -> Option<(Family, &[u8])> {
    // A linker may have dropped what nobody calls: Rust's crate calls the second one only.
    let of_mimalloc = [&b"mi_malloc"[..], b"mi_malloc_aligned"];
    if of_mimalloc.iter().any(|known| name.ends_with(known)) {
        let at = name.windows(3).rposition(|part| part == b"mi_")?;
        return Some((Family::Mimalloc, &name[..at + 3]));
    }
    let known = match name {
        b"tc_malloc" => (Family::Tcmalloc, &name[..3]),
        b"sn_rust_alloc" => (Family::Snmalloc, &name[..3]),
        b"mallocx" => (Family::Usual, &name[..0]),
        _ => (Family::Jemalloc, name.strip_suffix(b"mallocx")?),
    };
    Some(known)
}
