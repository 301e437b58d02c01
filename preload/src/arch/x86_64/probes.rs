//! Probes: places in the code that a tracer finds by notes in the file (SystemTap's USDT).
//!
//! A note of section `.note.stapsdt` has the probe's address, its names, the places of its
//! arguments, and the address of its semaphore. The kernel or a debugger counts the listeners in
//! the semaphore. A probe is a `nop`, which a listener replaces by a trap.
//!
//! Addresses in a note are those of the file. The address of `.stapsdt.base` tells a reader if a
//! later tool has moved the sections, as prelink does.

use std::arch::naked_asm;
use std::sync::atomic::AtomicU16;

/// Declares a probe: its semaphore, and the function whose first instruction is the probe.
/// `$arguments` are the places of the function's arguments at that instruction.
macro_rules! probe {
    ($(#[$doc:meta])* $name:ident ( $($argument:ident),* ),
     $semaphore:ident, $provider:literal, $probe:literal, $arguments:literal) => {
        /// The number of listeners of the probe. The kernel and debuggers write to it.
        #[used]
        #[unsafe(link_section = ".probes")]
        pub(crate) static $semaphore: AtomicU16 = AtomicU16::new(0);

        $(#[$doc])*
        #[unsafe(naked)]
        pub(crate) extern "C" fn $name($($argument: u64),*) {
            naked_asm!(
                ".cfi_startproc",
                "2:",
                "nop",
                "ret",
                ".cfi_endproc",
                ".pushsection .note.stapsdt,\"\",@note",
                ".balign 4",
                ".4byte 4f - 3f, 6f - 5f, 3", // lengths of the name and of the rest, type
                "3:",
                ".asciz \"stapsdt\"",
                "4:",
                ".balign 4",
                "5:",
                ".8byte 2b",
                ".8byte {base}",
                ".8byte {semaphore}",
                concat!(".asciz \"", $provider, "\""),
                concat!(".asciz \"", $probe, "\""),
                concat!(".asciz \"", $arguments, "\""),
                "6:",
                ".balign 4",
                ".popsection",
                base = sym BASE,
                semaphore = sym $semaphore,
            )
        }
    };
}

/// The byte by whose address a reader finds out that a tool has moved the sections.
#[used]
#[unsafe(link_section = ".stapsdt.base")]
static BASE: u8 = 0;

probe! {
    /// Probe `otel_memory:alloc`: a sampled block at `user` of `size` bytes stands for
    /// `weighted_bytes` allocated bytes.
    alloc(user, size, weighted_bytes),
    ALLOC_LISTENERS, "otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx"
}

probe! {
    /// Probe `otel_memory:free`: the sampled block at `user` ends.
    free(user),
    FREE_LISTENERS, "otel_memory", "free", "8@%rdi"
}
