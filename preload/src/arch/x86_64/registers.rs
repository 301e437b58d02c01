//! Registers: the stack pointer, the program counter, and the thread descriptor behind `fs`.

use std::arch::asm;

/// Registers for which a row of an unwind table may have a rule. The psABI has 17 (16 and the
/// return address), and an unusual table may name some others.
pub(crate) const UNWIND_REGISTERS: usize = 24;

/// Returns the stack pointer of the function that this is inlined into.
#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags)) };
    sp
}

/// Returns the program counter, the stack pointer and the frame pointer at this point of the
/// calling function, as `u64`s. It is a macro so that there is no call in between.
macro_rules! current_registers {
    () => {{
        let (pc, sp, bp): (u64, u64, u64);
        // SAFETY: reads three registers.
        unsafe {
            std::arch::asm!(
                "lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp",
                out(reg) pc, out(reg) sp, out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        (pc, sp, bp)
    }};
}
pub(crate) use current_registers;

/// Returns the address of this thread's descriptor, which is unique to the thread.
#[inline(always)]
pub(crate) fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the ABI keeps the descriptor's own address in its first word.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    pointer
}

/// Returns the word at `at` of this thread's descriptor.
///
/// # Safety
/// `at` lies within the descriptor of this libc.
#[inline(always)]
pub(crate) unsafe fn descriptor_word(at: usize) -> u64 {
    let word: u64;
    // SAFETY: the caller's promise covers `at`; by the ABI, `fs` points to the descriptor.
    unsafe {
        asm!("mov {0}, qword ptr fs:[{1}]", out(reg) word, in(reg) at, options(readonly, nostack, preserves_flags));
    }
    word
}

/// Returns the byte at `at` of this thread's descriptor.
///
/// # Safety
/// The same condition as for [`descriptor_word`].
#[inline(always)]
pub(crate) unsafe fn descriptor_byte(at: usize) -> u8 {
    let byte: u8;
    // SAFETY: the argument of `descriptor_word`.
    unsafe {
        asm!("mov {0}, byte ptr fs:[{1}]", out(reg_byte) byte, in(reg) at, options(readonly, nostack, preserves_flags))
    };
    byte
}
