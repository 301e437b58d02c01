//! jemalloc's fast path: takes a block out of a thread's bin, and puts a block back into it.
//!
//! Two macros define `malloc` and two define `free`: one with the sampler's check first, one
//! without. All are leaf functions. They leave the stack alone, and return to the program or end in
//! a jump. So the target of the jump returns to the program. A walk from there finds the program's
//! frame in its usual place. Unwind tables (`.cfi_…`) describe this state at each instruction.
//!
//! Each function begins at a cache line. A naked function has no alignment attribute, so `.p2align`
//! stands behind the function: it aligns the function's section, which contains this function
//! alone. With this alignment, no frequent jump touches the end of a 32-byte block. Intel's
//! processors from Skylake to Cascade Lake do not cache such a jump decoded ("Mitigations for Jump
//! Conditional Code Erratum").
//!
//! Not here: the meaning of jemalloc's words, and the conditions for using this path. Both are in
//! the allocator folder, which passes all symbols and offsets.

/// Returns the address of jemalloc's words of this thread. `$words`: the symbol of that
/// thread-local block.
macro_rules! thread_words {
    ($words:path) => {{
        let words: *mut u8;
        // SAFETY: reads the thread pointer, and the GOT entry that the static linker makes for an
        // initial-exec symbol of this library.
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

/// The body of a naked function that takes a block of `rdi` bytes out of its bin and returns it. It
/// consists of the check of the size, the lines `between`, the removal, and the lines `after`.
///
/// Labels 6, 7 and 9 are defined here. The lines `after` define label 2, for a size that has no
/// bin, and label 3, for a bin that is empty. At both labels `rdi` and the stack are unchanged. In
/// the lines `between` and at label 2, `rax` is the distance of `heapprof_thread` from the thread
/// pointer.
///
/// Changes `rax`, `rcx`, `rdx`, and after the lines `between` also `rsi`. The lines `between` leave
/// `rcx` and `rdx` alone.
macro_rules! take_from_bin {
    ([$($between:expr,)*] [$($after:expr,)*] $($operands:tt)*) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, qword ptr [rip + heapprof_thread@GOTTPOFF]",
            "lea rcx, [rdi - {smallest}]",
            "lea rdx, [rip + {tables}]",
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
            "cmp cx, word ptr fs:[rsi + {empty}]", // the two are equal without a cache, too
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

/// At label 9: gives the thread a cache if it has none and has allocated and freed enough, and
/// jumps to `$jemalloc`. `rcx` is the address of jemalloc's words of the thread; `rax` is changed.
/// One limit is enough to check, because either both limits are 0 or neither is
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
            cmp rax, {threshold}
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

/// Defines malloc for sizes of at least `smallest`.
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
                    "jmp qword ptr [rip + {slow_path} + {malloc}]",
                ]
                $($operands)*
            )
        }
    };
}

/// Defines malloc that first subtracts the size from the sampler's countdown (`left`), and jumps to
/// `sampled` if the result is negative.
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
                    // The size is too small or too large for a bin, or above `isize::MAX`. The last
                    // kind fails and must not be subtracted: see `Sampler::passes`.
                    "test rdi, rdi",
                    "js {sampled}",
                    // An empty block counts as one byte (core's sampler).
                    "cmp rdi, 1",
                    "mov rcx, rdi",
                    "adc rcx, 0",
                    "sub qword ptr fs:[rax + {left}], rcx",
                    "js {sampled}",
                    "cmp rdi, {large}",
                    "ja {malloc_large}",
                    "3:",
                    "jmp qword ptr [rip + {slow_path} + {malloc}]",
                ]
                $($operands)*
            )
        }
    };
}

/// The body of a naked function that puts the block at `rdi` into its bin. It consists of the lines
/// `before` and the insertion. A null pointer or a full bin goes to jemalloc, a class without bins
/// to `free_large`.
///
/// When jemalloc flushes half of a full bin, the flushed bytes are added to its counter at once, up
/// to one byte below the limit. jemalloc detects the limit only when its own addition crosses it.
/// So the cache of a thread that only frees is garbage collected, too. (Without a cache the limit
/// is 0, and there is nothing to add.)
///
/// The map is read without a check for addresses above 48 bits: a program that frees such an
/// address faults here instead of in jemalloc.
///
/// Labels 2, 3, 5, 7, 9, 14 and 16 are defined here. Changes `rax`, `rcx`, `rsi`, and `r8` to
/// `r10`.
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
            "cmp rax, qword ptr [rip + {tables} + {home}]",
            "jne 16f",
            // The order of these two loads matters: see `fast_path::learn`.
            "mov r8, qword ptr [rip + {tables} + {home_leaf}]",
            "14:",
            "add rcx, qword ptr fs:[0]",
            "test byte ptr [r8 + 8*rsi], {is_small}",
            "movzx eax, word ptr [r8 + 8*rsi + {class_at} / 8]",
            "jz 7f",
            "5:",
            "lea rsi, [rax + 2*rax]",
            "mov r10, qword ptr [rcx + 8*rsi + {bins}]",
            // The two are equal without a cache, too.
            "cmp r10w, word ptr [rcx + 8*rsi + {bins} + {full}]",
            "je 2f",
            "mov qword ptr [r10 - 8], rdi",
            "sub r10, 8",
            "mov qword ptr [rcx + 8*rsi + {bins}], r10",
            "ret",
            "16:",
            "mov r8, qword ptr [rip + {tables} + {root}]",
            "test r8, r8",
            "jz 3f",
            "mov r8, qword ptr [r8 + 8*rax]",
            "test r8, r8",
            "jnz 14b",
            "3:",
            "jmp qword ptr [rip + {slow_path} + {free}]",
            "7:",
            "cmp eax, {small_classes}", // null, if blocks are near address 0
            "jb 3b",
            "cmp eax, dword ptr [rip + {first_large}]",
            "jb 5b",
            // When a cache ends, the arena's free pages are purged, so a thread that frees large
            // blocks gets a cache.
            "cmp qword ptr [rcx + {allocated_limit}], 0",
            "je 9f",
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

/// Defines free. A null pointer is ignored. errno is unchanged.
macro_rules! cached_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C" fn $name(ptr: *mut std::ffi::c_void) {
            $crate::arch::jemalloc_fast_path::put_into_bin!([] $($operands)*)
        }
    };
}

/// Defines free that first asks the Bloom filter of sampled blocks, and jumps to `sampled` if the
/// filter may contain the block.
macro_rules! sampling_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(ptr: *mut std::ffi::c_void) {
            $crate::arch::jemalloc_fast_path::put_into_bin!(
                [
                    "lea rcx, [rip + {bloom_filter}]",
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
