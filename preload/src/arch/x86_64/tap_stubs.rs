//! Stubs of taps: the code between a function's entry that was changed, and the handler in Rust.
//!
//! A function whose entry was changed jumps to generated code, with the stack and all registers as
//! its caller left them:
//!
//! ```text
//!  function: jmp check      check: is it sampled? ── perhaps ──> tail: mov r11, <tap>; jmp <stub>
//!                             │ no
//!                           moved: the function's first instructions, and a jump behind them
//! ```
//!
//! The entry stub stores the arguments, which are at most six integers, and calls the handler. The
//! handler calls the moved instructions as a function ([`call_moved`]).
//!
//! A compiler that sees a function and its caller may adapt the caller to the function: it keeps
//! values in registers that the function does not change, and leaves the stack unaligned for a
//! function that does not care (GCC's `-fipa-ra` and `-fipa-stack-alignment`). So the code here
//! aligns the stack itself, and the program finds each register as the function leaves it: all
//! integers, and the vectors' first 128 bits. Only the flags change.

use std::cell::Cell;

/// The registers at the entry of a tapped function.
#[repr(C)]
pub(crate) struct Registers {
    /// The integer arguments, in their order. A function with fewer has whatever the registers
    /// hold.
    arguments: [usize; 6],
    r10: usize,
    rax: usize,
    /// The second half of the result, once the function has been called.
    rdx: Cell<usize>,
}

impl Registers {
    /// Returns the integer argument of that number, from 0 on. Beyond the registers it is 0.
    pub(crate) fn argument(&self, number: u8) -> usize {
        let argument = self.arguments.get(usize::from(number));
        argument.copied().unwrap_or(0)
    }
}

const R10: usize = std::mem::offset_of!(Registers, r10);
const RAX: usize = std::mem::offset_of!(Registers, rax);
const RDX: usize = std::mem::offset_of!(Registers, rdx);
/// Bytes of the registers, so that vectors lie aligned behind them.
pub(crate) const INTEGERS: usize = size_of::<Registers>().next_multiple_of(16);
pub(crate) const R10_AT: usize = R10;
pub(crate) const RAX_AT: usize = RAX;
pub(crate) const RDX_AT: usize = RDX;

/// Calls a function with these registers, and returns what it leaves in `rax`.
///
/// # Safety
/// The function may be called with these arguments.
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn call_moved(registers: &Registers, function: u64) -> usize {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rdi",
        "push rsi", // two words: the stack stays aligned
        "mov r9, qword ptr [rdi + 40]",
        "mov r8, qword ptr [rdi + 32]",
        "mov rcx, qword ptr [rdi + 24]",
        "mov rdx, qword ptr [rdi + 16]",
        "mov rsi, qword ptr [rdi + 8]",
        "mov r10, qword ptr [rdi + {r10}]",
        "mov rax, qword ptr [rdi + {rax}]",
        "mov rdi, qword ptr [rdi]",
        "call qword ptr [rbp - 16]",
        "mov rdi, qword ptr [rbp - 8]",
        "mov qword ptr [rdi + {rdx}], rdx",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        r10 = const R10,
        rax = const RAX,
        rdx = const RDX,
    )
}

/// Bytes of a [`tail`].
pub(crate) const TAIL: usize = 26;

/// Returns code that pushes `r11`, loads `tap` into it, and jumps to `stub`.
pub(crate) fn tail(tap: u64, stub: u64) -> [u8; TAIL] {
    let mut code = [0; TAIL];
    code[..4].copy_from_slice(&[0x41, 0x53, 0x49, 0xbb]); // push r11; mov r11, imm64
    code[4..12].copy_from_slice(&tap.to_le_bytes());
    code[12..18].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]); // jmp qword ptr [rip]
    code[18..].copy_from_slice(&stub.to_le_bytes());
    code
}

/// Where a check leads if the call may concern a sample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Nothing is decided.
    Undecided,
    /// The sampler has advanced, and its countdown has expired.
    Due,
}

/// The Bloom filter of sampled addresses: where it is, the offsets of its words, and its shift.
pub(crate) struct BloomFilterPlace {
    pub(crate) address: u64,
    pub(crate) multiplier: i32,
    pub(crate) shift: u8,
    pub(crate) counters: i32,
}

/// Code that decides whether a call needs the handler. If not, execution continues behind it.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    code: [u8; Check::MOST],
    len: usize,
    /// For each jump out: where its displacement is, and where it leads.
    exits: [Option<(usize, Exit)>; 3],
}

impl Check {
    /// Most bytes of a check.
    pub(crate) const MOST: usize = 72;

    /// A check that always needs the handler: no code, which is followed by a tail.
    pub(crate) const NONE: Check = Check {
        code: [0; Check::MOST],
        len: 0,
        exits: [None; 3],
    };

    /// The check of an allocation of as many bytes as the argument of that number says, `left`
    /// bytes from the thread pointer being the sampler's countdown.
    pub(crate) fn allocation(size: u8, left: i32) -> Option<Check> {
        let register = register(size)?;
        let mut check = Check::NONE;
        check.put(&[0x48, 0x85, 0xc0 | register << 3 | register]); // test size, size
        check.jump(0x8e, Exit::Undecided); // jle
        check.subtract(register, left);
        Some(check)
    }

    /// The check of an allocation of an array: the product of two arguments.
    pub(crate) fn array(count: u8, size: u8, left: i32) -> Option<Check> {
        const RAX: u8 = 0;
        let mut check = Check::NONE;
        check.put(&[0x48, 0x89, 0xc0 | register(count)? << 3 | RAX]); // mov rax, count
        check.put(&[0x48, 0x0f, 0xaf, 0xc0 | RAX << 3 | register(size)?]); // imul rax, size
        check.jump(0x80, Exit::Undecided); // jo
        check.put(&[0x48, 0x85, 0xc0]); // test rax, rax
        check.jump(0x8e, Exit::Undecided); // jle
        check.subtract(RAX, left);
        Some(check)
    }

    /// The check of a free.
    pub(crate) fn free(ptr: u8, filter: &BloomFilterPlace) -> Option<Check> {
        let mut check = Check::NONE;
        check.ask(ptr, filter)?;
        Some(check)
    }

    /// The check of a resize: that of a free, then that of an allocation.
    pub(crate) fn resize(ptr: u8, size: u8, filter: &BloomFilterPlace, left: i32) -> Option<Check> {
        let register = register(size)?;
        let mut check = Check::NONE;
        check.put(&[0x48, 0x85, 0xc0 | register << 3 | register]); // test size, size
        check.jump(0x8e, Exit::Undecided); // jle
        check.ask(ptr, filter)?;
        check.subtract(register, left);
        Some(check)
    }

    /// Asks the Bloom filter whether a sample may live at the address in that argument.
    fn ask(&mut self, ptr: u8, filter: &BloomFilterPlace) -> Option<()> {
        self.put(&[0x50, 0x41, 0x52]); // push rax; push r10
        self.put(&[0x49, 0xba]); // mov r10, imm64
        self.put(&filter.address.to_le_bytes());
        self.put(&[0x49, 0x8b, 0x82]); // mov rax, qword ptr [r10 + multiplier]
        self.put(&filter.multiplier.to_le_bytes());
        self.put(&[0x48, 0x0f, 0xaf, 0xc0 | register(ptr)?]); // imul rax, ptr
        self.put(&[0x48, 0xc1, 0xe8, filter.shift]); // shr rax, shift
        self.put(&[0x41, 0x80, 0xbc, 0x02]); // cmp byte ptr [r10 + rax + counters], 0
        self.put(&filter.counters.to_le_bytes());
        self.put(&[0]);
        self.put(&[0x41, 0x5a, 0x58]); // pop r10; pop rax
        self.jump(0x85, Exit::Undecided); // jne
        Some(())
    }

    /// Returns the code, with its exits leading to tails at these addresses, and itself at
    /// `address`.
    pub(crate) fn code(
        &self,
        address: u64,
        tail_of: impl Fn(Exit) -> u64,
    ) -> ([u8; Check::MOST], usize) {
        let mut code = self.code;
        for &(at, exit) in self.exits.iter().flatten() {
            let next = address + at as u64 + 4;
            let displacement = tail_of(exit).wrapping_sub(next) as i32; // within the same pages
            code[at..at + 4].copy_from_slice(&displacement.to_le_bytes());
        }
        (code, self.len)
    }

    /// Returns the bytes of the code.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn put(&mut self, bytes: &[u8]) {
        self.code[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// A conditional jump with a displacement of 32 bits.
    fn jump(&mut self, condition: u8, exit: Exit) {
        self.put(&[0x0f, condition]);
        let free = self.exits.iter_mut().find(|it| it.is_none());
        if let Some(place) = free {
            *place = Some((self.len, exit));
        }
        self.put(&[0; 4]);
    }

    /// `sub qword ptr fs:[left], register; js <due>`
    fn subtract(&mut self, register: u8, left: i32) {
        self.put(&[0x64, 0x48, 0x29, 0x04 | register << 3, 0x25]);
        self.put(&left.to_le_bytes());
        self.jump(0x88, Exit::Due); // js
    }
}

/// Returns the number of the register that holds an argument, for one of the first four.
fn register(argument: u8) -> Option<u8> {
    [7, 6, 2, 1].get(usize::from(argument)).copied() // rdi, rsi, rdx, rcx
}

/// Defines an entry stub, which calls `$handler` with the registers, the tap, the stack pointer at
/// the entry, and `rbp`.
macro_rules! tap_entry_stub {
    ($(#[$attribute:meta])* $visible:vis fn $name:ident => $handler:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        $visible unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                ".cfi_def_cfa_offset 16", // the tail has pushed r11
                "push rbp",
                ".cfi_def_cfa_offset 24",
                ".cfi_offset rbp, -24",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "and rsp, -16",
                "sub rsp, {integers} + 256",
                "mov qword ptr [rsp], rdi",
                "mov qword ptr [rsp + 8], rsi",
                "mov qword ptr [rsp + 16], rdx",
                "mov qword ptr [rsp + 24], rcx",
                "mov qword ptr [rsp + 32], r8",
                "mov qword ptr [rsp + 40], r9",
                "mov qword ptr [rsp + {r10}], r10",
                "mov qword ptr [rsp + {rax}], rax",
                "mov qword ptr [rsp + {rdx}], rdx",
                $crate::arch::tap_stubs::each_vector!("movaps xmmword ptr [rsp + {integers} + ", "], xmm", ""),
                "mov rdi, rsp",
                "mov rsi, r11",
                "lea rdx, [rbp + 16]",
                "mov rcx, qword ptr [rbp]",
                "call {handler}",
                $crate::arch::tap_stubs::each_vector!("movaps xmm", ", xmmword ptr [rsp + {integers} + ", "]"; swapped),
                "mov rdi, qword ptr [rsp]",
                "mov rsi, qword ptr [rsp + 8]",
                "mov rdx, qword ptr [rsp + {rdx}]",
                "mov rcx, qword ptr [rsp + 24]",
                "mov r8, qword ptr [rsp + 32]",
                "mov r9, qword ptr [rsp + 40]",
                "mov r10, qword ptr [rsp + {r10}]",
                "mov rsp, rbp",
                "pop rbp",
                ".cfi_def_cfa rsp, 16",
                ".cfi_restore rbp",
                "pop r11",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                integers = const $crate::arch::tap_stubs::INTEGERS,
                r10 = const $crate::arch::tap_stubs::R10_AT,
                rax = const $crate::arch::tap_stubs::RAX_AT,
                rdx = const $crate::arch::tap_stubs::RDX_AT,
                handler = sym $handler,
            )
        }
    };
}

/// Sixteen lines of assembly, one for each vector register: its number and its place.
macro_rules! each_vector {
    ($a:literal, $b:literal, $c:literal) => {
        $crate::arch::tap_stubs::each_vector!(place $a, $b, $c;
            0 0, 16 1, 32 2, 48 3, 64 4, 80 5, 96 6, 112 7,
            128 8, 144 9, 160 10, 176 11, 192 12, 208 13, 224 14, 240 15)
    };
    ($a:literal, $b:literal, $c:literal; swapped) => {
        $crate::arch::tap_stubs::each_vector!(place $a, $b, $c;
            0 0, 1 16, 2 32, 3 48, 4 64, 5 80, 6 96, 7 112,
            8 128, 9 144, 10 160, 11 176, 12 192, 13 208, 14 224, 15 240)
    };
    (place $a:literal, $b:literal, $c:literal; $($first:literal $second:literal),*) => {
        concat!($($a, $first, $b, $second, $c, "\n"),*)
    };
}
pub(crate) use {each_vector, tap_entry_stub};
