//! The loaded modules: the file of each code address, and the place of its unwind table.
//!
//! Glossary: module snapshot, era.
//!
//! Danger: replacing data that other threads' walks are reading.
//!
//! Model: an immutable snapshot, replaced as a whole. A walk holds one snapshot through a hazard
//! pointer. A PC in none of its modules is looked up in the loader, without the loader's lock. Then
//! a snapshot with one more module takes its place.
//!
//! The loader's locked list is read once, at boot, when the loader itself calls us. In a sample,
//! `dl_iterate_phdr` could deadlock with a thread that allocates inside the loader.
//!
//! Modules found at boot stay for the life of the process, so their tables are read in place. Later
//! modules may be unloaded under a walk that follows wrong data, so their tables are copied. A
//! module may be unloaded during the copy as well, so the kernel copies by checked reads, which
//! fail where a load would fault.
//!
//! The exported `dlclose` reports unloads by raising an epoch, the era. The next walk checks for
//! every later module whether it is still loaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use framehop::{Unwinder, UnwinderNative};

use crate::os::backoff::{self, Backoff};
use crate::os::private_stack;
use crate::state::thread::Entered;
use crate::unwind::cfi_storage::CfiStorage;
use crate::unwind::checked_read::Memory;
use crate::unwind::eh_frame::Table;
use crate::unwind::elf_image::Image;
use crate::unwind::module_events::{self, ModuleEvent};
use crate::unwind::module_lookup::{self, FoundModule, Loader};

/// A module in a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct ModuleEntry {
    /// Addresses (avma) of the module.
    pub(crate) range: Range<u64>,
    /// Addresses from the module's first code to its last.
    pub(crate) code: Range<u64>,
    /// The module's number in the log.
    pub(crate) number: u32,
    /// Address of `.eh_frame_hdr` (0: none), which distinguishes the module from another at its
    /// place.
    table: u64,
    /// True for a module found at boot, which is never unloaded.
    permanent: bool,
    /// True if the load is recorded: if there are too many, the log knows nothing of the module.
    is_recorded: bool,
    /// Number that distinguishes a later module from another file of the same layout at its place
    /// ([`Image::identity`]).
    identity: u64,
}

/// An unloaded module. If it is loaded again at its place, it is the same module: its number and
/// the stacks through it stay the same.
#[derive(Clone)]
struct Unloaded {
    range: Range<u64>,
    table: u64,
    identity: u64,
    number: u32,
    /// True if the load is recorded, and the unload is not. The unload is recorded when another
    /// module takes the place.
    is_recorded: bool,
}

/// The number of unloaded modules that are kept. If there are more, the oldest is forgotten.
const MAX_UNLOADED: usize = 128;

/// All modules that are known at one time.
#[derive(Clone)]
pub(crate) struct ModuleSnapshot {
    /// Sorted by address.
    entries: Vec<ModuleEntry>,
    /// Unloaded modules, the oldest first.
    unloaded: Vec<Unloaded>,
    pub(crate) unwinder: UnwinderNative<Table, CfiStorage>,
    /// Number of `dlclose` calls when every module was last known to be loaded: [`ERA`] without
    /// [`FORKS`].
    closed: u32,
    /// Next in the list of replaced snapshots.
    retired_next: *mut ModuleSnapshot,
}

impl ModuleSnapshot {
    /// Returns the era in which every module was last known to be loaded.
    pub(crate) fn era(&self) -> u32 {
        self.closed.wrapping_add(FORKS.load(Ordering::Relaxed))
    }

    /// Returns the module of an address.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<&ModuleEntry> {
        let after = self.entries.partition_point(|e| e.range.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (address < entry.range.end).then_some(entry)
    }

    /// Returns true if the module is known in its present form. (If its headers were not found, its
    /// table is unknown.)
    fn has(&self, found: &FoundModule) -> bool {
        let entry = self.find(found.map_start);
        entry.is_some_and(|entry| {
            entry.range.start == found.map_start && [0, found.eh_frame_hdr].contains(&entry.table)
        })
    }

    /// Returns true if the address is in the code of a module.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.find(address)
            .is_some_and(|entry| entry.code.contains(&address))
    }
}

/// The snapshot in force. Replaced under `CHANGING`; read by walks through the hazard pointer of
/// their seat.
static CURRENT: AtomicPtr<ModuleSnapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Replaced snapshots that a walk may still hold; the writer frees them.
static RETIRED: AtomicPtr<ModuleSnapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Held while a snapshot is being replaced.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Number of `dlclose` calls so far, plus the number of forks that led to this process.
static ERA: AtomicU32 = AtomicU32::new(0);
/// Number of forks that led to this process.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Next module number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
/// Returns the snapshot in force.
pub(crate) fn current() -> *mut ModuleSnapshot {
    CURRENT.load(Ordering::SeqCst)
}

/// A hazard pointer: the snapshot that one walk may be reading, which [`free_retired`] therefore
/// keeps.
pub(crate) struct Hazard(AtomicPtr<ModuleSnapshot>);

impl Hazard {
    pub(crate) const fn new() -> Hazard {
        Hazard(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Publishes the snapshot in force as being read, and returns it. It stays valid until the next
    /// call, or [`clear`](Self::clear). Only the walk that owns the hazard pointer calls this.
    pub(crate) fn protect(&self) -> Option<&ModuleSnapshot> {
        loop {
            let snapshot = current();
            // Sequentially consistent, like the replacement and the writer's reads of the hazard
            // pointers. Either the writer sees this store, or the check below sees that the
            // snapshot was replaced.
            self.0.store(snapshot, Ordering::SeqCst);
            if current() == snapshot {
                // SAFETY: not freed while a hazard pointer contains it.
                return unsafe { snapshot.as_ref() };
            }
        }
    }

    /// Ends the protection, because the walk is over.
    pub(crate) fn clear(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Returns true if a walk may be reading that snapshot.
    pub(crate) fn names(&self, snapshot: *mut ModuleSnapshot) -> bool {
        self.0.load(Ordering::SeqCst) == snapshot
    }
}

/// Returns true if a module may have been unloaded after the snapshot's last validation.
#[inline]
pub(crate) fn is_stale(snapshot: &ModuleSnapshot) -> bool {
    snapshot.era() != era()
}

/// Returns the present era. Results that walks cached in another era are not used, because other
/// code may be at their addresses.
pub(crate) fn era() -> u32 {
    ERA.load(Ordering::Acquire)
}

/// Called after every `dlclose`: begins a new era.
pub(crate) fn note_dlclose() {
    ERA.fetch_add(1, Ordering::AcqRel);
}

/// In a forked child: clears the flag, because its holder may not exist here. A new era begins,
/// though no module is unloaded. Results that walks of the parent's other threads left in the seats
/// are copies of pages from different times (Law 7).
pub(crate) fn after_fork() {
    CHANGING.store(false, Ordering::Release);
    FORKS.fetch_add(1, Ordering::Relaxed);
    ERA.fetch_add(1, Ordering::AcqRel);
}

/// At boot, in a constructor: reads the loader's list.
pub(crate) fn discover_all(_: &Entered) {
    module_lookup::prepare();
    let mut snapshot = ModuleSnapshot {
        entries: Vec::new(),
        unloaded: Vec::new(),
        unwinder: UnwinderNative::new(),
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
    // SAFETY: the loader passes an info that is valid for the call, and returns our own snapshot.
    let (info, snapshot) = unsafe { (&*info, &mut *data.cast::<ModuleSnapshot>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's own program headers of a loaded module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: reads numbers of the auxiliary vector.
    let [program, vdso] =
        [libc::AT_PHDR, libc::AT_SYSINFO_EHDR].map(|kind| unsafe { libc::getauxval(kind) });
    // Uses glibc's names for these two. musl has the program's first argument for the program,
    // which may be anything, and no name for the vDSO.
    let name = match info.dlpi_phdr as u64 {
        at if at == program => &[][..],
        at if at & !4095 == vdso => b"linux-vdso.so.1",
        // SAFETY: the loader's name, a C string or null.
        _ => unsafe { name_of(info.dlpi_name) },
    };
    // A running process may unload libraries that it has opened. The libraries that it started
    // with are not told apart here, but these stay.
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let stays = !cfg!(feature = "attach")
        || name.is_empty()
        || file.starts_with(b"linux-vdso")
        || file.starts_with(b"ld-linux")
        || file == b"libc.so.6";
    let memory = (!stays).then(Memory::open);
    let image = Image {
        bias: info.dlpi_addr,
        headers,
        name,
        memory: memory.as_ref(),
    };
    // SAFETY: the module is loaded, and the loader's lock is held by this call. It stays, or it is
    // read by checked reads.
    unsafe { add(snapshot, &image) };
    0
}

/// Installs a snapshot that knows the module around `address`, which a walk has reached. Returns
/// false if there is no module, or if another thread prevented the lookup.
pub(crate) fn discover(_: &Entered, address: u64) -> bool {
    let Some(_scan) = module_lookup::begin_lookup(address) else {
        return false;
    };
    let mut is_known = false;
    change(|snapshot| {
        let was_known = snapshot.find(address).is_some(); // another thread was faster
        let is_added = !was_known && add_module_at(snapshot, address);
        // The caller will look the address up again, and must find it.
        is_known = was_known || is_added && snapshot.find(address).is_some();
        is_added
    });
    is_known
}

/// Adds the module around `address`, loaded after boot, and other modules found on the way. Returns
/// false if nothing is found, or if the module is being unloaded.
fn add_module_at(snapshot: &mut ModuleSnapshot, address: u64) -> bool {
    if !module_lookup::has_unknown_module(|start| {
        snapshot.entries.iter().any(|it| it.range.start == start)
    }) {
        return false;
    }
    let memory = Memory::open();
    let Some(loader) = Loader::open(&memory) else {
        return false;
    };
    let mut modules = loader.around(address);
    // The known module at the requested address is outdated, so the new one is kept.
    let is_asked_for = |found: &FoundModule| (found.map_start..found.map_end).contains(&address);
    modules.retain(|found| is_asked_for(found) || !snapshot.has(found));
    for found in &modules {
        // The known modules at these addresses were unloaded without the exported `dlclose`, as
        // libc does with character set converters. If they stayed, they would hide parts of this
        // module.
        let overlaps = |entry: &ModuleEntry| {
            entry.range.start < found.map_end && found.map_start < entry.range.end
        };
        if remove_modules(snapshot, |entry| !entry.permanent && overlaps(entry)) {
            note_dlclose();
        }
        found.read_image(&memory, |image| {
            // SAFETY: the module is not read in place.
            unsafe { add(snapshot, image) }.then_some(())
        });
    }
    // Modules that are gone meanwhile are removed: their copies may contain bytes of another
    // module. The log has their events already.
    let (now, mut lost) = (Loader::open(&memory), false);
    modules.retain(|found| {
        let now = now.as_ref().and_then(|loader| loader.at(found.map_start));
        let stays = now.is_some_and(|now| now.is_same(found));
        if !stays {
            lost = true;
            remove_modules(snapshot, |entry| entry.range.start == found.map_start);
        }
        stays && snapshot.has(found)
    });
    module_lookup::end_lookup(!modules.is_empty(), lost);
    !modules.is_empty()
}

/// Installs a snapshot without the unloaded modules. If the loader cannot be queried now, the next
/// walk does it.
pub(crate) fn revalidate(_: &Entered) {
    let era = era();
    change(|snapshot| {
        let memory = Memory::open();
        let Some(loader) = Loader::open(&memory) else {
            return false;
        };
        remove_modules(snapshot, |entry| {
            let is_there = || {
                let found = loader.at(entry.range.start).filter(|found| {
                    found.eh_frame_hdr == entry.table && found.map_start == entry.range.start
                });
                // SAFETY: the module is not read in place.
                let identity = |image: &Image| Some(unsafe { image.identity(&image.segments()) });
                found.and_then(|found| found.read_image(&memory, identity)) == Some(entry.identity)
            };
            !entry.permanent && !is_there()
        });
        snapshot.closed = era.wrapping_sub(FORKS.load(Ordering::Relaxed));
        true
    });
}

/// Removes the modules that are unloaded. Returns false if there is none.
fn remove_modules(
    snapshot: &mut ModuleSnapshot,
    mut is_unloaded: impl FnMut(&ModuleEntry) -> bool,
) -> bool {
    let removed: Vec<ModuleEntry> = snapshot
        .entries
        .extract_if(.., |entry| is_unloaded(entry))
        .collect();
    let is_any = !removed.is_empty();
    for entry in removed {
        snapshot.unwinder.remove_module(entry.range.start);
        snapshot.unloaded.push(Unloaded {
            range: entry.range,
            table: entry.table,
            identity: entry.identity,
            number: entry.number,
            is_recorded: entry.is_recorded,
        });
        if snapshot.unloaded.len() > MAX_UNLOADED {
            snapshot.unloaded.remove(0).announce();
        }
    }
    is_any
}

impl Unloaded {
    /// Announces the unload, unless that is done or the log knows nothing of the module.
    fn announce(&mut self) {
        if std::mem::replace(&mut self.is_recorded, false) {
            module_events::announce_unload(self.number);
        }
    }
}

/// Returns the number of a module that is loaded, and whether the load must be announced. Modules
/// that had its place before are unloaded for good.
fn number_of(
    snapshot: &mut ModuleSnapshot,
    range: &Range<u64>,
    table: u64,
    identity: u64,
) -> (u32, bool) {
    let is_it = |it: &Unloaded| it.identity == identity && it.table == table && it.range == *range;
    let place = snapshot.unloaded.iter().position(is_it);
    let again = place.map(|place| snapshot.unloaded.remove(place));
    let overlaps = |it: &Unloaded| it.range.start < range.end && range.start < it.range.end;
    for other in snapshot.unloaded.iter_mut().filter(|it| overlaps(it)) {
        other.announce();
    }
    match again {
        Some(again) => (again.number, !again.is_recorded),
        None => (NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), true),
    }
}

/// Replaces the snapshot by a changed copy. Returns false if `edit` returns false, or if another
/// thread holds the flag for long. In the second case this sample's walk ends early, with that
/// reason.
fn change(edit: impl FnOnce(&mut ModuleSnapshot) -> bool) -> bool {
    private_stack::run(|| change_on_this_stack(edit))
}

fn change_on_this_stack(edit: impl FnOnce(&mut ModuleSnapshot) -> bool) -> bool {
    let mut backoff = Backoff::with_limit(backoff::SHORT_NS);
    while CHANGING.swap(true, Ordering::Acquire) {
        if !backoff.pause() {
            return false;
        }
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

fn retire(snapshot: *mut ModuleSnapshot) {
    let mut head = RETIRED.load(Ordering::Relaxed);
    loop {
        // SAFETY: retired by us, still allocated; walks do not read this field.
        unsafe { (*snapshot).retired_next = head };
        match RETIRED.compare_exchange_weak(head, snapshot, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Frees the replaced snapshots that no walk holds, as `held` tells. Called by the writer alone.
pub(crate) fn free_retired(held: impl Fn(*mut ModuleSnapshot) -> bool) {
    let mut next = RETIRED.swap(std::ptr::null_mut(), Ordering::AcqRel);
    while !next.is_null() {
        let snapshot = next;
        // SAFETY: the swap has taken it off the list, so it is ours alone, except for walks that
        // hold it.
        next = unsafe { (*snapshot).retired_next };
        if held(snapshot) {
            retire(snapshot);
        } else {
            // SAFETY: made by Box::into_raw in `change` or `discover_all`, no longer in force, and
            // held by no walk. A walk publishes its hazard pointer before it checks that the
            // snapshot is still in force. `held` reads the hazard pointers after the replacement.
            drop(unsafe { Box::from_raw(snapshot) });
        }
    }
}

/// Returns the loader's name of a module.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Adds a module to a snapshot and announces it. Returns false if it has no mapped segments.
///
/// # Safety
/// The module is loaded and stays for ever, or its image is read by checked reads.
unsafe fn add(snapshot: &mut ModuleSnapshot, image: &Image) -> bool {
    let segments = image.segments();
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return false;
    };
    let range = (first.start & !4095)..(last.start + last.len);
    // SAFETY: the caller's promise.
    let (table, sections) = unsafe { image.unwind_sections(&range, &segments) };
    let code = segments
        .iter()
        .filter(|segment| segment.flags & libc::PF_X != 0)
        .map(|segment| segment.start..segment.start + segment.len)
        .reduce(|first, last| first.start..last.end)
        .unwrap_or(0..0);
    // SAFETY: the caller's promise.
    let identity = unsafe { image.identity(&segments) };
    let (number, is_news) = number_of(snapshot, &range, table, identity);
    let load = is_news.then(|| ModuleEvent::Loaded {
        number,
        path: image.path(),
        // SAFETY: the caller's promise.
        build_id: unsafe { image.build_id(&segments) },
        bias: image.bias,
        segments,
    });
    let is_recorded = load.is_none_or(module_events::announce_load);
    let module = framehop::Module::new(String::new(), range.clone(), range.start, sections);
    snapshot.unwinder.add_module(module);
    let entries = &mut snapshot.entries;
    let at = entries.partition_point(|e| e.range.start <= range.start);
    let entry = ModuleEntry {
        range,
        code,
        number,
        table,
        permanent: image.memory.is_none(),
        is_recorded,
        identity,
    };
    entries.insert(at, entry);
    true
}
