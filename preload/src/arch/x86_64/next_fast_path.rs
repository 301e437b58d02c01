//! The fast path of the next allocator: the sampler's check, and a jump to that allocator.
//!
//! Both functions are leaf functions. They leave the stack alone and end in a jump, so the target
//! of the jump returns to the program.
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
                "jmp qword ptr [rip + {slow_path} + {malloc}]",
                ".cfi_endproc",
                ".p2align 6",
                $($operands)*
            )
        }
    };
}

/// Defines free that asks the filter of sampled blocks, and jumps to `sampled` if the filter may
/// contain the block.
macro_rules! forwarding_free {
    ($(#[$attribute:meta])* fn $name:ident; $($operands:tt)*) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn $name(ptr: *mut std::ffi::c_void) {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "lea rcx, [rip + {filter}]",
                "mov rax, qword ptr [rcx + {multiplier}]",
                "imul rax, rdi",
                "shr rax, {shift}",
                "cmp byte ptr [rcx + rax + {counters}], 0",
                "jne {sampled}",
                "jmp qword ptr [rip + {slow_path} + {free}]",
                ".cfi_endproc",
                ".p2align 6",
                $($operands)*
            )
        }
    };
}

pub(crate) use {forwarding_free, forwarding_malloc};
