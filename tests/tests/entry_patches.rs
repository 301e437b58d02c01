//! Patches of entries (`heapprof_core::EntryPatch`) of real functions: libc's, those of the
//! allocators that this machine has, and those of a compiler's output at several levels.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;

use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use heapprof_core::{EntryPatch, Refusal};
use heapprof_tests::is_glibc_before;
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use yaxpeax_arch::LengthedInstruction as _;
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec};

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

/// How far behind a function its trampoline lies.
const NEAR: u64 = 0x123_4560;

/// A function of a library.
struct Function<'a> {
    name: String,
    address: u64,
    code: &'a [u8],
}

/// The code of a library.
struct Library<'a> {
    /// Functions with a name, one for each address.
    functions: Vec<Function<'a>>,
    /// All ranges of code that have unwind rules: functions with and without a name, and the parts
    /// that compilers split off.
    code_ranges: Vec<(u64, &'a [u8])>,
}

impl<'a> Library<'a> {
    fn parse(bytes: &'a [u8]) -> Library<'a> {
        let file = object::File::parse(bytes).expect("an ELF file");
        let texts: Vec<(u64, &[u8])> = file
            .sections()
            .filter(|section| section.kind() == object::SectionKind::Text)
            .map(|section| (section.address(), section.data().expect("bytes")))
            .collect();
        let code = |address: u64, len: u64| {
            texts.iter().find_map(|(start, text)| {
                let first = address.checked_sub(*start)? as usize;
                text.get(first..first.checked_add(len as usize)?)
            })
        };
        let mut functions = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let (address, size) = (symbol.address(), symbol.size());
            if symbol.kind() != SymbolKind::Text || size == 0 {
                continue;
            }
            if let Some(code) = code(address, size) {
                let name = symbol.name().expect("a name").to_owned();
                functions.insert(
                    address,
                    Function {
                        name,
                        address,
                        code,
                    },
                );
            }
        }
        let section = file.section_by_name(".eh_frame").expect("unwind rules");
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let table = EhFrame::new(section.data().expect("bytes"), NativeEndian);
        let mut code_ranges = Vec::new();
        let mut entries = table.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
                continue;
            };
            if let Some(code) = code(fde.initial_address(), fde.len()) {
                code_ranges.push((fde.initial_address(), code));
            }
        }
        Library {
            functions: functions.into_values().collect(),
            code_ranges,
        }
    }
}

/// An instruction and its place.
#[derive(Clone, Copy)]
struct Placed {
    address: u64,
    instruction: Instruction,
}

impl Placed {
    fn end(&self) -> u64 {
        self.address + self.instruction.len().to_const()
    }

    fn opcode(&self) -> Opcode {
        self.instruction.opcode()
    }

    /// Returns the target of a branch, and `None` for another instruction.
    fn target(&self) -> Option<u64> {
        let opcode = self.opcode();
        let may_branch = opcode.is_jcc() || [Opcode::JMP, Opcode::CALL].contains(&opcode);
        let distance = match self.instruction.operand(0) {
            Operand::ImmediateI8 { imm } => i64::from(imm),
            Operand::ImmediateI32 { imm } => i64::from(imm),
            _ => return None,
        };
        may_branch.then(|| self.end().wrapping_add_signed(distance))
    }

    /// Returns the operands. An operand relative to the instruction's address is that address.
    fn operands(&self) -> Vec<(Operand, Option<u64>)> {
        (0..self.instruction.operand_count())
            .map(|index| match self.instruction.operand(index) {
                Operand::Disp { base, disp } if base == RegSpec::rip() => {
                    let word = self.end().wrapping_add_signed(disp.into());
                    (Operand::Nothing, Some(word))
                }
                Operand::MemDeref { base } if base == RegSpec::rip() => {
                    (Operand::Nothing, Some(self.end()))
                }
                other => (other, None),
            })
            .collect()
    }
}

fn instructions(code: &[u8], address: u64) -> Vec<Placed> {
    let decoder = InstDecoder::default();
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let Ok(instruction) = decoder.decode_slice(&code[at..]) else {
            break;
        };
        found.push(Placed {
            address: address + at as u64,
            instruction,
        });
        at += instruction.len().to_const() as usize;
    }
    found
}

/// Returns an address of 8 bytes among the moved bytes.
fn word_at(moved: &[u8], trampoline: u64, address: u64) -> Option<u64> {
    let first = address.checked_sub(trampoline)? as usize;
    let bytes = moved.get(first..first + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
}

/// Checks that what is written for a trampoline does what the replaced instructions do.
fn check_moved(patch: &EntryPatch, trampoline: u64) -> Result<(), String> {
    let mut out = [0; EntryPatch::MOST_MOVED];
    let len = patch
        .write_moved(trampoline, &mut out)
        .map_err(|refusal| refusal.to_string())?;
    let moved = &out[..len];
    let mut new = instructions(moved, trampoline).into_iter();
    let mut line_ends = false;
    for old in instructions(patch.replaced(), patch.at()) {
        if line_ends {
            // Padding stays behind.
            break;
        }
        let there = new.next().ok_or("an instruction is missing")?;
        if old.opcode() == Opcode::CALL {
            // The return address is pushed, and a jump follows.
            let [(_, Some(word))] = there.operands()[..] else {
                return Err("no word is pushed".to_owned());
            };
            let jump = new.next().ok_or("a jump is missing")?;
            let is_right = there.opcode() == Opcode::PUSH
                && word_at(moved, trampoline, word) == Some(old.end())
                && patch.resumes_at() == Some(old.end())
                && jump.opcode() == Opcode::JMP
                && (
                    jump.target(),
                    old.target().is_none().then(|| jump.operands()),
                ) == (old.target(), old.target().is_none().then(|| old.operands()));
            return is_right.then_some(()).ok_or("the call differs".to_owned());
        }
        let is_same = match old.target() {
            Some(target) => old.opcode() == there.opcode() && there.target() == Some(target),
            None => {
                old.opcode() == there.opcode()
                    && old.instruction.prefixes == there.instruction.prefixes
                    && old.operands() == there.operands()
            }
        };
        if !is_same {
            return Err(format!(
                "another instruction for that at {:#x}",
                old.address
            ));
        }
        line_ends = [Opcode::JMP, Opcode::RETURN].contains(&old.opcode());
    }
    match (new.next(), patch.resumes_at()) {
        (None, None) if line_ends => Ok(()),
        (Some(back), Some(to)) if !line_ends && back.target() == Some(to) => match new.next() {
            None => Ok(()),
            Some(_) => Err("there is code behind the jump back".to_owned()),
        },
        _ => Err("the jump back differs".to_owned()),
    }
}

/// The result for all functions of a library.
#[derive(Debug, Default)]
struct Survey {
    patched: usize,
    one_instruction: usize,
    one_store: usize,
    refused: BTreeMap<String, Vec<String>>,
    /// Functions into whose replaced bytes other functions jump.
    entered: Vec<String>,
    wrong: Vec<String>,
}

impl Survey {
    fn of(library: &Library<'_>) -> Survey {
        let mut survey = Survey::default();
        let mut patches = Vec::new();
        for function in &library.functions {
            match EntryPatch::plan(function.code, function.address) {
                Ok(patch) => {
                    survey.patched += 1;
                    survey.one_instruction += usize::from(patch.is_one_instruction());
                    survey.one_store +=
                        usize::from(patch.is_one_instruction() && patch.is_in_one_word());
                    for trampoline in [patch.at() + NEAR, patch.at() + (1 << 30)] {
                        if let Err(difference) = check_moved(&patch, trampoline) {
                            let wrong = format!("{}: {difference}", function.name);
                            survey.wrong.push(wrong);
                        }
                    }
                    patches.push((patch, function));
                }
                Err(refusal) => {
                    let kind = match refusal {
                        Refusal::Unmovable { why, .. } => format!("{why:?}"),
                        other => format!("{other:?}"),
                    };
                    let kind = kind.split([' ', '{']).next().unwrap_or_default().to_owned();
                    survey
                        .refused
                        .entry(kind)
                        .or_default()
                        .push(function.name.clone());
                }
            }
        }
        survey.find_branches_into(library, &patches);
        survey
    }

    /// Finds branches from all code of the library into replaced bytes: what a plan assumes of code
    /// that it does not see. `EntryPatch::check_other` must refuse the patch then, and only then.
    fn find_branches_into(
        &mut self,
        library: &Library<'_>,
        patches: &[(EntryPatch, &Function<'_>)],
    ) {
        let mut entered = BTreeMap::new();
        for (address, code) in &library.code_ranges {
            for placed in instructions(code, *address) {
                let Some(target) = placed.target() else {
                    continue;
                };
                let next = patches.partition_point(|(patch, _)| patch.at() < target);
                let Some(index) = next.checked_sub(1) else {
                    continue;
                };
                let (patch, function) = &patches[index];
                if target < patch.at() + patch.len() as u64 {
                    entered.insert(function.address, (*address, *code));
                }
            }
        }
        for (patch, function) in patches.iter().filter(|(_, function)| {
            // A sample: each check reads all code.
            entered.contains_key(&function.address) || function.address % 2048 == 0
        }) {
            let is_refused = (library.code_ranges.iter())
                .any(|(address, code)| patch.check_other(code, *address).is_err());
            if is_refused != entered.contains_key(&function.address) {
                self.wrong.push(format!("{}: {is_refused}", function.name));
            }
            if is_refused {
                self.entered.push(function.name.clone());
            }
        }
    }

    #[track_caller]
    fn show_and_check(&self, name: &str) {
        println!(
            "{name}: {} patched, {} of one instruction, {} by one store",
            self.patched, self.one_instruction, self.one_store
        );
        for (kind, names) in &self.refused {
            let first = &names[..names.len().min(4)];
            println!("  {kind}: {} such as {first:?}", names.len());
        }
        println!("  other functions jump into {:?}", self.entered);
        assert!(self.wrong.is_empty(), "{name}: {:#?}", self.wrong);
    }

    fn has_refused(&self, name: &str) -> bool {
        self.refused
            .values()
            .flatten()
            .any(|refused| refused == name)
    }

    fn refused(&self) -> usize {
        self.refused.values().map(Vec::len).sum()
    }
}

#[test]
fn functions_of_libc_move_exactly() {
    let bytes = std::fs::read(Path::new(LIBRARIES).join("libc.so.6")).expect("libc");
    let survey = Survey::of(&Library::parse(&bytes));
    survey.show_and_check("libc.so.6");
    assert!(survey.patched > 1000 && survey.patched > 20 * survey.refused());
    if is_glibc_before(2, 34) {
        // Its malloc jumps to a hook that the program may set.
        assert!(survey.has_refused("malloc"), "{:?}", survey.refused);
        return;
    }
    for name in [
        "malloc",
        "free",
        "calloc",
        "realloc",
        "memalign",
        "posix_memalign",
    ] {
        assert!(!survey.has_refused(name), "{name}: {:?}", survey.refused);
    }
}

#[test]
fn functions_of_allocators_move_exactly() {
    for (name, functions) in [
        (
            "libjemalloc.so.2",
            &["malloc", "free", "mallocx", "sdallocx", "xallocx"][..],
        ),
        (
            "libtcmalloc_minimal.so.4",
            &["malloc", "free", "tc_malloc", "tc_free", "_Znwm"],
        ),
        (
            "libtcmalloc.so.4",
            &["malloc", "free", "tc_malloc", "tc_free", "_ZdlPv"],
        ),
        (
            "libmimalloc.so.2.0",
            &["mi_malloc", "mi_free", "mi_realloc", "mi_heap_malloc"],
        ),
    ] {
        let Ok(bytes) = std::fs::read(Path::new(LIBRARIES).join(name)) else {
            println!("{name} is not installed");
            continue;
        };
        let survey = Survey::of(&Library::parse(&bytes));
        survey.show_and_check(name);
        assert!(survey.entered.is_empty(), "{:?}", survey.entered);
        for function in functions {
            assert!(
                !survey.has_refused(function),
                "{function}: {:?}",
                survey.refused
            );
        }
    }
}

/// Functions whose entries differ: leaf functions, loops, calls and tail calls. Each takes and
/// returns numbers only.
const SOURCE: &str = r#"
typedef unsigned long u64;
static volatile u64 counter = 5;
u64 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__attribute__((noinline)) u64 constant(u64 a, u64 b) { (void)a; (void)b; return 123456789; }
__attribute__((noinline)) u64 relative(u64 a, u64 b) { return counter + a - b; }
__attribute__((noinline)) u64 compares(u64 a, u64 b) { if (counter == 5) return a; return b; }
__attribute__((noinline)) u64 element(u64 a, u64 b) { return table[a & 7] * b; }
__attribute__((noinline)) u64 branches(u64 a, u64 b) { if (!a) return b * 3; if (a > b) return a / (b | 1); return a ^ 77; }
__attribute__((noinline)) u64 loops(u64 a, u64 b) { u64 sum = b; for (u64 i = 0; i < (a & 63); i++) sum = sum * 31 + table[i & 7]; return sum; }
__attribute__((noinline)) u64 calls(u64 a, u64 b) { u64 kept = a * 7; return relative(b, a) + kept + loops(b, a); }
__attribute__((noinline)) u64 tail(u64 a, u64 b) { return calls(b, a); }
__attribute__((noinline)) u64 recursive(u64 a, u64 b) { return (a & 15) == 0 ? b : 1 + 2 * recursive((a & 15) - 1, b + 1); }
__attribute__((noinline)) u64 switches(u64 a, u64 b) { switch (a & 7) { case 0: return b; case 1: return b * 3; case 2: return b ^ 9; case 3: return a - b; case 4: return a * b; case 5: return ~b; case 6: return b >> 3; default: return 8; } }
__attribute__((noinline)) u64 floats(u64 a, u64 b) { double x = (double)(a & 1023) / 3.0, y = (double)(b & 1023); return (u64)(x * y + 0.25); }
__attribute__((noinline)) u64 exchanges(u64 a, u64 b) { u64 word = a; __atomic_fetch_add(&word, b, __ATOMIC_SEQ_CST); return __sync_val_compare_and_swap(&word, a + b, 3) + word; }
__attribute__((noinline)) u64 many(u64 a, u64 b) { volatile u64 kept[40]; for (int i = 0; i < 40; i++) kept[i] = a + (u64)i * b; u64 sum = 0; for (int i = 0; i < 40; i++) sum ^= relative(kept[i], b); return sum; }
"#;

const NAMES: [&str; 13] = [
    "constant",
    "relative",
    "compares",
    "element",
    "branches",
    "loops",
    "calls",
    "tail",
    "recursive",
    "switches",
    "floats",
    "exchanges",
    "many",
];

/// A library that is loaded for a test alone, so that its code can be patched.
struct Loaded {
    handle: *mut c_void,
    bytes: Vec<u8>,
}

impl Loaded {
    fn open(path: &Path) -> Loaded {
        let bytes = std::fs::read(path).expect("the library");
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: the name ends with a zero byte, and the library's constructors are harmless.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot open {}", path.display());
        Loaded { handle, bytes }
    }

    fn address(&self, name: &str) -> u64 {
        let name = CString::new(name).expect("no zero byte");
        // SAFETY: the handle is an open library's, and the name ends with a zero byte.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?} is missing");
        address as u64
    }

    /// Returns the file's code of the function at an address.
    fn code(&self, address: u64) -> Vec<u8> {
        // SAFETY: all fields are addresses, for which zero is a value.
        let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is writable, and any address may be asked for.
        let answer = unsafe { libc::dladdr(address as *const c_void, &raw mut found) };
        assert_ne!(answer, 0, "no library has the function");
        let in_file = address - found.dli_fbase as u64;
        let library = Library::parse(&self.bytes);
        let range = library
            .code_ranges
            .iter()
            .find(|(start, _)| *start == in_file);
        range.expect("the function has unwind rules").1.to_vec()
    }
}

/// A place near a library for trampolines, which count how often they run.
///
/// ```text
///  function ──> inc [count] ─> moved instructions ─> the rest of the function
/// ```
struct Trampolines {
    code: u64,
    next: u64,
}

const PAGE: u64 = 4096;
const CODE_PAGES: u64 = 4;

impl Trampolines {
    /// Maps code pages, and a page of counts behind them.
    fn near(address: u64) -> Trampolines {
        for step in 1..1000 {
            let hint = (address & !(PAGE - 1)).wrapping_sub(step << 20);
            // SAFETY: new memory, at a place where nothing is mapped.
            let there = unsafe {
                libc::mmap(
                    hint as *mut c_void,
                    ((CODE_PAGES + 1) * PAGE) as usize,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                    -1,
                    0,
                )
            };
            if there == hint as *mut c_void {
                return Trampolines {
                    code: hint,
                    next: 0,
                };
            }
        }
        panic!("there is no room near {address:#x}");
    }

    fn count_place(&self, index: u64) -> u64 {
        self.code + CODE_PAGES * PAGE + index * 8
    }

    fn count(&self, index: u64) -> u64 {
        // SAFETY: the page of counts is readable as long as the process runs.
        unsafe { (self.count_place(index) as *const u64).read_volatile() }
    }

    /// Patches a function. Returns the index of its count.
    fn patch(&mut self, patch: &EntryPatch) -> u64 {
        const ROOM: u64 = 128;
        let index = self.next;
        self.next += 1;
        let stub = self.code + index * ROOM;
        let distance = (self.count_place(index).wrapping_sub(stub + 7)) as i32;
        let mut code = [0xcc; ROOM as usize];
        code[..3].copy_from_slice(&[0x48, 0xff, 0x05]); // inc qword [rip + distance]
        code[3..7].copy_from_slice(&distance.to_le_bytes());
        let len = patch
            .write_moved(stub + 7, &mut code[7..])
            .expect("in reach");
        assert!(len <= EntryPatch::MOST_MOVED);
        write_code(stub, &code);
        write_code(patch.at(), &patch.jump(stub).expect("in reach"));
        index
    }
}

/// Writes code. The pages are executable before and after, but not meanwhile.
fn write_code(address: u64, bytes: &[u8]) {
    let first = address & !(PAGE - 1);
    let len = (address + bytes.len() as u64 - first) as usize;
    let protect = |protection| {
        // SAFETY: the pages hold code of a library that one thread of this test uses, or
        // trampolines. No other thread runs it.
        let answer = unsafe { libc::mprotect(first as *mut c_void, len, protection) };
        assert_eq!(answer, 0, "cannot protect {first:#x}");
    };
    protect(libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the pages are writable, and the bytes are this process' own memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    protect(libc::PROT_READ | libc::PROT_EXEC);
}

/// Plans the patch of a loaded function, with its padding if the function is too short.
fn plan(loaded: &Loaded, address: u64) -> Result<EntryPatch, Refusal> {
    let code = loaded.code(address);
    let plan = EntryPatch::plan(&code, address);
    let Err(Refusal::TooShort { .. }) = plan else {
        return plan;
    };
    let len = (address + code.len() as u64).next_multiple_of(16) - address;
    // SAFETY: the bytes up to the next multiple of 16 lie in the page of the function's end.
    let code = unsafe { std::slice::from_raw_parts(address as *const u8, len as usize) };
    EntryPatch::plan(code, address)
}

/// Two numbers, of a kind that reaches all branches.
fn inputs() -> impl Iterator<Item = (u64, u64)> {
    (0..400u64).map(|i| {
        let a = i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32);
        (if i % 3 == 0 { i / 3 % 40 } else { a }, a >> (i % 64))
    })
}

fn compile(folder: &Path, flags: &str) -> PathBuf {
    let (source, library) = (folder.join("source.c"), folder.join("library.so"));
    std::fs::write(&source, SOURCE).expect("a folder to write to");
    let status = Command::new("gcc")
        .args(flags.split(' '))
        .args(["-std=gnu11", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o"])
        .args([&library, &source])
        .status()
        .expect("gcc runs");
    assert!(status.success(), "gcc {flags}");
    library
}

#[test]
#[cfg_attr(target_env = "musl", ignore = "a static program opens no library")]
fn patched_functions_return_the_same() {
    for flags in [
        "-O0 -fcf-protection=none",
        "-O0 -fcf-protection=full",
        "-O1 -fcf-protection=none",
        "-O2 -fcf-protection=none",
        "-O2 -fcf-protection=full",
        "-O3 -mno-red-zone",
        "-Os -fno-plt",
        "-O2 -fno-omit-frame-pointer -fstack-protector-all",
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = compile(folder.path(), flags);
        let survey_bytes = std::fs::read(&path).expect("the library");
        Survey::of(&Library::parse(&survey_bytes)).show_and_check(flags);
        let loaded = Loaded::open(&path);
        let function = |name| {
            // SAFETY: all functions of SOURCE have this type, and are called with any numbers.
            unsafe {
                std::mem::transmute::<*const c_void, extern "C" fn(u64, u64) -> u64>(
                    loaded.address(name) as *const c_void,
                )
            }
        };
        let results = |name| {
            inputs()
                .map(|(a, b)| function(name)(a, b))
                .collect::<Vec<u64>>()
        };
        let before = NAMES.map(results);
        let mut trampolines = Trampolines::near(loaded.address("constant"));
        let mut patched = 0;
        let counts = NAMES.map(|name| {
            let patch = plan(&loaded, loaded.address(name));
            if let Err(refusal) = &patch {
                println!("{flags}: {name}: {refusal}");
            }
            patched += usize::from(patch.is_ok());
            patch.ok().map(|patch| trampolines.patch(&patch))
        });
        let calls_before = counts.map(|index| index.map(|index| trampolines.count(index)));
        assert!(calls_before.iter().flatten().all(|&calls| calls == 0));
        for ((name, count), before) in NAMES.into_iter().zip(counts).zip(before) {
            assert_eq!(results(name), before, "{flags}: {name}");
            if let Some(index) = count {
                let calls = trampolines.count(index);
                assert!(calls >= inputs().count() as u64, "{flags}: {name}: {calls}");
            }
        }
        assert!(patched + 2 >= NAMES.len(), "{flags}: {patched} patched");
    }
}

/// Functions of libm from one number to one.
const OF_ONE_NUMBER: [&str; 40] = [
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "cbrt",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "nearbyint",
    "round",
    "roundeven",
    "fabs",
    "logb",
    "erf",
    "erfc",
    "lgamma",
    "tgamma",
    "j0",
    "j1",
    "y0",
    "y1",
    "significand",
    "exp10",
];

/// A copy of the system's libm, all of whose entries are patched: real code, with its ways for
/// several processors.
#[test]
#[cfg_attr(target_env = "musl", ignore = "a static program opens no library")]
fn a_patched_library_computes_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("copy_of_libm.so");
    std::fs::copy(Path::new(LIBRARIES).join("libm.so.6"), &path).expect("a copy");
    let loaded = Loaded::open(&path);
    let values = || (0..300).map(|i| f64::from(i - 100) * 0.37 + 0.001 / f64::from(i + 1));
    let results = |name| {
        // SAFETY: all functions of OF_ONE_NUMBER have this type.
        let function = unsafe {
            std::mem::transmute::<*const c_void, extern "C" fn(f64) -> f64>(
                loaded.address(name) as *const c_void
            )
        };
        values()
            .map(|value| function(value).to_bits())
            .collect::<Vec<u64>>()
    };
    let before = OF_ONE_NUMBER.map(results);
    let mut trampolines = Trampolines::near(loaded.address("sin"));
    let mut counts = BTreeMap::new();
    for name in OF_ONE_NUMBER {
        // Two names may be of one function.
        let address = loaded.address(name);
        if counts.values().any(|&(other, _)| other == address) {
            continue;
        }
        match plan(&loaded, address) {
            Ok(patch) => {
                counts.insert(name, (address, trampolines.patch(&patch)));
            }
            Err(refusal) => println!("{name}: {refusal}"),
        }
    }
    for (name, before) in OF_ONE_NUMBER.into_iter().zip(before) {
        assert_eq!(results(name), before, "{name}");
    }
    for (name, &(_, index)) in &counts {
        let calls = trampolines.count(index);
        assert!(calls >= values().count() as u64, "{name}: {calls} calls");
    }
    println!("libm: {} of {} patched", counts.len(), OF_ONE_NUMBER.len());
    assert!(counts.len() > 30, "{}", counts.len());
}
