//! Registers: those of a stopped thread, by their part in calls, system calls and stacks.
//!
//! Danger: `ptrace`. The kernel fills the structure, and sets the thread's registers from it.

use std::io;
use std::mem::MaybeUninit;

use framehop::UnwindRegsNative;

/// The registers of a stopped thread.
#[derive(Debug, Clone, Copy)]
pub(in crate::attach) struct Registers(libc::user_regs_struct);

/// Bytes of the instruction for a system call.
pub(in crate::attach) const SYSTEM_CALL_LEN: u64 = 2;

/// A system call's number for a thread that is in none.
const NO_CALL: u64 = u64::MAX;
/// The code segment of 64-bit code.
const CODE_SEGMENT: u64 = 0x33;
/// Results of system calls that are errors.
const ERRORS: std::ops::Range<i64> = -4095..0;
/// Errors that never reach a program: the kernel starts the call again.
const RESTART: [i64; 3] = [-512, -513, -514];
/// The kernel continues the call where it was.
const CONTINUE: i64 = -516;
/// The first of the errors that never reach a program.
const FIRST_INTERNAL: i64 = -512;
/// The number of the call by which the kernel continues a call.
const RESTART_SYSCALL: u64 = 219;

impl Registers {
    /// Reads the registers of a thread, which is stopped and held by this one.
    pub(in crate::attach) fn of(tid: u32) -> io::Result<Registers> {
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        // SAFETY: writes one structure of registers.
        let answer = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                tid as libc::pid_t,
                0usize,
                registers.as_mut_ptr(),
            )
        };
        match answer {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: zeroed, then filled: integers.
            _ => Ok(Registers(unsafe { registers.assume_init() })),
        }
    }

    /// Sets the registers of a thread, which is stopped and held by this one, in one step.
    pub(in crate::attach) fn set(&self, tid: u32) -> io::Result<()> {
        // SAFETY: reads one structure of registers.
        let answer = unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGS,
                tid as libc::pid_t,
                0usize,
                &raw const self.0,
            )
        };
        match answer {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Returns the address of the next instruction.
    pub(in crate::attach) fn pc(&self) -> u64 {
        self.0.rip
    }

    /// Returns these registers, with another address of the next instruction.
    pub(in crate::attach) fn with_pc(&self, pc: u64) -> Registers {
        let mut registers = *self;
        registers.0.rip = pc;
        registers
    }

    pub(in crate::attach) fn stack_pointer(&self) -> u64 {
        self.0.rsp
    }

    pub(in crate::attach) fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// Returns what an unwinder begins with.
    pub(in crate::attach) fn unwind_start(&self) -> UnwindRegsNative {
        UnwindRegsNative::new(self.0.rip, self.0.rsp, self.0.rbp)
    }

    /// Returns true if the thread executes 64-bit code.
    pub(in crate::attach) fn is_64_bit(&self) -> bool {
        self.0.cs == CODE_SEGMENT
    }

    /// Returns the number of the system call that the thread is in.
    pub(in crate::attach) fn system_call(&self) -> Option<i64> {
        Some(self.0.orig_rax)
            .filter(|&number| number != NO_CALL)
            .map(u64::cast_signed)
    }

    /// Returns the result of the system call that has ended.
    ///
    /// # Errors
    /// The number of the call's error.
    pub(in crate::attach) fn call_result(&self) -> Result<u64, i32> {
        let result = self.0.rax.cast_signed();
        match ERRORS.contains(&result) {
            true => Err(-result as i32),
            false => Ok(self.0.rax),
        }
    }

    /// Returns the registers with which the thread makes its system call again.
    pub(in crate::attach) fn with_call_again(&self) -> Registers {
        self.with_call_in_place(self.0.orig_rax)
    }

    /// Returns the registers with which the thread makes another system call in place of its own.
    fn with_call_in_place(&self, number: u64) -> Registers {
        let mut registers = self.with_pc(self.0.rip - SYSTEM_CALL_LEN);
        registers.0.rax = number;
        registers.0.orig_rax = NO_CALL;
        registers
    }

    /// Returns the registers with which the thread makes a system call by the instruction at `pc`.
    pub(in crate::attach) fn with_call(
        &self,
        pc: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Registers {
        let mut registers = self.with_pc(pc);
        let raw = &mut registers.0;
        raw.orig_rax = NO_CALL;
        raw.rax = number.cast_unsigned();
        [raw.rdi, raw.rsi, raw.rdx, raw.r10, raw.r8, raw.r9] = arguments;
        registers
    }

    /// Returns true if the kernel is to continue the system call of the thread where it was.
    pub(in crate::attach) fn is_to_be_continued(&self) -> bool {
        self.system_call().is_some() && self.0.rax.cast_signed() == CONTINUE
    }

    /// Returns the registers with which an interrupted thread goes on: those that the kernel would
    /// have made. `None`: the thread is in a state that is not known.
    pub(in crate::attach) fn resumed(&self) -> Option<Registers> {
        let error = self.0.rax.cast_signed();
        let mut resumed = *self;
        resumed.0.orig_rax = NO_CALL;
        match self.system_call() {
            Some(_) if RESTART.contains(&error) => Some(self.with_call_again()),
            Some(_) if error == CONTINUE => Some(self.with_call_in_place(RESTART_SYSCALL)),
            Some(_) if (ERRORS.start..=FIRST_INTERNAL).contains(&error) => None,
            _ => Some(resumed),
        }
    }

    /// Returns the kernel's structure.
    pub(super) fn raw(&self) -> &libc::user_regs_struct {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread behind a system call's instruction at 0x1000.
    fn interrupted(call: u64, result: i64) -> Registers {
        // SAFETY: integers.
        let mut raw: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (raw.rip, raw.rsp) = (0x1000 + SYSTEM_CALL_LEN, 0x7000);
        (raw.orig_rax, raw.rax) = (call, result.cast_unsigned());
        Registers(raw)
    }

    /// The place, the number in rax, and whether the kernel takes the thread for one in a call.
    fn state(registers: Registers) -> (u64, i64, bool) {
        let is_in_call = registers.system_call().is_some();
        (registers.pc(), registers.0.rax.cast_signed(), is_in_call)
    }

    #[test]
    fn an_interrupted_thread_goes_on_as_the_kernel_would_let_it() {
        let poll = libc::SYS_poll.cast_unsigned();
        let resumed = |call, result| interrupted(call, result).resumed().map(state);
        // In no call: nothing but the address counts.
        assert_eq!(resumed(NO_CALL, -512), Some((0x1002, -512, false)));
        // A call that has ended, with a result or an error.
        assert_eq!(resumed(poll, 3), Some((0x1002, 3, false)));
        assert_eq!(resumed(poll, -4), Some((0x1002, -4, false)));
        // Calls that begin again, and one that goes on.
        for error in RESTART {
            assert_eq!(resumed(poll, error), Some((0x1000, libc::SYS_poll, false)));
        }
        let continued = Some((0x1000, libc::SYS_restart_syscall, false));
        assert_eq!(resumed(poll, -516), continued);
        assert!(interrupted(poll, -516).is_to_be_continued());
        assert!(!interrupted(NO_CALL, -516).is_to_be_continued());
        // Errors of the kernel alone.
        assert_eq!(resumed(poll, -515), None);
        assert_eq!(resumed(poll, -4095), None);
        assert_eq!(resumed(poll, -4096), Some((0x1002, -4096, false)));
    }

    #[test]
    fn a_result_is_an_error_from_minus_4095_on() {
        let result = |result| interrupted(0, result).call_result();
        assert_eq!(result(-1), Err(1));
        assert_eq!(result(-4095), Err(4095));
        assert_eq!(result(-4096), Ok((-4096i64).cast_unsigned()));
        assert_eq!(result(0), Ok(0));
    }

    #[test]
    fn a_call_has_its_number_and_arguments_in_the_registers_of_the_abi() {
        let thread = interrupted(NO_CALL, 7);
        let raw = *thread
            .with_call(0x5000, libc::SYS_mmap, [1, 2, 3, 4, 5, 6])
            .raw();
        assert_eq!(
            (raw.rip, raw.rsp, raw.rax),
            (0x5000, 0x7000, libc::SYS_mmap as u64)
        );
        let arguments = [raw.rdi, raw.rsi, raw.rdx, raw.r10, raw.r8, raw.r9];
        assert_eq!(arguments, [1, 2, 3, 4, 5, 6]);
        assert_eq!(raw.orig_rax, NO_CALL);
    }
}
