//! The signal frame: the data that the kernel puts on a stack before a signal handler runs there.

/// The least distance between the stack pointer of interrupted code and that of its handler on the
/// same stack. It contains the ABI's red zone (128 bytes), `struct rt_sigframe` (440 bytes), and
/// the registers in FXSAVE's layout (512 bytes).
pub(crate) const LEAST_BYTES: u64 = 1024;

/// Offset of the interrupted rbp from the stack pointer at libc's trampoline, where the kernel puts
/// a `ucontext`. rbp, rsp and rip are the words 10, 15 and 16 of its `gregs`, which begins after 40
/// bytes.
pub(crate) const BP_AT: u64 = 40 + 10 * 8;
/// Offset of the interrupted rsp; see [`BP_AT`].
pub(crate) const SP_AT: u64 = 40 + 15 * 8;
/// Offset of the interrupted rip; see [`BP_AT`].
pub(crate) const PC_AT: u64 = 40 + 16 * 8;

/// Returns the stack pointer of a context.
pub(crate) fn stack_pointer_of(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
}
