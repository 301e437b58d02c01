//! PLT stubs: the stubs `foo@plt` through which a module calls functions of other modules.
//!
//! No symbol table names them. But each ends in a jump through a slot, and the relocation that
//! fills the slot names the function:
//!
//! ```text
//!   .plt.sec  0x1050  endbr64; jmp *0x2f76(%rip) ──> slot 0x3fd0 <── R_X86_64_JUMP_SLOT malloc
//! ```

use object::{Architecture, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable};
use object::{RelocationTarget, SectionFlags};
use std::collections::HashMap;

/// Stubs of x86-64 have 16 bytes, those without lazy binding may have 8.
const SHORTEST: u64 = 8;
const USUAL: u64 = 16;

/// The stubs of a module.
#[derive(Default)]
pub(super) struct Stubs<'a> {
    /// By address: begin, end, what it jumps to.
    sorted: Vec<(u64, u64, Target<'a>)>,
}

/// The target of a stub.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// A function of another module, or one that another module may replace.
    Named(&'a [u8]),
    /// The function that the resolver at this address of the same module picks (an ifunc of a
    /// statically linked program).
    PickedBy(u64),
}

impl<'a> Stubs<'a> {
    /// The stubs of a file; none where its processor's stubs are not known here.
    pub(super) fn of(object: &object::File<'a>) -> Self {
        if object.architecture() != Architecture::X86_64 {
            return Stubs::default();
        }
        let slots = slots(object);
        let mut sorted = Vec::new();
        for section in object.sections() {
            if !section.name_bytes().is_ok_and(is_plt) {
                continue;
            }
            let Ok(code) = section.data() else { continue };
            let step = stub_size(&section);
            for (i, stub) in code.chunks(step as usize).enumerate() {
                let begin = section.address().wrapping_add(i as u64 * step);
                let target = jump_slot(begin, stub).and_then(|slot| slots.get(&slot));
                sorted.extend(target.map(|&target| (begin, begin.saturating_add(step), target)));
            }
        }
        sorted.sort_unstable_by_key(|stub| stub.0);
        Stubs { sorted }
    }

    /// Returns the target of the stub that covers an address.
    pub(super) fn at(&self, svma: u64) -> Option<Target<'a>> {
        let after = self.sorted.partition_point(|stub| stub.0 <= svma);
        let &(_, end, target) = self.sorted.get(after.checked_sub(1)?)?;
        (svma < end).then_some(target)
    }
}

/// By address of the slot: what its relocation puts there.
fn slots<'a>(object: &object::File<'a>) -> HashMap<u64, Target<'a>> {
    let names = object.dynamic_symbol_table();
    // A program that is linked statically has its relocations where no dynamic section leads to
    // them.
    object
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .filter_map(|(slot, relocation)| {
            let target = match relocation.target() {
                RelocationTarget::Symbol(index) => {
                    let symbol = names.as_ref()?.symbol_by_index(index).ok()?;
                    let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
                    Target::Named(name)
                }
                _ => Target::PickedBy(u64::try_from(relocation.addend()).ok()?),
            };
            Some((slot, target))
        })
        .collect()
}

fn is_plt(name: &[u8]) -> bool {
    name == b".plt" || name == b".iplt" || name.starts_with(b".plt.")
}

fn stub_size<'a>(section: &impl ObjectSection<'a>) -> u64 {
    // Linkers state it (sh_entsize), except those that write 0; anything but the two known sizes is
    // damage.
    let align = section.align();
    let has_code = matches!(section.flags(), SectionFlags::Elf { sh_flags, .. }
        if sh_flags.contains(object::elf::SHF_EXECINSTR));
    if has_code && align == SHORTEST {
        SHORTEST
    } else {
        USUAL
    }
}

/// The slot that a stub jumps through: `jmp *slot(%rip)`, bare, behind `endbr64`, or behind that
/// and `bnd`.
fn jump_slot(begin: u64, stub: &[u8]) -> Option<u64> {
    let at = [0, 4, 5]
        .into_iter()
        .find(|&at| stub.get(at..at + 2) == Some(&[0xff, 0x25]))?;
    let distance = stub.get(at + 2..at + 6)?.try_into().ok()?;
    let next = begin.wrapping_add(at as u64 + 6);
    Some(next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance))))
}
