//! Seccomp filters: their view of the processor.

/// `AUDIT_ARCH_X86_64` of `linux/audit.h`: the architecture that a seccomp filter sees.
pub(crate) const AUDIT_ARCH: u32 = 0xC000_003E;
