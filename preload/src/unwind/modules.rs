//! The loaded modules: which code belongs to which file, and where its unwind table is.
//!
//! Danger: replacing what other threads' walks are reading.
//!
//! Model: an immutable snapshot, replaced whole. A walk holds one snapshot (`recording/seats.rs` keeps it
//! alive); a PC that lies in none of its modules is looked up with `_dl_find_object`, glibc's
//! lock-free question made for unwinders (or, without that, in the loader's list: `unwind/module_lookup.rs`), and a new snapshot with one more module is
//! put in place. The loader's locked list is read once, at boot, where we are the loader's guest.
//! `dl_iterate_phdr` in a sample could deadlock against a thread that allocates inside the loader.
//!
//! The modules found at boot stay for the life of the process, so their tables are read in place.
//! Those found later may be unloaded under a walk that was led astray, so their tables are copied, and since
//! that may happen under the copy too, the kernel copies (`unwind/checked_read.rs`): it fails where a load would fault.
//!
//! Unloading is noticed through the exported `dlclose`, which raises an epoch: the next walk asks
//! for every later module whether it is still there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use framehop::{Unwinder, UnwinderNative};

use crate::os::backoff::{self, Backoff};
use crate::os::private_stack;
use crate::state::thread::Entered;
use crate::unwind::cfi_storage::Room;
use crate::unwind::checked_read::Memory;
use crate::unwind::eh_frame::Table;
use crate::unwind::elf_image::Image;
use crate::unwind::module_events::{self, Notice};
use crate::unwind::module_lookup::{self, Found, Loader};

/// What a snapshot knows of a module.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Addresses (avma) that belong to it.
    pub(crate) range: Range<u64>,
    /// Those of them from its first code to its last.
    pub(crate) code: Range<u64>,
    /// Its number in the log.
    pub(crate) number: u32,
    /// Where `.eh_frame_hdr` is mapped (0: none): tells it from another module at its place.
    table: u64,
    /// Found at boot: never unloaded.
    permanent: bool,
    /// Of a later one: tells it from another file of the same layout at its place ([`Image::identity`]).
    identity: u64,
}

/// All modules known at one moment.
#[derive(Clone)]
pub(crate) struct Snapshot {
    /// Sorted by address.
    entries: Vec<Entry>,
    pub(crate) unwinder: UnwinderNative<Table, Room>,
    /// How often something had been unloaded when every module was last known to be there: [`ERA`] without [`FORKS`].
    closed: u32,
    /// Next in the list of those that were replaced.
    retired_next: *mut Snapshot,
}

impl Snapshot {
    /// The era in which every module was last known to be there.
    pub(crate) fn era(&self) -> u32 {
        self.closed.wrapping_add(FORKS.load(Ordering::Relaxed))
    }

    /// The module that an address belongs to.
    #[inline]
    pub(crate) fn find(&self, address: u64) -> Option<&Entry> {
        let after = self.entries.partition_point(|e| e.range.start <= address);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (address < entry.range.end).then_some(entry)
    }

    /// Whether a module is known, and as it is now. (Of one whose headers were not found, the table is not known.)
    fn has(&self, found: &Found) -> bool {
        let entry = self.find(found.map_start);
        entry.is_some_and(|entry| {
            entry.range.start == found.map_start && [0, found.eh_frame_hdr].contains(&entry.table)
        })
    }

    /// Whether an address is in the code of a module.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.find(address)
            .is_some_and(|entry| entry.code.contains(&address))
    }
}

/// The snapshot in force. Replaced under `CHANGING`; read by walks through the hazard of their seat.
static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Replaced snapshots that a walk may still hold; the writer frees them.
static RETIRED: AtomicPtr<Snapshot> = AtomicPtr::new(std::ptr::null_mut());
/// Held while a snapshot is being replaced.
static CHANGING: AtomicBool = AtomicBool::new(false);
/// Calls of `dlclose` so far, and forks on the way to this process.
static ERA: AtomicU32 = AtomicU32::new(0);
/// The latter.
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Next module number.
static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
/// Returns the snapshot in force.
pub(crate) fn current() -> *mut Snapshot {
    CURRENT.load(Ordering::SeqCst)
}

/// A hazard pointer: the snapshot that one walk may be reading, which [`free_retired`] therefore keeps.
pub(crate) struct Hazard(AtomicPtr<Snapshot>);

impl Hazard {
    pub(crate) const fn new() -> Hazard {
        Hazard(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Publishes the snapshot in force as being read, and returns it. It stays valid until the next call,
    /// or [`clear`](Self::clear). Only the walk that owns the hazard calls this.
    pub(crate) fn protect(&self) -> Option<&Snapshot> {
        loop {
            let snapshot = current();
            // Sequentially consistent, as are the replacement and the writer's look at the hazards:
            // either the writer sees this, or we see below that the snapshot was replaced.
            self.0.store(snapshot, Ordering::SeqCst);
            if current() == snapshot {
                // SAFETY: not freed while a hazard names it.
                return unsafe { snapshot.as_ref() };
            }
        }
    }

    /// The walk is over.
    pub(crate) fn clear(&self) {
        self.0.store(std::ptr::null_mut(), Ordering::Release);
    }

    /// Returns true if a walk may be reading that snapshot.
    pub(crate) fn names(&self, snapshot: *mut Snapshot) -> bool {
        self.0.load(Ordering::SeqCst) == snapshot
    }
}

/// Whether a snapshot must be looked through because something was unloaded since.
#[inline]
pub(crate) fn is_stale(snapshot: &Snapshot) -> bool {
    snapshot.era() != era()
}

/// What walks found in another era is not looked at: code may be another since.
pub(crate) fn era() -> u32 {
    ERA.load(Ordering::Acquire)
}

/// To be called after every `dlclose`.
pub(crate) fn something_was_closed() {
    ERA.fetch_add(1, Ordering::AcqRel);
}

/// In a forked child: whoever held the flag is not here. And what walks of the parent's other threads left in the seats is a copy whose pages are not of
/// one moment (Law 7): another era begins, though no module is gone.
pub(crate) fn after_fork() {
    CHANGING.store(false, Ordering::Release);
    FORKS.fetch_add(1, Ordering::Relaxed);
    ERA.fetch_add(1, Ordering::AcqRel);
}

/// At boot, in a constructor: reads the loader's list.
pub(crate) fn discover_all(_: &Entered) {
    module_lookup::prepare();
    let mut snapshot = Snapshot {
        entries: Vec::new(),
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
    // SAFETY: the loader passes a valid info for the length of the call, and our own snapshot back.
    let (info, snapshot) = unsafe { (&*info, &mut *data.cast::<Snapshot>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader's own program headers of a loaded module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // SAFETY: asks for numbers of the auxiliary vector.
    let [program, vdso] =
        [libc::AT_PHDR, libc::AT_SYSINFO_EHDR].map(|kind| unsafe { libc::getauxval(kind) });
    // By glibc's names for these two. musl has the program's first argument for the one, which may be anything, and nothing for the other.
    let name = match info.dlpi_phdr as u64 {
        at if at == program => &[][..],
        at if at & !4095 == vdso => b"linux-vdso.so.1",
        // SAFETY: the loader's name, a C string or null.
        _ => unsafe { name_of(info.dlpi_name) },
    };
    let image = Image {
        bias: info.dlpi_addr,
        headers,
        name,
        later: None,
    };
    // SAFETY: the module is loaded, and the loader's lock is held by this call; found at boot, it stays.
    unsafe { add(snapshot, &image) };
    0
}

/// Puts a snapshot in place that knows the module around `address`, which a walk came to. False: no
/// module is there, or another thread kept us from finding out.
pub(crate) fn discover(_: &Entered, address: u64) -> bool {
    let Some(_look) = module_lookup::may_be_at(address) else {
        return false;
    };
    let mut is_known = false;
    change(|snapshot| {
        let was_known = snapshot.find(address).is_some(); // another thread was faster
        let learnt = !was_known && learn(snapshot, address);
        // Whoever asked will look for the address again, and must find it.
        is_known = was_known || learnt && snapshot.find(address).is_some();
        learnt
    });
    is_known
}

/// Adds the module around `address`, which was found after boot, and what else was found on the way. False: nothing was, or it is being unloaded.
fn learn(snapshot: &mut Snapshot, address: u64) -> bool {
    if !module_lookup::has_news(|start| snapshot.entries.iter().any(|it| it.range.start == start)) {
        return false;
    }
    let memory = Memory::open();
    let Some(loader) = Loader::now(&memory) else {
        return false;
    };
    let mut modules = loader.around(address);
    // Of the one that is asked for, what is known is not right.
    let is_asked_for = |found: &Found| (found.map_start..found.map_end).contains(&address);
    modules.retain(|found| is_asked_for(found) || !snapshot.has(found));
    for found in &modules {
        // What is known of those addresses was unloaded past the exported `dlclose`, as libc does with character set converters. Left
        // there, it would stand before parts of this module.
        let overlaps =
            |entry: &Entry| entry.range.start < found.map_end && found.map_start < entry.range.end;
        if take_out(snapshot, |entry| !entry.permanent && overlaps(entry)) {
            something_was_closed();
        }
        found.look(&memory, |image| {
            // SAFETY: nothing of the module is read in place.
            unsafe { add(snapshot, image) }.then_some(())
        });
    }
    // What was copied of those that are no longer there may be in part another's. The log knows of them already.
    let (now, mut lost) = (Loader::now(&memory), false);
    modules.retain(|found| {
        let now = now.as_ref().and_then(|loader| loader.at(found.map_start));
        let stays = now.is_some_and(|now| now.is_same(found));
        if !stays {
            lost = true;
            take_out(snapshot, |entry| entry.range.start == found.map_start);
        }
        stays && snapshot.has(found)
    });
    module_lookup::came_of_it(!modules.is_empty(), lost);
    !modules.is_empty()
}

/// Puts a snapshot in place without the modules that are no longer there. Where the loader cannot be asked just now, the next walk does this.
pub(crate) fn revalidate(_: &Entered) {
    let era = era();
    change(|snapshot| {
        let memory = Memory::open();
        let Some(loader) = Loader::now(&memory) else {
            return false;
        };
        take_out(snapshot, |entry| {
            let is_there = || {
                let found = loader.at(entry.range.start).filter(|found| {
                    found.eh_frame_hdr == entry.table && found.map_start == entry.range.start
                });
                // SAFETY: nothing of the module is read in place.
                let identity = |image: &Image| Some(unsafe { image.identity(&image.segments()) });
                found.and_then(|found| found.look(&memory, identity)) == Some(entry.identity)
            };
            !entry.permanent && !is_there()
        });
        snapshot.closed = era.wrapping_sub(FORKS.load(Ordering::Relaxed));
        true
    });
}

/// Takes the modules out that are gone. False: there is none.
fn take_out(snapshot: &mut Snapshot, mut is_gone: impl FnMut(&Entry) -> bool) -> bool {
    let gone: Vec<Entry> = snapshot
        .entries
        .extract_if(.., |entry| is_gone(entry))
        .collect();
    for entry in &gone {
        snapshot.unwinder.remove_module(entry.range.start);
        module_events::announce(Notice::Gone {
            number: entry.number,
        });
    }
    !gone.is_empty()
}

/// Replaces the snapshot by a changed copy. False when `edit` says so, or another thread that is at it takes long: then this
/// sample's walk ends early, and says so.
fn change(edit: impl FnOnce(&mut Snapshot) -> bool) -> bool {
    private_stack::run(|| change_here(edit))
}

fn change_here(edit: impl FnOnce(&mut Snapshot) -> bool) -> bool {
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

/// # Safety
/// `name` is null or a C string.
unsafe fn name_of<'a>(name: *const c_char) -> &'a [u8] {
    if name.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_bytes()
}

/// Adds a module to a snapshot and announces it. False: nothing of it is mapped.
///
/// # Safety
/// The module is loaded and stays so for ever, unless it is a later one.
unsafe fn add(snapshot: &mut Snapshot, image: &Image) -> bool {
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
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let module = framehop::Module::new(String::new(), range.clone(), range.start, sections);
    snapshot.unwinder.add_module(module);
    let entries = &mut snapshot.entries;
    let at = entries.partition_point(|e| e.range.start <= range.start);
    let entry = Entry {
        range,
        code,
        number,
        table,
        permanent: image.later.is_none(),
        // SAFETY: the caller's promise.
        identity: unsafe { image.identity(&segments) },
    };
    entries.insert(at, entry);
    // SAFETY: the caller's promise.
    let build_id = unsafe { image.build_id(&segments) };
    module_events::announce(Notice::Loaded {
        number,
        path: image.path(),
        build_id,
        bias: image.bias,
        segments,
    });
    true
}
