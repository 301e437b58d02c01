//! The signal frame: what the kernel puts on a stack before a handler runs there.

/// At least so many bytes lie between the stack pointers of what a signal interrupts and of its handler
/// on the same stack: the ABI's red zone (128), `struct rt_sigframe` (440) and the registers as FXSAVE
/// has them (512).
pub(crate) const LEAST_BYTES: u64 = 1024;

/// Offsets of the interrupted registers from the stack pointer at libc's trampoline, where the kernel
/// put a `ucontext`: rbp, rsp and rip in its `gregs` (10, 15 and 16, after 40 bytes).
pub(crate) const BP_AT: u64 = 40 + 10 * 8;
/// See [`BP_AT`].
pub(crate) const SP_AT: u64 = 40 + 15 * 8;
/// See [`BP_AT`].
pub(crate) const PC_AT: u64 = 40 + 16 * 8;

/// Returns the stack pointer of a context.
pub(crate) fn stack_pointer_of(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
}
