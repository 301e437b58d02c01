//! The fast path of the next allocator: the sampler's check, and a jump to that allocator.
//!
//! The functions leave the stack as it is and end in a jump, so the target of the jump returns to
//! the program. `operator new` calls the allocator, because it must look at the result.
//!
//! Not here: how calls come here.

/// The bytes of a jump to `target` at the address `at`. `None`: it does not reach that far.
pub(crate) fn jump(at: u64, target: u64) -> Option<[u8; 5]> {
    let distance = i32::try_from(target.wrapping_sub(at + 5) as i64).ok()?;
    let [a, b, c, d] = distance.to_le_bytes();
    Some([0xe9, a, b, c, d])
}

/// Defines malloc that subtracts the size from the sampler's countdown (`left`), and jumps to
/// `sampled` if the result is negative. A size of 0, or above `isize::MAX`, goes to `edge`.
macro_rules! forwarding_malloc {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(size: usize) -> *mut std::ffi::c_void {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, qword ptr [rip + heapprof_thread@GOTTPOFF]",
                "test rdi, rdi",
                "jle {edge}",
                "sub qword ptr fs:[rax + {left}], rdi",
                "js {sampled}",
                "jmp qword ptr [rip + {targets} + {malloc}]",
                ".cfi_endproc",
                ".p2align 6",
                $($operands)*
            )
        }
    };
}

/// Defines free that asks the Bloom filter of sampled blocks, and jumps to `sampled` if the filter
/// may contain the block.
macro_rules! forwarding_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(ptr: *mut std::ffi::c_void) {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "lea rcx, [rip + {bloom_filter}]",
                "mov rax, qword ptr [rcx + {multiplier}]",
                "imul rax, rdi",
                "shr rax, {shift}",
                "cmp byte ptr [rcx + rax + {counters}], 0",
                "jne {sampled}",
                "jmp qword ptr [rip + {targets} + {free}]",
                ".cfi_endproc",
                ".p2align 6",
                $($operands)*
            )
        }
    };
}

/// Defines `operator new` of a size, which no further argument decides. The sampler's check is that
/// of malloc. If the countdown expires, it jumps to `sampled`; for a size that malloc would pass to
/// `edge`, and without memory, to `called_from`. Both take the size, an unused word, the stack and
/// frame pointers of the program's call, and the number `index`.
macro_rules! forwarding_new {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name(size: usize) -> *mut std::ffi::c_void {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "mov rax, qword ptr [rip + heapprof_thread@GOTTPOFF]",
                "test rdi, rdi",
                "jle 2f",
                "sub qword ptr fs:[rax + {left}], rdi",
                "js 3f",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {targets} + {malloc}]",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "test rax, rax",
                "jz 2f",
                "ret",
                "2:",
                "mov rdx, rsp",
                "mov rcx, rbp",
                "mov r8d, {index}",
                "jmp {called_from}",
                "3:",
                "mov rdx, rsp",
                "mov rcx, rbp",
                "mov r8d, {index}",
                "jmp {sampled}",
                ".cfi_endproc",
                ".p2align 6",
                $($operands)*
            )
        }
    };
}

pub(crate) use {forwarding_free, forwarding_malloc, forwarding_new};
