//! jemalloc's fast path: a block out of a thread's bin, and back into it.
//!
//! Two macros define `malloc` and two define `free`: one with the profiler's question before, one
//! without. All are leaves: they touch no stack, and return to the program or end in a jump, so that
//! whatever they jump to returns to the program, and a walk from there finds the program's frame where it
//! would be without us. Unwind tables (`.cfi_…`) say so of each instruction.
//!
//! Each begins at a cache line: `.p2align` behind a function aligns the function's section, as each has
//! one of its own, and with it the function. There is no other way to say so of a naked function. As they
//! lie then, no frequent jump touches the end of 32 bytes, where Intel's processors from Skylake to
//! Cascade Lake do not keep it decoded ("Mitigations for Jump Conditional Code Erratum").
//!
//! Not here: what the words mean (`allocator/layout.rs`), and when any of this is right
//! (`allocator/fast_path.rs`), which passes all symbols and offsets.

/// The address of this thread's words of jemalloc's. `$words`: the symbol of that thread-local block.
macro_rules! thread_words {
    ($words:path) => {{
        let words: *mut u8;
        // SAFETY: reads the GOT entry that the static linker made for an initial-exec symbol of this
        // library, and the thread pointer.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr [rip + {words}@GOTTPOFF]",
                "add {0}, qword ptr fs:[0]",
                out(reg) words,
                words = sym $words,
                options(pure, nomem, nostack),
            );
        }
        words
    }};
}

/// The body of a naked function that takes a block of `rdi` bytes out of its bin and returns it: the
/// question whether such sizes are served, the lines between, the taking, the lines after.
///
/// Labels 6, 7 and 9 are its own. Among the lines after are label 2, where it goes on with a size that is
/// not served, and label 3, with one whose bin has no block; `rdi` and the stack are as they were. For the
/// lines between, and after label 2, `rax` is the distance of `heapprof_thread` from the thread pointer.
/// Changes `rax`, and `rcx` and `rdx`, which the lines between leave alone; behind them `rsi`, too.
macro_rules! take_from_bin {
    ([$($between:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, qword ptr [rip + heapprof_thread@GOTTPOFF]",
            "lea rcx, [rdi - {smallest}]",
            "lea rdx, [rip + {known}]",
            "cmp rcx, qword ptr [rdx]",
            "jae 2f",
            $($between,)*
            "shr ecx, 3",
            "movsxd rsi, dword ptr [rdx + 4*rcx + {places}]",
            "add rsi, rax",
            "mov rcx, qword ptr fs:[rsi]",
            "cmp cx, word ptr fs:[rsi + {low_water}]",
            "je 7f",
            "mov rax, qword ptr [rcx]",
            "add rcx, 8",
            "mov qword ptr fs:[rsi], rcx",
            "ret",
            "7:",
            "cmp cx, word ptr fs:[rsi + {empty}]", // both are so where there is no cache
            "je 6f",
            "mov rax, qword ptr [rcx]",
            "add rcx, 8",
            "mov qword ptr fs:[rsi], rcx",
            "mov word ptr fs:[rsi + {low_water}], cx",
            "ret",
            "6:",
            "mov rcx, qword ptr [rip + {words}@GOTTPOFF]",
            "add rcx, qword ptr fs:[0]",
            $crate::arch::jemalloc_fast_path::give_cache_if_due!("3f"),
            $($after,)*
            ".cfi_endproc",
            ".p2align 6",
            $($operands)*
        )
    };
}

/// At label 9: gives the thread a cache if it has none and has allocated and freed enough, and jumps to
/// `$jemalloc`. `rcx` has jemalloc's words of the thread; `rax` is changed. Both limits are 0 or neither
/// (`te_next_event_fast_set_non_nominal`).
macro_rules! give_cache_if_due {
    ($jemalloc:literal) => {
        concat!(
            "9:
            cmp qword ptr [rcx + {allocated_limit}], 0
            jne ",
            $jemalloc,
            "
            mov rax, qword ptr [rcx + {allocated}]
            add rax, qword ptr [rcx + {freed}]
            cmp rax, {enough}
            jb ",
            $jemalloc,
            "
            push rdi
            .cfi_adjust_cfa_offset 8
            call {give_cache}
            pop rdi
            .cfi_adjust_cfa_offset -8
            jmp ",
            $jemalloc,
        )
    };
}

/// Defines malloc, for sizes of `smallest` at least.
macro_rules! cached_malloc {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(size: usize) -> *mut std::ffi::c_void {
            $crate::arch::jemalloc_fast_path::take_from_bin!(
                []
                [
                    "2:",
                    "cmp rdi, {large}",
                    "ja {malloc_large}",
                    "3:",
                    "jmp {malloc}",
                ]
                $($operands)*
            )
        }
    };
}

/// Defines malloc that subtracts the size from the sampler's count first (`left`), and jumps to `sampled`
/// if that makes it negative.
macro_rules! sampling_malloc {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(size: usize) -> *mut std::ffi::c_void {
            $crate::arch::jemalloc_fast_path::take_from_bin!(
                [
                    "sub qword ptr fs:[rax + {left}], rdi",
                    "js {sampled}",
                ]
                [
                    "2:",
                    // Below 9, above what caches keep, or above `isize::MAX`. The last fail, and must not be
                    // subtracted: see `Sampler::passes`.
                    "test rdi, rdi",
                    "js {sampled}",
                    // An empty block counts as one byte (core::Sampler); jemalloc is asked for no less than
                    // `smallest`.
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
                ]
                $($operands)*
            )
        }
    };
}

/// The body of a naked function that puts the block at `rdi` into its bin: the lines before, the putting,
/// the lines after. A null pointer or a full bin goes to jemalloc, a class without bins to `free_large`.
///
/// When jemalloc flushes a full bin (half of it), the flushed bytes are added to its counter at once, up
/// to one byte below the limit: jemalloc detects the limit only when its own addition crosses it. So a
/// thread that only frees has its cache looked through, too. (Without a cache the limit is 0, and there is
/// nothing to add.) The map is read without a check of addresses above 48 bits: a program that frees one
/// faults here, and not in jemalloc.
///
/// Labels 2, 3, 5, 7, 9, 14 and 16 are its own. Changes `rax`, `rcx`, `rsi`, and `r8` to `r10`.
macro_rules! put_into_bin {
    ([$($before:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            $($before,)*
            "mov rax, rdi",
            "shr rax, {page_bits} + {leaf_bits}",
            "mov rcx, qword ptr [rip + {words}@GOTTPOFF]",
            "mov rsi, rdi",
            "shr rsi, {page_bits}",
            "and esi, (1 << {leaf_bits}) - 1",
            "cmp rax, qword ptr [rip + {known} + {home}]",
            "jne 16f",
            "mov r8, qword ptr [rip + {known} + {home_leaf}]", // in this order: see `fast_path::learn`
            "14:",
            "add rcx, qword ptr fs:[0]",
            "test byte ptr [r8 + 8*rsi], {is_small}",
            "movzx eax, word ptr [r8 + 8*rsi + {class_at} / 8]",
            "jz 7f",
            "5:",
            "lea rsi, [rax + 2*rax]",
            "mov r10, qword ptr [rcx + 8*rsi + {bins}]",
            "cmp r10w, word ptr [rcx + 8*rsi + {bins} + {full}]", // both are so where there is no cache
            "je 2f",
            "mov qword ptr [r10 - 8], rdi",
            "sub r10, 8",
            "mov qword ptr [rcx + 8*rsi + {bins}], r10",
            "ret",
            "16:",
            "mov r8, qword ptr [rip + {known} + {root}]",
            "test r8, r8",
            "jz 3f",
            "mov r8, qword ptr [r8 + 8*rax]",
            "test r8, r8",
            "jnz 14b",
            "3:",
            "jmp {free}",
            "7:",
            "cmp eax, {small_classes}", // null, where blocks are near to it
            "jb 3b",
            "cmp eax, dword ptr [rip + {first_large}]",
            "jb 5b",
            "cmp qword ptr [rcx + {allocated_limit}], 0",
            "je 9f", // a cache that ends has the arena's free pages given back: a thread that frees large blocks is to have one
            "mov rsi, qword ptr [r8 + 8*rsi]",
            "jmp {free_large}",
            "2:",
            "lea r8, [rip + {class_bytes}]",
            "movzx r9d, word ptr [rcx + 8*rsi + {bins} + {most}]",
            "mov rax, qword ptr [r8 + 8*rax]",
            "shr r9d, 1",
            "mov r8, qword ptr [rcx + {freed_limit}]",
            "imul rax, r9",
            "sub r8, 1",
            "add rax, qword ptr [rcx + {freed}]",
            "cmp rax, r8",
            "cmova rax, r8",
            "mov qword ptr [rcx + {freed}], rax",
            $crate::arch::jemalloc_fast_path::give_cache_if_due!("3b"),
            ".cfi_endproc",
            ".p2align 6",
            $($operands)*
        )
    };
}

/// Defines free; null is nothing. errno is left alone.
macro_rules! cached_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(ptr: *mut std::ffi::c_void) {
            $crate::arch::jemalloc_fast_path::put_into_bin!([] $($operands)*)
        }
    };
}

/// Defines free that asks the filter of sampled blocks first, and jumps to `sampled` if it may hold the
/// block.
macro_rules! sampling_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(ptr: *mut std::ffi::c_void) {
            $crate::arch::jemalloc_fast_path::put_into_bin!(
                [
                    "lea rcx, [rip + {filter}]",
                    "mov rax, qword ptr [rcx + {multiplier}]",
                    "imul rax, rdi",
                    "shr rax, {shift}",
                    "cmp byte ptr [rcx + rax + {counters}], 0",
                    "jne {sampled}",
                ]
                $($operands)*
            )
        }
    };
}

pub(crate) use {
    cached_free, cached_malloc, give_cache_if_due, put_into_bin, sampling_free, sampling_malloc,
    take_from_bin, thread_words,
};
