//! The fast ways: `malloc` and `free` of everything that is not sampled, in assembly.
//!
//! Danger: hand-written machine code on the way of every allocation. What it does is
//! [`hook::passes`](crate::hooks::sample::passes) and the first half of [`may_be_sampled`](crate::recording::sampled_blocks::may_be_sampled), in three and six instructions, followed by a small block out
//! of jemalloc's cache or into it (`allocator/fast_path.rs`), or by jemalloc, and nothing else. By hand, because of four things that a compiler does not do here:
//! subtract in thread-local memory through its offset, keep the rare sizes, below 9 or beyond a page, out of the way of all others, jump
//! straight to jemalloc (Rust reaches a foreign function through the GOT only), and begin at a cache line. docs/lab-notes/fast-path.md
//! has what each is worth.
//!
//! The last is what `.p2align` behind a function does: each is a section of its own, which is aligned as what is in it, so
//! the function, at its beginning, is too. There is no other way to say so of a naked function. As they lie then, no frequent jump touches the end of
//! 32 bytes, where Intel's processors from Skylake to Cascade Lake do not keep it decoded ("Mitigations for Jump Conditional Code Erratum").
//!
//! Both are leaves: they touch no stack, and return to the program or end in a jump, so that whatever they jump to returns to the
//! program, and a walk from there finds the program's frame where it would be without us. Unwind tables (`.cfi_…`) say so of each of
//! their instructions: a signal may come at any, and its handler walk on, ours or a profiler's.

use std::ffi::c_void;

use crate::allocator::fast_path::take_asm;
use crate::hooks::malloc::malloc_sampled;
use crate::state::thread;

/// Allocates `size` bytes; 0 gives a block of its own. Null with ENOMEM.
///
/// # Safety
/// As malloc(3); so for all functions here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn malloc(size: usize) -> *mut c_void {
    take_asm!(
        [
        ".cfi_startproc",
        ][
        "sub qword ptr fs:[rax + {left}], rdi",
        "js {sampled}",
        ] [
        "2:",
        // Below 9, above a page, or above `isize::MAX`. Those fail, and must not be subtracted: see `Sampler::passes`.
        "test rdi, rdi",
        "js {sampled}",
        // An empty block counts as one byte on the line (core::Sampler); jemalloc is asked for no less
        // than `je::SMALLEST`.
        "cmp rdi, 1",
        "mov rcx, rdi",
        "adc rcx, 0",
        "sub qword ptr fs:[rax + {left}], rcx",
        "js {sampled}",
        "cmp rdi, {large}",
        "ja {malloc_large}",
        "mov eax, {smallest}",
        "cmp rdi, rax",
        "cmovb rdi, rax",
        "3:",
        "jmp {malloc}",
        ".cfi_endproc",
        ".p2align 6",
        ]
        left = const thread::LEFT,
        sampled = sym malloc_sampled,
    )
}

/// The assembly of a naked function that frees the block at `rdi`, as [`free`] does: the lines before, all of that, the lines after, and operands for those lines.
macro_rules! free_asm {
    ([$($before:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        $crate::allocator::fast_path::put_asm!(
            [
            $($before,)*
            "lea rcx, [rip + {filter}]",
            "mov rax, qword ptr [rcx + {multiplier}]",
            "imul rax, rdi",
            "shr rax, {shift}",
            "cmp byte ptr [rcx + rax + {counters}], 0",
            "jne {sampled}",
            ]
            [$($after,)*]
            multiplier = const heapprof_core::Filter::MULTIPLIER_AT,
            counters = const heapprof_core::Filter::COUNTERS_AT,
            shift = const heapprof_core::Filter::SHIFT,
            filter = sym $crate::recording::sampled_blocks::FILTER,
            sampled = sym $crate::hooks::malloc::free_sampled,
            $($operands)*
        )
    };
}

/// Frees a block; null is nothing. errno is left alone.
///
/// # Safety
/// As free(3).
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn free(ptr: *mut c_void) {
    free_asm!(
        [".cfi_startproc",]
        [".cfi_endproc", ".p2align 6",]
    )
}
