//! x86-64's call instructions, seen from where they return to.

/// Whether `code` can end in a call: by a distance, or through a register or memory. Intel's manual, volume 2, "CALL" (opcodes E8 and FF /2) and
/// table 2-2 (how long what follows the opcode is). Prefixes stand before that and are not looked at.
///
/// One way only: bytes that are no call, or are the end of a longer instruction, may look like one.
#[must_use]
pub fn is_after_call(code: &[u8]) -> bool {
    let from_end = |n: usize| code.len().checked_sub(n).map(|at| &code[at..]);
    if let Some([0xe8, ..]) = from_end(5) {
        return true;
    }
    (2..=7).any(|len| match from_end(len) {
        Some(&[0xff, modrm, ref rest @ ..]) => {
            modrm >> 3 & 7 == 2 && length_after_modrm(modrm, rest.first()) == Some(rest.len())
        }
        _ => false,
    })
}

/// Bytes of a scaled index (`sib`, the first of them) and of the displacement.
fn length_after_modrm(modrm: u8, sib: Option<&u8>) -> Option<usize> {
    let (mode, register) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(0);
    }
    let (sib_len, base) = match register {
        4 => (1, sib? & 7),
        other => (0, other),
    };
    let displacement = match mode {
        0 if base == 5 => 4, // of the instruction itself, or of a scaled index without a base
        0 => 0,
        1 => 1,
        _ => 4,
    };
    Some(sib_len + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `as` writes them (binutils 2.40); each line one call.
    const CALLS: &[&[u8]] = &[
        &[0xe8, 1, 2, 3, 4],                   // call .+5
        &[0xff, 0xd0],                         // call *%rax
        &[0x41, 0xff, 0xd4],                   // call *%r12
        &[0xff, 0x10],                         // call *(%rax)
        &[0xff, 0x50, 8],                      // call *8(%rax)
        &[0x41, 0xff, 0x94, 0x24, 0, 1, 0, 0], // call *256(%r12)
        &[0xff, 0x90, 0, 1, 0, 0],             // call *256(%rax)
        &[0xff, 0x14, 0xc8],                   // call *(%rax,%rcx,8)
        &[0xff, 0x54, 0xc8, 8],                // call *8(%rax,%rcx,8)
        &[0xff, 0x94, 0xc8, 0, 1, 0, 0],       // call *256(%rax,%rcx,8)
        &[0xff, 0x14, 0xcd, 0, 1, 0, 0],       // call *256(,%rcx,8)
        &[0xff, 0x15, 0, 1, 0, 0],             // call *256(%rip)
        &[0xff, 0x55, 0],                      // call *0(%rbp)
    ];

    #[test]
    fn a_call_is_seen_whatever_stands_before_it() {
        for call in CALLS {
            for before in [&[][..], &[0x90; 6], &[0; 6], &[0xcc; 6]] {
                let code = [before, call].concat();
                assert!(is_after_call(&code), "{code:02x?}");
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_none() {
        for call in CALLS {
            let at = call.iter().position(|&b| b == 0xff || b == 0xe8).unwrap();
            for cut in at + 1..call.len() {
                assert!(!is_after_call(&call[..cut]), "{:02x?}", &call[..cut]);
            }
            let more = [&[0x90; 6], *call, &[0x90]].concat();
            assert!(!is_after_call(&more), "{more:02x?}");
        }
    }

    #[test]
    fn other_instructions_are_none() {
        for code in [
            &[][..],
            &[0x90; 7],
            &[0xe9, 1, 2, 3, 4],       // jmp
            &[0xff, 0xe0],             // jmp *%rax
            &[0xff, 0x60, 8],          // jmp *8(%rax)
            &[0xff, 0xf0],             // push %rax
            &[0x48, 0xff, 0xc0],       // inc %rax
            &[0x10, 0x7f, 0, 0, 1, 0], // the end of a pointer, as on a stack
        ] {
            assert!(!is_after_call(code), "{code:02x?}");
        }
    }
}
