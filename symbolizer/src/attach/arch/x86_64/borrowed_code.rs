//! Borrowed code: what a borrowed thread of the process executes, and how it comes back.
//!
//! ```text
//!  gate       a system call, then all registers as they were, then a jump back
//!  creator    blocks signals, creates a thread, and ends like the gate
//!  carrier    in the new thread: loads the library, enters it, ends
//! ```
//!
//! Each routine returns by itself. The registers of the interrupted thread are constants of the
//! code, or lie beside it. So the thread needs nobody from the moment when its registers are set:
//! this program may be killed at any time.
//!
//! The thread returns by a jump, and not by the kernel's return from a signal handler. That one
//! would make an interrupted sleep fail that the kernel would otherwise continue.

use std::ops::Range;

use super::registers::Registers;

/// The bytes of the region: code, data, and a stack.
pub(in crate::attach) const REGION: u64 = 0x18000;
/// Bytes at the start of the region that are code.
pub(in crate::attach) const CODE: u64 = 0x1000;
/// Offsets in the region.
const SLOTS: u64 = 0x1000;
const MASK_OF_ALL: u64 = 0x1200;
const MASK_BEFORE: u64 = 0x1208;
pub(in crate::attach) const PATH: u64 = 0x1400;
const SYMBOL: u64 = 0x1500;
const NAME: u64 = 0x1600;
pub(in crate::attach) const INPUT: u64 = 0x1800;
/// The name of the carrier's thread.
pub(in crate::attach) const CARRIER_NAME: &str = "heapprof-loads";
/// The processor's extended state. It takes less than this room.
const EXTENDED: u64 = 0x4000;

/// A word of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::attach) enum Slot {
    /// 1 when the borrowed thread is about to return.
    IsReturning,
    /// The error of the creation; 0: none.
    CreateError,
    /// The carrier's thread as libc knows it.
    Handle,
    /// The carrier's thread as the kernel knows it.
    Carrier,
    /// 1 when the library has returned; 2 if it was not loaded.
    IsDone,
    /// The result of the library.
    Result,
    /// The address of the loader's message.
    Message,
    /// The library's function; 0: not loaded yet.
    Enter,
    /// The descriptor of the library's file.
    Descriptor,
    PthreadCreate,
    PthreadSelf,
    PthreadDetach,
    ErrnoLocation,
    Dlopen,
    Dlsym,
    Dlerror,
    /// The registers of the borrowed thread.
    Rax,
    Rbx,
    Rcx,
    Rdx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    Rip,
    Flags,
}

impl Slot {
    /// Returns the offset in the region.
    pub(in crate::attach) fn at(self) -> u64 {
        SLOTS + self as u64 * 8
    }
}

/// The general registers with their numbers in instructions, the stack pointer last.
const GENERAL: [(u8, Slot); 16] = [
    (0, Slot::Rax),
    (1, Slot::Rcx),
    (2, Slot::Rdx),
    (3, Slot::Rbx),
    (5, Slot::Rbp),
    (6, Slot::Rsi),
    (7, Slot::Rdi),
    (8, Slot::R8),
    (9, Slot::R9),
    (10, Slot::R10),
    (11, Slot::R11),
    (12, Slot::R12),
    (13, Slot::R13),
    (14, Slot::R14),
    (15, Slot::R15),
    (4, Slot::Rsp),
];

fn value(registers: &Registers, slot: Slot) -> u64 {
    let registers = registers.raw();
    match slot {
        Slot::Rax => registers.rax,
        Slot::Rbx => registers.rbx,
        Slot::Rcx => registers.rcx,
        Slot::Rdx => registers.rdx,
        Slot::Rsi => registers.rsi,
        Slot::Rdi => registers.rdi,
        Slot::Rbp => registers.rbp,
        Slot::Rsp => registers.rsp,
        Slot::R8 => registers.r8,
        Slot::R9 => registers.r9,
        Slot::R10 => registers.r10,
        Slot::R11 => registers.r11,
        Slot::R12 => registers.r12,
        Slot::R13 => registers.r13,
        Slot::R14 => registers.r14,
        Slot::R15 => registers.r15,
        Slot::Rip => registers.rip,
        Slot::Flags => registers.eflags,
        _ => 0,
    }
}

/// The signals that the borrowed thread and its new thread block. By the one that is left, libc
/// changes the ids of every thread, and waits for all of them.
const BLOCKED: u64 = !(1 << (33 - 1));

/// Bytes of a gate.
pub(in crate::attach) const GATE: usize = 2 + 9 * 10 + 6 + 8;

/// Returns the gate, for a thread that goes on with `resumed`.
pub(in crate::attach) fn gate(resumed: &Registers) -> Vec<u8> {
    let mut code = vec![0x0f, 0x05]; // syscall
    let changed = [
        Slot::Rax,
        Slot::Rdi,
        Slot::Rsi,
        Slot::Rdx,
        Slot::R10,
        Slot::R8,
        Slot::R9,
        Slot::Rcx,
        Slot::R11,
    ];
    for (number, slot) in GENERAL.iter().filter(|(_, slot)| changed.contains(slot)) {
        // mov register, constant
        code.extend([0x48 | number >> 3, 0xb8 | number & 7]);
        code.extend(value(resumed, *slot).to_le_bytes());
    }
    code.extend([0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
    code.extend(resumed.pc().to_le_bytes());
    code
}

/// Code under construction, at the start of the region.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    /// An instruction whose last four bytes are the distance to an offset of the region, before
    /// `behind` bytes of the instruction.
    fn relative(&mut self, opcode: &[u8], target: u64, behind: &[u8]) {
        self.0.extend(opcode);
        let next = (self.0.len() + 4 + behind.len()) as i64;
        let distance = (target as i64 - next) as i32;
        self.0.extend(distance.to_le_bytes());
        self.0.extend(behind);
    }

    /// `mov register, [slot]`
    fn load(&mut self, register: u8, at: u64) {
        let prefix = 0x48 | (register >> 3) << 2;
        self.relative(&[prefix, 0x8b, 0x05 | (register & 7) << 3], at, &[]);
    }

    /// `mov [slot], register`
    fn store(&mut self, register: u8, at: u64) {
        let prefix = 0x48 | (register >> 3) << 2;
        self.relative(&[prefix, 0x89, 0x05 | (register & 7) << 3], at, &[]);
    }

    /// `lea register, [at]`
    fn address(&mut self, register: u8, at: u64) {
        let prefix = 0x48 | (register >> 3) << 2;
        self.relative(&[prefix, 0x8d, 0x05 | (register & 7) << 3], at, &[]);
    }

    /// `call [slot]`
    fn call(&mut self, slot: Slot) {
        self.relative(&[0xff, 0x15], slot.at(), &[]);
    }

    /// `mov dword [slot], number`
    fn set(&mut self, slot: Slot, number: u32) {
        self.relative(&[0xc7, 0x05], slot.at(), &number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// A short jump, whose distance [`here`](Self::here) sets.
    fn jump(&mut self, opcode: u8) -> usize {
        self.bytes(&[opcode, 0]);
        self.0.len()
    }

    /// Makes a short jump lead here.
    fn here(&mut self, jump: usize) {
        self.0[jump - 1] = (self.0.len() - jump) as u8;
    }

    /// `rt_sigprocmask(SIG_SETMASK, set, before, 8)`
    fn set_mask(&mut self, set: u64, before: Option<u64>) {
        self.bytes(&[0xb8, 14, 0, 0, 0]); // mov eax, 14
        self.bytes(&[0xbf, 2, 0, 0, 0]); // mov edi, 2
        self.address(6, set);
        match before {
            Some(before) => self.address(2, before),
            None => self.bytes(&[0x31, 0xd2]), // xor edx, edx
        }
        self.bytes(&[0x41, 0xba, 8, 0, 0, 0]); // mov r10d, 8
        self.bytes(&[0x0f, 0x05]);
    }

    /// Selects all of the extended state: `mov eax, -1; mov edx, -1`.
    fn select_all(&mut self) {
        self.bytes(&[0xb8, 0xff, 0xff, 0xff, 0xff, 0xba, 0xff, 0xff, 0xff, 0xff]);
    }
}

/// Returns the code of the region: the creator at its start, the carrier behind it.
pub(in crate::attach) fn code() -> Vec<u8> {
    let mut code = Code(creator(carrier()).0);
    carry(&mut code);
    code.0
}

/// Returns the offset of the carrier, which is the creator's length.
pub(in crate::attach) fn carrier() -> u64 {
    creator(0).0.len() as u64
}

/// Returns the offsets of what the borrowed thread executes after it has set
/// [`Slot::IsReturning`].
pub(in crate::attach) fn way_back() -> Range<u64> {
    let (code, way_back) = creator(0);
    way_back..code.len() as u64
}

/// Returns the code of the creator, and where its way back begins.
fn creator(carrier: u64) -> (Vec<u8>, u64) {
    let mut code = Code::default();
    code.address(4, REGION); // the stack's end
    code.bytes(&[0xfc]); // cld
    code.select_all();
    code.relative(&[0x48, 0x0f, 0xae, 0x25], EXTENDED, &[]); // xsave64
    code.set_mask(MASK_OF_ALL, Some(MASK_BEFORE));
    code.call(Slot::ErrnoLocation);
    code.bytes(&[0x49, 0x89, 0xc4]); // mov r12, rax
    code.bytes(&[0x44, 0x8b, 0x28]); // mov r13d, [rax]
    code.address(7, Slot::Handle.at());
    code.bytes(&[0x31, 0xf6]); // xor esi, esi
    code.address(2, carrier);
    code.bytes(&[0x31, 0xc9]); // xor ecx, ecx
    code.call(Slot::PthreadCreate);
    code.store(0, Slot::CreateError.at());
    code.bytes(&[0x45, 0x89, 0x2c, 0x24]); // mov [r12], r13d
    code.set_mask(MASK_BEFORE, None);
    code.set(Slot::IsReturning, 1);
    let way_back = code.0.len() as u64;
    code.select_all();
    code.relative(&[0x48, 0x0f, 0xae, 0x2d], EXTENDED, &[]); // xrstor64
    code.address(4, Slot::Flags.at());
    code.bytes(&[0x9d]); // popfq
    for (register, slot) in GENERAL {
        code.load(register, slot.at());
    }
    code.relative(&[0xff, 0x25], Slot::Rip.at(), &[]); // jmp [rip slot]
    (code.0, way_back)
}

fn carry(code: &mut Code) {
    const JZ: u8 = 0x74;
    const JNZ: u8 = 0x75;
    const JMP: u8 = 0xeb;
    code.bytes(&[0x53]); // push rbx, which aligns the stack
    code.bytes(&[0xb8, 186, 0, 0, 0, 0x0f, 0x05]); // gettid
    code.store(0, Slot::Carrier.at());
    code.bytes(&[0xb8, 157, 0, 0, 0, 0xbf, 15, 0, 0, 0]); // prctl(PR_SET_NAME, …)
    code.address(6, NAME);
    code.bytes(&[0x0f, 0x05]);
    code.load(0, Slot::Enter.at());
    code.bytes(&[0x48, 0x85, 0xc0]); // test rax, rax
    let is_loaded = code.jump(JNZ);
    code.address(7, PATH);
    code.bytes(&[0xbe, 2, 0, 0, 0]); // mov esi, RTLD_NOW
    code.call(Slot::Dlopen);
    code.bytes(&[0x48, 0x89, 0xc3]); // mov rbx, rax
    code.bytes(&[0xb8, 3, 0, 0, 0]); // mov eax, close
    code.load(7, Slot::Descriptor.at());
    code.bytes(&[0x0f, 0x05]);
    code.bytes(&[0x48, 0x85, 0xdb]); // test rbx, rbx
    let is_not_opened = code.jump(JZ);
    code.bytes(&[0x48, 0x89, 0xdf]); // mov rdi, rbx
    code.address(6, SYMBOL);
    code.call(Slot::Dlsym);
    code.bytes(&[0x48, 0x85, 0xc0]); // test rax, rax
    let is_not_found = code.jump(JZ);
    code.store(0, Slot::Enter.at());
    code.here(is_loaded);
    code.address(7, INPUT);
    code.bytes(&[0xff, 0xd0]); // call rax
    code.store(0, Slot::Result.at());
    code.set(Slot::IsDone, 1);
    let is_done = code.jump(JMP);
    code.here(is_not_opened);
    code.here(is_not_found);
    code.call(Slot::Dlerror);
    code.store(0, Slot::Message.at());
    code.set(Slot::IsDone, 2);
    code.here(is_done);
    code.call(Slot::PthreadSelf);
    code.bytes(&[0x48, 0x89, 0xc7]); // mov rdi, rax
    code.call(Slot::PthreadDetach);
    code.bytes(&[0x31, 0xc0, 0x5b, 0xc3]); // xor eax, eax; pop rbx; ret
}

/// Returns the data of the region from [`CODE`] on, up to the extended state. The borrowed thread
/// goes on with `resumed`.
pub(in crate::attach) fn data(
    resumed: &Registers,
    words: &[(Slot, u64)],
    path: &[u8],
    input: &[u8],
) -> Vec<u8> {
    let mut data = vec![0; (EXTENDED - CODE) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        let at = (at - CODE) as usize;
        data[at..at + bytes.len()].copy_from_slice(bytes);
    };
    for (_, slot) in GENERAL {
        put(slot.at(), &value(resumed, slot).to_le_bytes());
    }
    for slot in [Slot::Rip, Slot::Flags] {
        put(slot.at(), &value(resumed, slot).to_le_bytes());
    }
    for (slot, word) in words {
        put(slot.at(), &word.to_le_bytes());
    }
    put(MASK_OF_ALL, &BLOCKED.to_le_bytes());
    put(PATH, path);
    put(SYMBOL, heapprof_format::ATTACH_SYMBOL.as_bytes());
    put(NAME, CARRIER_NAME.as_bytes());
    put(INPUT, input);
    data
}
