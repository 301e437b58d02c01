//! mallinfo and its relatives: the allocator's statistics and options, in glibc's terms.
//!
//! The numbers are jemalloc's, each in the field that comes nearest. Nothing here allocates.

use std::ffi::{c_char, c_int};
use std::io::Write as _;

use crate::allocator;
use crate::os::sys;

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
pub(crate) extern "C-unwind" fn malloc_trim(_pad: usize) -> c_int {
    let before = allocator::stats().resident;
    allocator::purge();
    c_int::from(allocator::stats().resident < before)
}

/// Accepts an option of glibc's allocator (1), without effect.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn mallopt(_parameter: c_int, _value: c_int) -> c_int {
    1
}

/// Returns the statistics. `arena` is what is mapped, and `uordblks` the part in blocks of the
/// program. `hblkhd` is 0: in glibc it is what is in use outside of arenas, and readers that want
/// the total in use (the JVM) add it to `uordblks`.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn mallinfo2() -> Mallinfo<usize> {
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
