//! Interpreter of seccomp filters: the answer of a filter to a system call.
//!
//! Model: seccomp(2). A filter is a program of classic BPF over one `struct seccomp_data`: number,
//! architecture, instruction pointer, six arguments. It has no loops, because jumps only go
//! forward, and the kernel rejects a program longer than [`LONGEST`]. Instructions have the numbers
//! of `linux/bpf_common.h` and `linux/filter.h`, answers those of `linux/seccomp.h`.
//!
//! A malformed filter counts as the worst answer: the kernel rejects it, or this module does not
//! understand it.

use crate::arch::AUDIT_ARCH;

/// One instruction, as the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if the condition is met.
    pub met: u8,
    /// Instructions to skip if the condition is not met.
    pub unmet: u8,
    /// The operand.
    pub operand: u32,
}

/// Most instructions of a filter (`BPF_MAXINSNS`).
pub const LONGEST: usize = 4096;

/// A system call: its number and its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCall {
    /// The number, as the processor's kernel counts.
    pub number: u32,
    /// The arguments in order; 0 where the value does not matter.
    pub arguments: [u64; 6],
}

/// Answers after which a process continues: ERRNO, USER_NOTIF, TRACE, LOG and ALLOW. The others end
/// the process or its thread, or send a signal.
const HARMLESS: [u32; 5] = [
    0x0005_0000,
    0x7FC0_0000,
    0x7FF0_0000,
    0x7FFC_0000,
    0x7FFF_0000,
];
const ACTION: u32 = 0xFFFF_0000;
const KILL: u32 = 0;

/// Returns true if a process behind that filter continues after each of the calls, granted or
/// refused.
#[must_use]
pub fn survives(filter: &[Instruction], calls: &[SystemCall]) -> bool {
    filter.len() <= LONGEST
        && calls
            .iter()
            .all(|call| HARMLESS.contains(&(answer(filter, call).unwrap_or(KILL) & ACTION)))
}

/// Returns the word of `struct seccomp_data` at that offset.
fn word(call: &SystemCall, offset: u32) -> Option<u32> {
    if !offset.is_multiple_of(4) {
        return None;
    }
    match offset / 4 {
        0 => Some(call.number),
        1 => Some(AUDIT_ARCH),
        2 | 3 => Some(0), // the instruction pointer
        n => {
            let argument = *call.arguments.get(n as usize / 2 - 2)?;
            Some(if n % 2 == 0 {
                argument as u32
            } else {
                (argument >> 32) as u32
            })
        }
    }
}

/// Returns the filter's answer, or `None` if the filter is malformed.
fn answer(filter: &[Instruction], call: &SystemCall) -> Option<u32> {
    let (mut a, mut x) = (0u32, 0u32);
    let mut memory = [0u32; 16];
    let mut at = 0usize;
    loop {
        let Instruction {
            code,
            met,
            unmet,
            operand: k,
        } = *filter.get(at)?;
        at += 1;
        let source = if code & 0x08 != 0 { x } else { k };
        match code {
            0x20 => a = word(call, k)?,                               // LD W ABS
            0x80 => a = 64,                                           // LD W LEN: bytes of the data
            0x00 => a = k,                                            // LD IMM
            0x01 => x = k,                                            // LDX IMM
            0x81 => x = 64,                                           // LDX W LEN
            0x60 => a = *memory.get(k as usize)?,                     // LD MEM
            0x61 => x = *memory.get(k as usize)?,                     // LDX MEM
            0x02 => *memory.get_mut(k as usize)? = a,                 // ST
            0x03 => *memory.get_mut(k as usize)? = x,                 // STX
            0x04 | 0x0C => a = a.wrapping_add(source),                // ALU ADD
            0x14 | 0x1C => a = a.wrapping_sub(source),                // SUB
            0x24 | 0x2C => a = a.wrapping_mul(source),                // MUL
            0x34 | 0x3C => a = a.checked_div(source)?,                // DIV
            0x44 | 0x4C => a |= source,                               // OR
            0x54 | 0x5C => a &= source,                               // AND
            0x64 | 0x6C => a = a.checked_shl(source)?,                // LSH
            0x74 | 0x7C => a = a.checked_shr(source)?,                // RSH
            0x84 => a = a.wrapping_neg(),                             // NEG
            0xA4 | 0xAC => a ^= source,                               // XOR
            0x05 => at = at.checked_add(k as usize)?,                 // JMP JA
            0x15 | 0x1D => at += branch(a == source, met, unmet),     // JEQ
            0x25 | 0x2D => at += branch(a > source, met, unmet),      // JGT
            0x35 | 0x3D => at += branch(a >= source, met, unmet),     // JGE
            0x45 | 0x4D => at += branch(a & source != 0, met, unmet), // JSET
            0x06 => return Some(k),                                   // RET K
            0x16 => return Some(a),                                   // RET A
            0x07 => x = a,                                            // TAX
            0x87 => a = x,                                            // TXA
            _ => return None,
        }
    }
}

fn branch(is_met: bool, met: u8, unmet: u8) -> usize {
    usize::from(if is_met { met } else { unmet })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALLOW: u32 = 0x7FFF_0000;
    const ERRNO: u32 = 0x0005_0001;
    const TRAP: u32 = 0x0003_0000;

    fn step(code: u16, met: u8, unmet: u8, operand: u32) -> Instruction {
        Instruction {
            code,
            met,
            unmet,
            operand,
        }
    }

    fn call(number: u32, first: u64) -> SystemCall {
        SystemCall {
            number,
            arguments: [first, 0, 0, 0, 0, 0x1234_5678_9ABC_DEF0],
        }
    }

    /// A filter as sandboxes write it. It kills another architecture, grants two calls, one of
    /// which depends on an argument, and refuses one call.
    fn usual() -> Vec<Instruction> {
        vec![
            step(0x20, 0, 0, 4), // the architecture
            step(0x15, 1, 0, AUDIT_ARCH),
            step(0x06, 0, 0, KILL),
            step(0x20, 0, 0, 0), // the number
            step(0x15, 0, 1, 1), // write
            step(0x06, 0, 0, ALLOW),
            step(0x15, 0, 1, 2), // open
            step(0x06, 0, 0, ERRNO),
            step(0x15, 0, 3, 28), // madvise
            step(0x20, 0, 0, 16), // its first argument
            step(0x15, 0, 1, 4),
            step(0x06, 0, 0, ALLOW),
            step(0x06, 0, 0, TRAP),
        ]
    }

    #[test]
    fn a_filter_as_sandboxes_write_it() {
        let filter = usual();
        for (call, expected) in [
            (call(1, 0), ALLOW),
            (call(2, 0), ERRNO),
            (call(28, 4), ALLOW),
            (call(28, 5), TRAP),
            (call(3, 0), TRAP),
        ] {
            assert_eq!(answer(&filter, &call), Some(expected), "{call:?}");
        }
        assert!(survives(&filter, &[call(1, 0), call(2, 0), call(28, 4)]));
        assert!(!survives(&filter, &[call(1, 0), call(28, 5)]));
        assert!(!survives(&filter, &[call(3, 0)]));
    }

    #[test]
    fn arithmetic_is_the_kernels() {
        let last = |code, a: u32, k: u32| {
            let filter = [
                step(0x00, 0, 0, a),
                step(code, 0, 0, k),
                step(0x16, 0, 0, 0),
            ];
            answer(&filter, &call(0, 0))
        };
        assert_eq!(last(0x04, u32::MAX, 2), Some(1));
        assert_eq!(last(0x14, 1, 2), Some(u32::MAX));
        assert_eq!(last(0x24, 1 << 31, 2), Some(0));
        assert_eq!(last(0x34, 7, 2), Some(3));
        assert_eq!(last(0x34, 7, 0), None);
        assert_eq!(last(0x44, 5, 2), Some(7));
        assert_eq!(last(0x54, 7, 2), Some(2));
        assert_eq!(last(0x64, 1, 4), Some(16));
        assert_eq!(last(0x74, 16, 4), Some(1));
        assert_eq!(last(0x84, 1, 0), Some(u32::MAX));
        assert_eq!(last(0xA4, 5, 1), Some(4));
        // Memory, and the index register.
        let filter = [
            step(0x20, 0, 0, 60), // upper half of the last argument
            step(0x02, 0, 0, 15),
            step(0x61, 0, 0, 15),
            step(0x00, 0, 0, 1),
            step(0x0C, 0, 0, 0),
            step(0x16, 0, 0, 0),
        ];
        assert_eq!(answer(&filter, &call(0, 0)), Some(0x1234_5679));
    }

    #[test]
    fn what_is_no_filter_is_the_worst() {
        assert!(!survives(&[], &[call(0, 0)]));
        assert!(!survives(&[step(0x05, 0, 0, u32::MAX)], &[call(0, 0)])); // jumps out
        assert!(!survives(
            &[step(0x20, 0, 0, 64), step(0x06, 0, 0, ALLOW)],
            &[call(0, 0)]
        ));
        assert!(!survives(
            &[step(0x20, 0, 0, 2), step(0x06, 0, 0, ALLOW)],
            &[call(0, 0)]
        ));
        assert!(!survives(
            &[step(0xFF, 0, 0, 0), step(0x06, 0, 0, ALLOW)],
            &[call(0, 0)]
        ));
        assert!(survives(&[step(0x06, 0, 0, ALLOW)], &[call(0, 0)]));
    }

    proptest! {
        /// Any input comes to an end.
        #[test]
        fn anything_ends(
            filter in prop::collection::vec((any::<u16>(), any::<u8>(), any::<u8>(), any::<u32>()), 0..100),
            number: u32,
        ) {
            let filter: Vec<_> = filter.into_iter().map(|(code, met, unmet, k)| step(code & 0xFF, met, unmet, k)).collect();
            let _ = survives(&filter, &[call(number, 0)]);
        }
    }
}
