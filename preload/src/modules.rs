//! The loaded modules: which code belongs to which file, and where its unwind table is.
//!
//! Danger: reading other people's mapped files through the loader's pointers.
//!
//! Model: an immutable snapshot, replaced whole. A walk holds one snapshot (`seats.rs` keeps it
//! alive); a PC that lies in none of its modules is looked up with `_dl_find_object`, glibc's
//! lock-free question made for unwinders, and a new snapshot with one more module is
//! put in place. The loader's locked list is read once, at boot, where we are the loader's guest.
//! `dl_iterate_phdr` in a sample could deadlock against a thread that allocates inside the loader.
//!
//! The modules found at boot stay for the life of the process, so their tables are read in place.
//! Those found later may be unloaded under a walk that was led astray, so their tables are copied, and since
//! that may happen under the copy too, the kernel copies (`memory.rs`): it fails where a load would fault.
//!
//! Unloading is noticed through the exported `dlclose`, which raises an epoch: the next walk asks
//! for every later module whether it is still there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Unwinder};
use heapprof_format::Segment;

use crate::clock;
use crate::frames::Frames;
use crate::memory::{Memory, Plain};
use crate::room::Room;
use crate::sys;
use crate::tls::Entered;

/// Bytes of an unwind table: in place, or a copy; or a header's, which are made for each look-up.
#[derive(Clone)]
pub(crate) enum Table {
    InPlace(&'static [u8]),
    Copied(Arc<[u8]>),
    Header(Arc<Frames>),
}

impl Default for Table {
    fn default() -> Self {
        Table::InPlace(&[])
    }
}

impl Deref for Table {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Table::InPlace(bytes) => bytes,
            Table::Copied(bytes) => bytes,
            Table::Header(frames) => frames.header_for_sought(),
        }
    }
}

/// What a snapshot knows of a module.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Addresses (avma) that belong to it.
    pub(crate) range: Range<u64>,
    /// Its number in the log.
    pub(crate) number: u32,
    /// Where `.eh_frame_hdr` is mapped (0: none): tells it from another module at its place.
    table: u64,
    /// Found at boot: never unloaded.
    permanent: bool,
}

/// All modules known at one moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// Sorted by address.
    entries: Vec<Entry>,
    pub(crate) unwinder: UnwinderX86_64<Table, Room>,
    /// Value of `CLOSED` when every module was last known to be there.
    closed: u32,
    /// Next in the list of those that were replaced.
    retired_next: *mut Snapshot,
}

impl Snapshot {
    /// The module that an address belongs to.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|e| e.range.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (address < entry.range.end).then_some(entry)
    }
}

/// Something the log must say about modules, in the order in which it became known.
pub(crate) enum Notice {
    Loaded {
        number: u32,
        path: Vec<u8>,
        build_id: Vec<u8>,
        bias: u64,
        segments: Vec<Segment>,
    },
    Gone {
        number: u32,
    },
}

/// A notice in the list of all notices, which only grows.
pub(crate) struct NoticeNode {
    pub(crate) notice: Notice,
    pub(crate) time_ns: u64,
    pub(crate) older: *const NoticeNode,
}

/// The snapshot in force. Replaced under `CHANGING`; read by walks through the hazard of their seat.
static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Replaced snapshots that a walk may still hold; the writer frees them.
static RETIRED: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Newest notice. Nodes are never freed: modules are few, and a fork's child reads them anew.
static NOTICES: AtomicPtr<NoticeNode> = AtomicPtr::new(std::ptr::null_mut());
/// Held while a snapshot is being replaced.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Calls of `dlclose` so far.
static CLOSED: AtomicU32 = AtomicU32::new(0);
/// Next module number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
/// `_dl_find_object`, or 0 where glibc is older than 2.35.
static FIND_OBJECT: AtomicU64 = AtomicU64::new(0);

/// How long to wait for another thread that is replacing the snapshot. That takes it microseconds; but it may have to wait for
/// a processor that ten others want. After that this sample's walk ends early, and says so.
const CHANGE_PATIENCE_NS: u64 = 100_000_000;
/// Times to let others run before sleeping between two looks.
const CHANGE_YIELDS: u32 = 20;
/// And how long one sleeps.
const CHANGE_SLEEP_NS: u64 = 50_000;

/// The notice last given; the writer follows `older` down to the one it knows.
pub(crate) fn newest_notice() -> *const NoticeNode {
    NOTICES.load(Ordering::Acquire)
}

/// The snapshot in force, for `seats.rs`, which protects it.
pub(crate) fn current() -> *mut Snapshot {
    CURRENT.load(Ordering::SeqCst)
}

/// Whether a snapshot must be looked through because something was unloaded since.
#[inline]
pub(crate) fn is_stale(snapshot: &Snapshot) -> bool {
    snapshot.closed != CLOSED.load(Ordering::Acquire)
}

/// How often something was unloaded so far.
pub(crate) fn closed() -> u32 {
    CLOSED.load(Ordering::Acquire)
}

/// To be called after every `dlclose`.
pub(crate) fn something_was_closed() {
    CLOSED.fetch_add(1, Ordering::AcqRel);
}

/// In a forked child: whoever held the flag is not here.
pub(crate) fn after_fork() {
    CHANGING.store(false, Ordering::Release);
}

/// At boot, in a constructor: reads the loader's list.
pub(crate) fn discover_all(_: &Entered) {
    // Not the program's, should it have one of that name.
    // SAFETY: RTLD_NEXT and a C string; a null answer means that glibc has no such function.
    let find = unsafe { libc::dlsym(libc::RTLD_NEXT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(find as u64, Ordering::Relaxed);
    let mut snapshot = Snapshot {
        entries: Vec::new(),
        unwinder: UnwinderX86_64::new(),
        closed: 0,
        retired_next: std::ptr::null_mut(),
    };
    // SAFETY: the callback's data is the snapshot above, which outlives the call.
    unsafe {
        libc::dl_iterate_phdr(Some(visit), (&raw mut snapshot).cast());
    }
    CURRENT.store(Box::into_raw(Box::new(snapshot)), Ordering::SeqCst);
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid info for the length of the call, and our own snapshot back.
    let (info, snapshot) = unsafe { (&*info, &mut *data.cast::<Snapshot>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's own program headers of a loaded module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: the loader's name, a C string or null.
    let name = unsafe { name_of(info.dlpi_name) };
    let seen = Seen {
        bias: info.dlpi_addr,
        headers,
        name,
        later: None,
    };
    // SAFETY: the module is loaded, and the loader's lock is held by this call; found at boot, it stays.
    unsafe { seen.add_to(snapshot) };
    0
}

/// glibc's `struct dl_find_object` on x86-64.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: u64,
    map_end: u64,
    link_map: *const LinkMap,
    eh_frame_hdr: u64,
    reserved: [u64; 7],
}

/// The public head of the loader's `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: u64,
    name: *const c_char,
}

// SAFETY: integers and a raw pointer.
unsafe impl Plain for LinkMap {}
// SAFETY: integers.
unsafe impl Plain for libc::Elf64_Ehdr {}
// SAFETY: integers.
unsafe impl Plain for libc::Elf64_Phdr {}

/// Asks the loader, without a lock, which module an address belongs to.
fn find_object(address: u64) -> Option<DlFindObject> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return None;
    }
    // SAFETY: the address of `_dl_find_object`, which has this type.
    let find: unsafe extern "C" fn(u64, *mut DlFindObject) -> c_int =
        unsafe { std::mem::transmute(find) };
    let mut found = std::mem::MaybeUninit::zeroed();
    // SAFETY: it fills the structure when it returns 0; it takes no lock and may be called anywhere.
    if unsafe { find(address, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zeroed, then filled: integers and raw pointers.
    Some(unsafe { found.assume_init() })
}

/// Puts a snapshot in place that knows the module around `address`, which a walk came to. False: no
/// module is there, or another thread kept us from finding out.
pub(crate) fn discover(_: &Entered, address: u64) -> bool {
    let Some(found) = find_object(address) else {
        return false;
    };
    change(|snapshot| {
        snapshot.find(address).is_some() // another thread was faster
            || learn(snapshot, &found, address).is_some()
    })
}

/// Adds a module that was found after boot. `None`: it is none, or is being unloaded.
fn learn(snapshot: &mut Snapshot, found: &DlFindObject, address: u64) -> Option<()> {
    let memory = Memory::open();
    // The ELF header is the first thing in the first segment of every file that linkers make.
    let header: libc::Elf64_Ehdr = memory.value(found.map_start)?;
    let end_of_headers = found
        .map_start
        .checked_add(header.e_phoff)?
        .checked_add(u64::from(header.e_phnum) * size_of::<libc::Elf64_Phdr>() as u64)?;
    if &header.e_ident[..4] != b"\x7fELF"
        || usize::from(header.e_phentsize) != size_of::<libc::Elf64_Phdr>()
        || end_of_headers > found.map_end
    {
        return None;
    }
    let headers: Vec<libc::Elf64_Phdr> =
        memory.values(found.map_start + header.e_phoff, header.e_phnum.into())?;
    let map: LinkMap = memory.value(found.link_map as u64)?;
    let name = memory.c_string(map.name as u64)?;
    let seen = Seen {
        bias: map.bias,
        headers: &headers,
        name: &name,
        later: Some(&memory),
    };
    // SAFETY: nothing of the module is read in place.
    if !unsafe { seen.add_to(snapshot) } {
        return None;
    }
    let still_there = find_object(address).is_some_and(|now| {
        now.link_map == found.link_map
            && now.map_start == found.map_start
            && now.eh_frame_hdr == found.eh_frame_hdr
    });
    if !still_there {
        // What was copied may be in part another's. The snapshot is dropped; the log knows of the module already.
        if let Some(entry) = snapshot.find(address) {
            announce(Notice::Gone {
                number: entry.number,
            });
        }
        return None;
    }
    Some(())
}

/// Puts a snapshot in place without the modules that are no longer there.
pub(crate) fn revalidate(_: &Entered) {
    let closed = CLOSED.load(Ordering::Acquire);
    change(|snapshot| {
        let mut gone = Vec::new();
        snapshot.entries.retain(|entry| {
            let there = entry.permanent
                || find_object(entry.range.start).is_some_and(|found| {
                    found.eh_frame_hdr == entry.table && found.map_start == entry.range.start
                });
            if !there {
                gone.push(entry.clone());
            }
            there
        });
        for entry in gone {
            snapshot.unwinder.remove_module(entry.range.start);
            announce(Notice::Gone {
                number: entry.number,
            });
        }
        snapshot.closed = closed;
        true
    });
}

/// Replaces the snapshot by a changed copy. False when `edit` says so, or nobody could be waited for.
fn change(edit: impl FnOnce(&mut Snapshot) -> bool) -> bool {
    let (mut tries, mut since) = (0, 0);
    while CHANGING.swap(true, Ordering::Acquire) {
        tries += 1;
        if tries <= CHANGE_YIELDS {
            sys::yield_now();
            continue;
        }
        let now = clock::now_ns();
        if since == 0 {
            since = now;
        }
        if now.saturating_sub(since) > CHANGE_PATIENCE_NS {
            return false;
        }
        sys::sleep_ns(CHANGE_SLEEP_NS);
    }
    let before = CURRENT.load(Ordering::SeqCst);
    let changed = if before.is_null() {
        false
    } else {
        // SAFETY: not null; only the holder of CHANGING replaces or retires the current snapshot.
        let mut copy = Box::new(unsafe { (*before).clone() });
        let changed = edit(&mut copy);
        if changed {
            CURRENT.store(Box::into_raw(copy), Ordering::SeqCst);
            retire(before);
        }
        changed
    };
    CHANGING.store(false, Ordering::Release);
    changed
}

fn retire(snapshot: *mut Snapshot) {
    let mut head = RETIRED.load(Ordering::Relaxed);
    loop {
        // SAFETY: retired by us, still allocated; walks do not look at this field.
        unsafe { (*snapshot).retired_next = head };
        match RETIRED.compare_exchange_weak(head, snapshot, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Frees the replaced snapshots that `held` says no walk holds. Called by the writer alone.
pub(crate) fn free_retired(held: impl Fn(*mut Snapshot) -> bool) {
    let mut next = RETIRED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !next.is_null() {
        let snapshot = next;
        // SAFETY: taken off the list by the swap: it is ours alone, but for walks that hold it.
        next = unsafe { (*snapshot).retired_next };
        if held(snapshot) {
            retire(snapshot);
        } else {
            // SAFETY: made by Box::into_raw in `change` or `discover_all`, in force no more, and
            // held by no walk: a walk publishes its hazard before it looks whether the snapshot is
            // still in force, and `held` reads the hazards after it was replaced.
            drop(unsafe { Box::from_raw(snapshot) });
        }
    }
}

fn announce(notice: Notice) {
    let node = Box::into_raw(Box::new(NoticeNode {
        notice,
        time_ns: crate::clock::now_ns(),
        older: NOTICES.load(Ordering::Relaxed),
    }));
    // Only the holder of CHANGING, or the constructor, comes here.
    NOTICES.store(node, Ordering::Release);
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// A module as the loader shows it.
struct Seen<'a> {
    bias: u64,
    headers: &'a [libc::Elf64_Phdr],
    name: &'a [u8],
    /// Found after boot: how to read what may be unmapped meanwhile. `None`: a module that stays.
    later: Option<&'a Memory>,
}

impl Seen<'_> {
    /// Adds it to a snapshot and announces it.
    ///
    /// # Safety
    /// The module is loaded and stays so for ever, unless it is a later one.
    unsafe fn add_to(&self, snapshot: &mut Snapshot) -> bool {
        let permanent = self.later.is_none();
        let segments = self.segments();
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return false;
        };
        let range = (first.start & !4095)..(last.start + last.len);
        // SAFETY: the caller's promise.
        let (table, sections) = unsafe { self.unwind_sections(&range, &segments) };
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let module = framehop::Module::new(String::new(), range.clone(), range.start, sections);
        snapshot.unwinder.add_module(module);
        let at = snapshot
            .entries
            .partition_point(|e| e.range.start <= range.start);
        snapshot.entries.insert(
            at,
            Entry {
                range,
                number,
                table,
                permanent,
            },
        );
        announce(Notice::Loaded {
            number,
            path: self.path(),
            // SAFETY: the caller's promise.
            build_id: unsafe { self.build_id(&segments) },
            bias: self.bias,
            segments,
        });
        true
    }

    fn headers_of(&self, kind: u32) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.headers.iter().filter(move |h| h.p_type == kind)
    }

    fn segments(&self) -> Vec<Segment> {
        let mut segments: Vec<Segment> = self
            .headers_of(libc::PT_LOAD)
            .filter(|h| h.p_memsz > 0)
            .map(|h| Segment {
                start: self.bias.wrapping_add(h.p_vaddr),
                len: h.p_memsz,
                file_offset: h.p_offset,
                flags: h.p_flags,
            })
            .collect();
        segments.sort_by_key(|s| s.start);
        segments
    }

    /// Where `.eh_frame_hdr` is, and what framehop wants to know. All addresses are avmas, also
    /// where framehop speaks of svmas: the tables are read as they lie in memory, so their relative
    /// pointers lead to avmas.
    ///
    /// # Safety
    /// As in `add_to`.
    unsafe fn unwind_sections(
        &self,
        range: &Range<u64>,
        segments: &[Segment],
    ) -> (u64, ExplicitModuleSectionInfo<Table>) {
        let mut info = ExplicitModuleSectionInfo {
            base_svma: range.start,
            ..Default::default()
        };
        let Some(header) = self.headers_of(libc::PT_GNU_EH_FRAME).next() else {
            return (0, info);
        };
        let start = self.bias.wrapping_add(header.p_vaddr);
        let inside = |at: u64| {
            segments
                .iter()
                .find(|s| s.start <= at && at < s.start + s.len)
        };
        // Nothing but the loader's word for its place is believed of a header that may be damaged.
        let end = start.checked_add(header.p_memsz).filter(|&end| {
            header.p_memsz >= 8 && inside(start).is_some_and(|s| end <= s.start + s.len)
        });
        let Some(end) = end else {
            return (start, info);
        };
        let hdr = start..end;
        // The second byte says how the address of .eh_frame is written; every linker writes 0x1b: a
        // signed 32-bit distance from the field itself, which is at offset 4.
        // SAFETY: the caller's promise, here and below: within a loaded segment of the module.
        let head = unsafe { self.table(&(hdr.start..hdr.start + 8)) };
        let Some(&[_, 0x1b, _, _, a, b, c, d]) = head.as_deref() else {
            return (hdr.start, info);
        };
        let distance = i32::from_le_bytes([a, b, c, d]);
        let frame = (hdr.start + 4).wrapping_add_signed(distance.into());
        // Its end is not recorded; that of its segment will do, since its entries are reached by
        // address and it ends with a zero entry. In a copy, only up to the header if that follows.
        let Some(segment) = inside(frame) else {
            return (hdr.start, info);
        };
        let frame = frame..segment.start + segment.len;
        // SAFETY: as above.
        if let (Some(head), Some(table)) = unsafe { (self.table(&hdr), self.table(&frame)) } {
            let frames = Frames::new(range, (head, &hdr), (table.clone(), &frame));
            info.eh_frame_hdr = Some(Table::Header(Arc::new(frames)));
            info.eh_frame = Some(table);
            info.eh_frame_hdr_svma = Some(hdr.clone());
            info.eh_frame_svma = Some(frame);
        }
        (hdr.start, info)
    }

    /// The bytes at these addresses; `None` when they are no longer there.
    ///
    /// # Safety
    /// Of a module that stays, they lie within a loaded segment.
    unsafe fn table(&self, part: &Range<u64>) -> Option<Table> {
        let len = (part.end - part.start) as usize;
        match self.later {
            Some(memory) => Some(Table::Copied(memory.bytes(part.start, len)?.into())),
            // SAFETY: the caller's promise.
            None => Some(Table::InPlace(unsafe {
                std::slice::from_raw_parts(part.start as *const u8, len)
            })),
        }
    }

    /// # Safety
    /// As in `add_to`.
    unsafe fn build_id(&self, segments: &[Segment]) -> Vec<u8> {
        for header in self.headers_of(libc::PT_NOTE) {
            let start = self.bias.wrapping_add(header.p_vaddr);
            let Some(end) = start.checked_add(header.p_memsz) else {
                continue;
            };
            if !segments
                .iter()
                .any(|s| s.start <= start && end <= s.start + s.len)
            {
                continue;
            }
            // SAFETY: the caller's promise, and within a loaded segment.
            let Some(notes) = (unsafe { self.table(&(start..end)) }) else {
                continue;
            };
            if let Some(id) = build_id_note(&notes, header.p_align as usize) {
                return id.to_vec();
            }
        }
        Vec::new()
    }

    /// The file's absolute path.
    fn path(&self) -> Vec<u8> {
        match self.name {
            b"" => sys::readlink(c"/proc/self/exe").unwrap_or_default(),
            b"linux-vdso.so.1" | b"linux-gate.so.1" => b"[vdso]".to_vec(),
            [b'/', ..] => self.name.to_vec(),
            relative => {
                let mut path = sys::getcwd().unwrap_or_default();
                path.push(b'/');
                path.extend_from_slice(relative);
                path
            }
        }
    }
}

/// The build-id among notes: type 3, owner "GNU".
fn build_id_note(mut notes: &[u8], align: usize) -> Option<&[u8]> {
    let align = if align == 8 { 8 } else { 4 };
    let padded = |len: usize| len.checked_add(align - 1).map(|n| n & !(align - 1));
    while notes.len() >= 12 {
        let word = |at: usize| {
            u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]])
        };
        let (name_len, len, kind) = (word(0) as usize, word(4) as usize, word(8));
        let name = notes.get(12..12usize.checked_add(name_len)?)?;
        let start = padded(12 + name_len)?;
        let body = notes.get(start..start.checked_add(len)?)?;
        if kind == 3 && name == b"GNU\0" {
            return Some(body);
        }
        notes = notes.get(padded(start + len)?..)?;
    }
    None
}
