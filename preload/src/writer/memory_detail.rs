//! Memory detail: the fields of a memory reading that need walks through the page map.

use std::ops::Range;

use heapprof_core::AddressMap;
use heapprof_format::{ATTACH_DESCRIPTORS, MemoryField as Field, MemoryReading, Module, Segment};

use crate::allocator::{self, UntouchedPages};
use crate::os::pagemap::Pagemap;
use crate::os::sys::{self, PAGE};
use crate::unwind::thread_stacks;
use crate::writer::heap_pages::HeapPages;
use crate::writer::mapped_memory::{MappedTotals, RecordedMappings, UsedStack, Waiting};

/// Most pages of one stack, mapping or module that are read.
const MOST_PAGES: u64 = 64 << 10;
/// Most pages of the allocator's places that are read: of 16 GiB. In a larger heap, untouched pages
/// are not told from others.
const MOST_HEAP_PAGES: u64 = 4 << 20;
/// ELF `p_flags` of a segment that can be written.
const WRITABLE: u32 = 2;

/// Places that a detail reads, beside the allocator's.
pub(super) struct Inputs<'a> {
    /// Bytes of the main thread's stack.
    pub(super) main_stack: Option<u64>,
    pub(super) modules: &'a [Module],
    /// The stacks of mappings, and the mappings whose stacks come later.
    pub(super) recorded: &'a RecordedMappings,
    pub(super) waiting: Waiting<'a>,
}

/// Pages that a detail has read, beside its fields.
#[derive(Default)]
pub(super) struct ReadPages {
    /// Touched pages of the allocator. `None`: they cannot be told.
    pub(super) heap: Option<u64>,
    /// The part of our thread's stack that is in the allocator's places.
    pub(super) own_stack: u64,
    pub(super) mapped: Option<MappedTotals>,
}

/// Returns the resident pages of a module that are its file's.
fn bytes_of_file(map: &Pagemap, module: &Module) -> u64 {
    let mut pages_left = MOST_PAGES;
    let ranges = module.segments.iter().map(pages_of);
    let touched = ranges.filter_map(|range| map.touched(&range, true, &mut pages_left));
    let of_file = touched.map(|it| it.resident.saturating_sub(it.anonymous));
    of_file.sum()
}

/// Returns the addresses of a segment's pages.
fn pages_of(segment: &Segment) -> Range<u64> {
    segment.start & !(PAGE - 1)..(segment.start + segment.len).next_multiple_of(PAGE)
}

/// Reads the fields of a detail. `counts` are the reading, and the bytes that the allocator counts
/// as used or kept.
pub(super) fn read(
    detail: &mut MemoryReading,
    map: &Pagemap,
    counts: (&MemoryReading, u64),
    inputs: &mut Inputs<'_>,
) -> ReadPages {
    let Inputs {
        main_stack,
        modules,
        recorded,
        waiting,
    } = inputs;
    // The ranges that the fields below count.
    let mut counted = AddressMap::new(usize::MAX);
    let touched = |range: Range<u64>| map.anonymous(&range, MOST_PAGES);
    let places = sys::places();
    counted.map(places.clone(), ());
    for own in sys::own_mappings() {
        counted.map(own, ());
    }
    let own_mapped: u64 = sys::own_mappings().map(touched).sum();
    let (mut own, mut own_stack) = (own_mapped, 0);
    let mut stacks = Vec::new();
    let mut stacks_in_blocks = 0;
    if let Some(range) = main_stack.and_then(thread_stacks::of_main) {
        counted.map(range.clone(), ());
        let touched = map.of_stack(&range, MOST_PAGES);
        let is_main = true;
        stacks.push(UsedStack {
            range,
            touched,
            is_main,
        });
    }
    let this = sys::gettid();
    let all_are_known = thread_stacks::each(&mut |tid, range| {
        if tid != this && places.contains(&range.start) {
            stacks_in_blocks += 1; // memory from malloc (pthread_attr_setstack), which counts there
            return;
        }
        let touched = map.of_stack(&range, MOST_PAGES);
        counted.map(range.clone(), ());
        if tid != this {
            let is_main = false;
            stacks.push(UsedStack {
                range,
                touched,
                is_main,
            });
            return;
        }
        own += touched.anonymous;
        if places.contains(&range.start) {
            own_stack = touched.anonymous;
        }
    });
    static HERE: u8 = 0;
    let here = &raw const HERE as u64;
    let mut variables = 0;
    for module in *modules {
        let segments = || module.segments.iter();
        let is_ours = segments().any(|it| (it.start..it.start + it.len).contains(&here));
        let writable = segments().filter(|it| it.flags & WRITABLE != 0);
        let mut bytes = 0;
        for segment in writable {
            let pages = pages_of(segment);
            // A variable may be the stack of a thread.
            counted.divide(pages.clone(), &mut |part, counted| {
                if counted.is_none() {
                    bytes += touched(part);
                }
            });
            counted.map(pages, ());
        }
        *(if is_ours { &mut own } else { &mut variables }) += bytes;
        // Its file is in shared memory.
        if is_ours && module.path.starts_with(ATTACH_DESCRIPTORS) {
            detail.set(Field::OwnShared, bytes_of_file(map, module));
        }
    }
    detail.set(Field::OwnMapped, own);
    let of_stacks = stacks.iter().map(|stack| stack.touched.anonymous);
    detail.set(Field::Stacks, of_stacks.sum::<u64>());
    detail.set(Field::StackThreads, stacks.len() as u64 + stacks_in_blocks);
    detail.set(Field::Variables, variables);
    // Without the allocator's places, its pages would count twice.
    let mapped = match places.is_empty() {
        true => None,
        false => {
            let stacks = (&stacks[..], all_are_known);
            MappedTotals::take(map, (&counted, &places), stacks, recorded, waiting)
        }
    };
    if let Some(mapped) = &mapped {
        detail.set(Field::Mapped, mapped.recorded);
        detail.set(Field::MappedUnrecorded, mapped.unrecorded);
    }
    let own_in_places = own_mapped + own_stack;
    let over_places = mapped.as_ref().map_or(&[][..], |it| &it.over_places);
    ReadPages {
        heap: read_heap(detail, map, counts, (own_in_places, over_places)),
        own_stack,
        mapped,
    }
}

/// Reads the fields of a detail about the allocator's pages. `own` has the touched pages of this
/// library among its places, and `over_places` the parts that files have. Returns the touched pages
/// of the allocator, if they can be told.
pub(super) fn read_heap(
    detail: &mut MemoryReading,
    map: &Pagemap,
    (reading, used): (&MemoryReading, u64),
    (own, over_places): (u64, &[Range<u64>]),
) -> Option<u64> {
    let places = sys::places();
    let pages = (places.end - places.start) / PAGE;
    if !(1..=MOST_HEAP_PAGES).contains(&pages) {
        return None;
    }
    let pages = HeapPages::read(map, &places, over_places);
    let heap = pages.touched.saturating_sub(own);
    let untouched = used.saturating_sub(heap);
    detail.set(Field::RetainedTouched, heap.saturating_sub(used));
    if allocator::has_next() {
        detail.set(Field::OwnUntouched, untouched); // our allocator has no block of the program
    } else if let Some(parts) = pages.untouched {
        let UntouchedPages {
            active,
            dirty,
            muzzy,
            own,
        } = parts;
        // The counts and the pages are read one after the other. Pages that the allocator's own
        // data cannot have are of this library, which works meanwhile.
        let rest = untouched.saturating_sub(active + dirty + muzzy + own);
        let metadata = reading.get(Field::HeapMetadata).unwrap_or(0).min(rest);
        detail.set(Field::DirtyUntouched, dirty);
        detail.set(Field::MuzzyUntouched, muzzy);
        detail.set(Field::MetadataUntouched, metadata);
        detail.set(Field::OwnUntouched, own + rest - metadata);
    }
    Some(heap)
}
