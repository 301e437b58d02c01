//! mallinfo and its relatives: the allocator's statistics and options, in glibc's terms.
//!
//! The numbers are jemalloc's, each in the field that comes nearest. Nothing here allocates. If the
//! next allocator serves the program, each call goes on to the next definition.

use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;

use crate::allocator;
use crate::os::next_symbol::NextSymbol;
use crate::os::sys;

/// Returns the next definition of `$name` as a function of that type, if the next allocator serves
/// the program and the function exists.
macro_rules! next {
    ($name:literal as $type:ty) => {{
        static NEXT: NextSymbol = NextSymbol::new($name);
        let found = allocator::has_next().then(|| NEXT.address()).flatten();
        // SAFETY: malloc.h declares the function with this type.
        found.map(|found| unsafe { std::mem::transmute::<*mut c_void, $type>(found) })
    }};
}

/// `struct mallinfo2` and, with `int`s, `struct mallinfo`, as in mallinfo(3). musl has neither, but
/// a program may look the functions up all the same.
#[repr(C)]
pub(crate) struct Mallinfo<N> {
    arena: N,
    ordblks: N,
    smblks: N,
    hblks: N,
    hblkhd: N,
    usmblks: N,
    fsmblks: N,
    uordblks: N,
    fordblks: N,
    keepcost: N,
}

/// Returns unused memory to the kernel. 1 if there was any. `pad` has no counterpart here.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn malloc_trim(pad: usize) -> c_int {
    if let Some(trim) = next!(c"malloc_trim" as extern "C-unwind" fn(usize) -> c_int) {
        return trim(pad);
    }
    let before = allocator::stats().resident;
    allocator::purge();
    c_int::from(allocator::stats().resident < before)
}

/// Accepts an option of glibc's allocator (1), without effect.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn mallopt(parameter: c_int, value: c_int) -> c_int {
    match next!(c"mallopt" as extern "C-unwind" fn(c_int, c_int) -> c_int) {
        Some(mallopt) => mallopt(parameter, value),
        None => 1,
    }
}

/// Returns the statistics. `arena` is what is mapped, and `uordblks` the part in blocks of the
/// program. `hblkhd` is 0: in glibc it is what is in use outside of arenas, and readers that want
/// the total in use (the JVM) add it to `uordblks`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn mallinfo2() -> Mallinfo<usize> {
    if let Some(mallinfo2) = next!(c"mallinfo2" as extern "C-unwind" fn() -> Mallinfo<usize>) {
        return mallinfo2();
    }
    let stats = allocator::stats();
    Mallinfo {
        arena: stats.mapped,
        ordblks: 0,
        smblks: 0,
        hblks: 0,
        hblkhd: 0,
        usmblks: 0,
        fsmblks: 0,
        uordblks: stats.allocated,
        fordblks: stats.free(),
        keepcost: stats.resident.saturating_sub(stats.active),
    }
}

/// Returns the statistics in `int`s, which wrap beyond 2 GiB, as glibc's do.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn mallinfo() -> Mallinfo<c_int> {
    if let Some(mallinfo) = next!(c"mallinfo" as extern "C-unwind" fn() -> Mallinfo<c_int>) {
        return mallinfo();
    }
    let wide = mallinfo2();
    Mallinfo {
        arena: wide.arena as c_int,
        ordblks: wide.ordblks as c_int,
        smblks: wide.smblks as c_int,
        hblks: wide.hblks as c_int,
        hblkhd: wide.hblkhd as c_int,
        usmblks: wide.usmblks as c_int,
        fsmblks: wide.fsmblks as c_int,
        uordblks: wide.uordblks as c_int,
        fordblks: wide.fordblks as c_int,
        keepcost: wide.keepcost as c_int,
    }
}

/// A buffer for a short text without an allocation.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    fn of(words: std::fmt::Arguments<'_>) -> Text {
        let mut text = Text {
            bytes: [0; 512],
            len: 0,
        };
        let mut rest = &mut text.bytes[..511]; // the last byte stays zero
        let _ = rest.write_fmt(words); // what does not fit is cut
        text.len = 511 - rest.len();
        text
    }
}

/// Prints the statistics to standard error.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn malloc_stats() {
    if let Some(print) = next!(c"malloc_stats" as extern "C-unwind" fn()) {
        return print();
    }
    let stats = allocator::stats();
    let text = Text::of(format_args!(
        "Arena 0:\nsystem bytes     = {:10}\nin use bytes     = {:10}\n\
         Total (incl. mmap):\nsystem bytes     = {:10}\nin use bytes     = {:10}\n",
        stats.mapped, stats.allocated, stats.mapped, stats.allocated
    ));
    sys::File::borrowed(2).write_line(&text.bytes[..text.len]);
}

/// Writes the statistics to `stream` as XML. Options other than 0 are EINVAL.
///
/// # Safety
/// `stream` is an open FILE.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn malloc_info(
    options: c_int,
    stream: *mut libc::FILE,
) -> c_int {
    type Info = unsafe extern "C-unwind" fn(c_int, *mut libc::FILE) -> c_int;
    if let Some(info) = next!(c"malloc_info" as Info) {
        // SAFETY: the caller's promise.
        return unsafe { info(options, stream) };
    }
    if options != 0 {
        return libc::EINVAL;
    }
    let stats = allocator::stats();
    let text = Text::of(format_args!(
        "<malloc version=\"1\">\n<total type=\"rest\" count=\"0\" size=\"{}\"/>\n\
         <system type=\"current\" size=\"{}\"/>\n<aspace type=\"total\" size=\"{}\"/>\n</malloc>\n",
        stats.free(),
        stats.mapped,
        stats.mapped,
    ));
    // SAFETY: a zero-terminated text and the caller's stream.
    unsafe { libc::fputs(text.bytes.as_ptr().cast::<c_char>(), stream) };
    0
}
