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
//! handler calls the moved instructions as a function. At a function's entry `rax`, `r10` and `r11`
//! belong to no one, and neither do the flags.

/// Bytes of a [`tail`].
pub(crate) const TAIL: usize = 24;

/// Returns code that loads `tap` into `r11` and jumps to `stub`.
pub(crate) fn tail(tap: u64, stub: u64) -> [u8; TAIL] {
    let mut code = [0; TAIL];
    code[..2].copy_from_slice(&[0x49, 0xbb]); // mov r11, imm64
    code[2..10].copy_from_slice(&tap.to_le_bytes());
    code[10..16].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]); // jmp qword ptr [rip]
    code[16..].copy_from_slice(&stub.to_le_bytes());
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
    pub(crate) const MOST: usize = 48;

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

    /// The check of a free: the filter at that address, with the offsets and the shift of its
    /// words.
    pub(crate) fn free(
        ptr: u8,
        filter: u64,
        multiplier: i32,
        shift: u8,
        counters: i32,
    ) -> Option<Check> {
        let mut check = Check::NONE;
        check.put(&[0x49, 0xba]); // mov r10, imm64
        check.put(&filter.to_le_bytes());
        check.put(&[0x49, 0x8b, 0x82]); // mov rax, qword ptr [r10 + multiplier]
        check.put(&multiplier.to_le_bytes());
        check.put(&[0x48, 0x0f, 0xaf, 0xc0 | register(ptr)?]); // imul rax, ptr
        check.put(&[0x48, 0xc1, 0xe8, shift]); // shr rax, shift
        check.put(&[0x41, 0x80, 0xbc, 0x02]); // cmp byte ptr [r10 + rax + counters], 0
        check.put(&counters.to_le_bytes());
        check.put(&[0]);
        check.jump(0x85, Exit::Undecided); // jne
        Some(check)
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

/// Defines an entry stub, which calls `$handler` with the arguments as an array, the tap, the stack
/// pointer at the entry, and `rbp`.
macro_rules! tap_entry_stub {
    ($(#[$attribute:meta])* fn $name:ident => $handler:ident) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name() {
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "push rdi",
                "mov rdi, rsp",
                "mov rsi, r11",
                "lea rdx, [rsp + 48]",
                "mov rcx, rbp",
                "sub rsp, 8", // seven words align the stack for the call
                ".cfi_adjust_cfa_offset 56",
                "call {handler}",
                "add rsp, 56",
                ".cfi_adjust_cfa_offset -56",
                "ret",
                ".cfi_endproc",
                handler = sym $handler,
            )
        }
    };
}
pub(crate) use tap_entry_stub;
