//! Rust's global allocator: whether a program's own takes each block from malloc.
//!
//! A Rust program calls the functions of its `#[global_allocator]` directly. Most of them, and the
//! default one, call malloc for each block, which is recorded there. Others cut blocks out of
//! memory that they have mapped, or have taken from malloc at once. They are not tapped: in
//! optimised code most of their functions are part of the callers, so a tap would see some blocks
//! and miss frees.
//!
//! Danger: functions of the program are called, at boot, before its own code. A global allocator
//! serves from the first allocation on: Rust has no constructor for it.

use crate::os::elf_symbols::ElfSymbols;
use crate::os::link_map::Module;
use crate::state::thread;

type Allocate = unsafe extern "C-unwind" fn(usize, usize) -> *mut u8;
type Deallocate = unsafe extern "C-unwind" fn(*mut u8, usize, usize);

/// At boot: returns true if the global allocator of the module calls malloc for each block, or if
/// it cannot be asked. `prefix` stands before the names of its functions.
pub(super) fn calls_malloc(module: &Module, symbols: &ElfSymbols<'_>, prefix: &[u8]) -> bool {
    const SIZE: usize = 64;
    const ALIGNMENT: usize = 8;
    let address = |names: [&[u8]; 2]| {
        let is_wanted = |name: &[u8]| {
            let rest = name.strip_prefix(prefix);
            rest.is_some_and(|rest| names.contains(&rest))
        };
        let mut functions = symbols.functions();
        let function = functions.find(|it| it.size > 0 && is_wanted(it.name))?;
        Some(module.address(function.value) as usize)
    };
    let allocate = address([b"12___rust_alloc", b"__rust_alloc"]);
    let deallocate = address([b"14___rust_dealloc", b"__rust_dealloc"]);
    let Some((allocate, deallocate)) = allocate.zip(deallocate) else {
        return true;
    };
    // SAFETY: the compiler defines functions of these names, with these arguments. Its calling
    // convention for words is that of C.
    let (allocate, deallocate) = unsafe {
        (
            std::mem::transmute::<usize, Allocate>(allocate),
            std::mem::transmute::<usize, Deallocate>(deallocate),
        )
    };
    let reaches_malloc = || {
        let thread = thread::current();
        // At this interval, every block that reaches malloc expires the countdown.
        thread.with_sampler(|sampler| sampler.draw(1));
        // SAFETY: a layout of that size and alignment; each block is given back with it.
        unsafe {
            let block = allocate(SIZE, ALIGNMENT);
            if !block.is_null() {
                deallocate(block, SIZE, ALIGNMENT);
            }
        }
        thread.with_sampler(|sampler| sampler.is_due())
    };
    // The first call may take memory for many blocks.
    reaches_malloc();
    reaches_malloc()
}
