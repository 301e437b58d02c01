//! The analysis of code alone (`heapprof_core::find_epilogue`), against the unwind tables of the
//! same code: at every call in libc.

use std::collections::BTreeMap;
use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext,
    UnwindSection, X86_64,
};
use heapprof_core::{Cursor, Epilogue, Frame, find_epilogue};
use object::{Object, ObjectSection, ObjectSymbol};

/// Functions that never return, by libc's names: code behind their calls is not theirs.
const NEVER_RETURN: [&str; 14] = [
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "pthread_exit",
    "thrd_exit",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__assert_fail",
    "__assert",
    "__stack_chk_fail",
    "__chk_fail",
];

const SP: u64 = 0x1000_0000_0000;
const BP: u64 = 0x2000_0000_0000;
const WORD: u64 = 0x4000_0000_0000;

/// Returns the caller's place by a table's row, in the terms of a stack whose words are their
/// addresses. Returns `None` for a kind of row that code does not tell: one that does not give the
/// stack pointer.
fn by_table(row: &gimli::UnwindTableRow<usize>) -> Option<Cursor> {
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let cfa = match register {
        X86_64::RSP => SP.wrapping_add_signed(offset),
        _ => return None,
    };
    let bp = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(at)) => cfa.wrapping_add_signed(at) | WORD,
        None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => BP,
        _ => return None,
    };
    let is_usual = matches!(row.register(Register(16)), Some(RegisterRule::Offset(-8)));
    is_usual.then_some(Cursor {
        address: (cfa - 8) | WORD,
        returns: true,
        sp: cfa,
        bp,
    })
}

/// Returns the addresses behind calls in a function's code, by decoding it from its beginning.
fn behind_calls(code: &[u8]) -> Vec<usize> {
    use yaxpeax_arch::LengthedInstruction as _;
    let decoder = yaxpeax_x86::long_mode::InstDecoder::default();
    let (mut at, mut found) = (0, Vec::new());
    while let Some(Ok(instruction)) = code
        .get(at..)
        .filter(|rest| !rest.is_empty())
        .map(|rest| decoder.decode_slice(rest))
    {
        at += instruction.len().to_const() as usize;
        if instruction.opcode() == yaxpeax_x86::long_mode::Opcode::CALL && at < code.len() {
            found.push(at);
        }
    }
    found
}

#[derive(Debug, Default)]
struct Comparison {
    same: usize,
    unknown: usize,
    /// Differences by the address behind the call.
    different: BTreeMap<u64, String>,
}

fn compare(path: &Path) -> Comparison {
    let bytes = std::fs::read(path).expect("a library of the system's");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let section = |name: &str| file.section_by_name(name).expect("a section");
    let (text, frames) = (section(".text"), section(".eh_frame"));
    let code = text.data().expect("bytes");
    let never: Vec<u64> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.name().is_ok_and(|name| NEVER_RETURN.contains(&name)))
        .map(|symbol| symbol.address())
        .collect();
    let bases = BaseAddresses::default()
        .set_text(text.address())
        .set_eh_frame(frames.address());
    let table = EhFrame::new(frames.data().expect("bytes"), NativeEndian);
    let mut context = UnwindContext::new();
    let mut entries = table.entries(&bases);
    let mut result = Comparison::default();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (start, length) = (fde.initial_address(), fde.len());
        let Some(first) = start
            .checked_sub(text.address())
            .map(|first| first as usize)
        else {
            continue;
        };
        let Some(function) = code.get(first..first + length as usize) else {
            continue;
        };
        for behind in behind_calls(function) {
            let address = start + behind as u64;
            let Ok(row) = fde.unwind_info_for_address(&table, &bases, &mut context, address) else {
                continue;
            };
            let Some(truth) = by_table(row) else { continue };
            let is_never = |called: usize| never.contains(&(text.address() + called as u64));
            match find_epilogue(code, first + behind, true, 0, is_never) {
                Epilogue::Returns(rule) => {
                    let mut frame = Frame::new(address, true, SP, BP, 0);
                    let found = frame.unwind(rule, |at| Some(at | WORD));
                    if found == Some(truth) {
                        result.same += 1;
                    } else {
                        result
                            .different
                            .insert(address, format!("{found:x?}, not {truth:x?}"));
                    }
                }
                Epilogue::Never | Epilogue::Unknown => result.unknown += 1,
            }
        }
    }
    result
}

/// glibc has tables; musl is similar code without tables. (In C++, nearly every function calls some
/// that never return, and a few in a thousand differ.)
#[test]
fn code_says_what_tables_say() {
    let result = compare(Path::new("/lib/x86_64-linux-gnu/libc.so.6"));
    let Comparison {
        same,
        unknown,
        different,
    } = result;
    println!("{same} the same, {unknown} unknown");
    assert!(different.is_empty(), "{different:#?}");
    assert!(
        same > 1000 && same > 4 * unknown,
        "{same} the same, {unknown} unknown"
    );
}
