//! Layout of jemalloc that the library relies on, compared with the debug information of the very
//! jemalloc that is linked into it.
//!
//! The library reads and writes a few private words of jemalloc. One file has all knowledge of
//! these words, and this test includes it as it is. Another version of jemalloc fails here, and
//! does not corrupt a heap.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::mem::offset_of;
use std::sync::OnceLock;

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian, Unit, UnitRef};
use heapprof_tests::{Build, repository};
use object::{Object as _, ObjectSection as _};

#[allow(
    dead_code,
    reason = "the library's own file: here only its numbers are compared"
)]
#[path = "../../preload/src/allocator/layout.rs"]
mod layout;

type Slice = EndianSlice<'static, LittleEndian>;
type Entry<'a> = DebuggingInformationEntry<Slice>;

/// A member of a struct: its offset, and the size of its type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    offset: u64,
    bytes: u64,
    /// The struct of its type, if the type is one.
    of: Option<String>,
}

/// The debug information by names.
#[derive(Debug, Default)]
struct Debug {
    structs: HashMap<String, (u64, BTreeMap<String, Member>)>,
    /// Sizes of the parameters, and of the result (0: none).
    functions: HashMap<String, (Vec<u64>, u64)>,
    /// Size of the variable, and its number of elements if it is an array.
    variables: HashMap<String, (u64, u64)>,
    /// The states of extents, by names.
    states: HashMap<String, u64>,
    /// Macros whose definition is one word.
    macros: HashMap<String, String>,
}

/// The structs, functions and variables in question.
const STRUCTS: [&str; 22] = [
    "arena_s",
    "arena_stats_s",
    "arena_stats_large_s",
    "base_s",
    "bin_info_s",
    "bin_s",
    "bin_stats_s",
    "bitmap_info_s",
    "cache_bin_array_descriptor_s",
    "ecache_s",
    "eset_s",
    "malloc_mutex_s",
    "pa_shard_s",
    "pac_s",
    "tsd_s",
    "tcache_s",
    "cache_bin_s",
    "cache_bin_info_s",
    "edata_s",
    "rtree_s",
    "emap_s",
    "te_base_cb_s",
];

/// Reads the debug information of the library's C files.
fn debug() -> &'static Debug {
    static DEBUG: OnceLock<Debug> = OnceLock::new();
    DEBUG.get_or_init(|| {
        let file = fs::read(Build::get().library()).unwrap();
        let file = object::File::parse(&*Vec::leak(file)).unwrap();
        let load = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
            let section = file.section_by_name(id.name());
            let bytes = section.and_then(|section| section.uncompressed_data().ok());
            let bytes: &'static [u8] = match bytes {
                Some(Cow::Borrowed(bytes)) => bytes,
                Some(Cow::Owned(bytes)) => Vec::leak(bytes),
                None => &[],
            };
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(load).unwrap();
        let mut debug = Debug::default();
        let mut units = dwarf.units();
        while let Some(header) = units.next().unwrap() {
            let unit = dwarf.unit(header).unwrap();
            let name = unit
                .name
                .map_or_else(String::new, |name| name.to_string_lossy().into());
            if !name.ends_with(".c") {
                continue;
            }
            read_unit(UnitRef::new(&dwarf, &unit), &mut debug);
            if name.ends_with("/tcache.c") {
                read_macros(&dwarf, &unit, &mut debug);
            }
        }
        debug
    })
}

fn read_unit(unit: UnitRef<'_, Slice>, debug: &mut Debug) {
    let mut tree = unit.entries_tree(None).unwrap();
    let mut children = tree.root().unwrap().children();
    while let Some(child) = children.next().unwrap() {
        let entry = child.entry().clone();
        let Some(name) = name_of(unit, &entry) else {
            continue;
        };
        match entry.tag() {
            gimli::DW_TAG_structure_type if STRUCTS.contains(&&*name) => {
                let Some(bytes) = number(&entry, gimli::DW_AT_byte_size) else {
                    continue; // declared only
                };
                let mut members = BTreeMap::new();
                let mut fields = child.children();
                while let Some(field) = fields.next().unwrap() {
                    let field = field.entry();
                    let offset = number(field, gimli::DW_AT_data_member_location).unwrap_or(0);
                    let (bytes, of) = type_of(unit, field);
                    let name = name_of(unit, field).unwrap_or_else(|| format!("union at {offset}"));
                    members.insert(name, Member { offset, bytes, of });
                }
                debug.structs.insert(name, (bytes, members));
            }
            gimli::DW_TAG_enumeration_type if name == "extent_state_e" => {
                let mut values = child.children();
                while let Some(value) = values.next().unwrap() {
                    let entry = value.entry();
                    let name = name_of(unit, entry).unwrap_or_default();
                    let value = number(entry, gimli::DW_AT_const_value).unwrap();
                    debug.states.insert(name, value);
                }
            }
            gimli::DW_TAG_subprogram if name.starts_with("_rjem_je_") => {
                let mut parameters = Vec::new();
                let mut fields = child.children();
                while let Some(field) = fields.next().unwrap() {
                    if field.entry().tag() == gimli::DW_TAG_formal_parameter {
                        parameters.push(type_of(unit, field.entry()).0);
                    }
                }
                let result = type_of(unit, &entry).0;
                debug.functions.entry(name).or_insert((parameters, result));
            }
            gimli::DW_TAG_variable if name.starts_with("_rjem_je_") => {
                let (bytes, elements) = (type_of(unit, &entry).0, elements(unit, &entry));
                debug.variables.insert(name, (bytes, elements));
            }
            _ => {}
        }
    }
}

fn name_of(unit: UnitRef<'_, Slice>, entry: &Entry<'_>) -> Option<String> {
    let name = unit
        .attr_string(entry.attr_value(gimli::DW_AT_name)?)
        .ok()?;
    Some(name.to_string_lossy().into_owned())
}

fn number(entry: &Entry<'_>, what: gimli::DwAt) -> Option<u64> {
    entry.attr_value(what)?.udata_value()
}

/// Returns the entry of an entry's type, past typedefs and qualifiers.
fn target(unit: UnitRef<'_, Slice>, entry: &Entry<'_>) -> Option<Entry<'static>> {
    let mut at = match entry.attr_value(gimli::DW_AT_type)? {
        AttributeValue::UnitRef(at) => at,
        _ => return None,
    };
    loop {
        let found = unit.entry(at).ok()?;
        let passes_on = [
            gimli::DW_TAG_typedef,
            gimli::DW_TAG_const_type,
            gimli::DW_TAG_volatile_type,
            gimli::DW_TAG_atomic_type,
            gimli::DW_TAG_restrict_type,
        ];
        if !passes_on.contains(&found.tag()) {
            return Some(found);
        }
        match found.attr_value(gimli::DW_AT_type) {
            Some(AttributeValue::UnitRef(next)) => at = next,
            _ => return Some(found),
        }
    }
}

/// Returns the bytes of an entry's type (eight of a pointer, 0 of none), and its name if it is a
/// struct.
fn type_of(unit: UnitRef<'_, Slice>, entry: &Entry<'_>) -> (u64, Option<String>) {
    let Some(found) = target(unit, entry) else {
        return (0, None);
    };
    match found.tag() {
        gimli::DW_TAG_pointer_type => (8, None),
        gimli::DW_TAG_array_type => {
            let (bytes, of) = type_of(unit, &found);
            (bytes * elements(unit, entry), of)
        }
        _ => {
            let bytes = number(&found, gimli::DW_AT_byte_size).unwrap_or(0);
            (bytes, name_of(unit, &found))
        }
    }
}

/// Returns the number of elements if an entry's type is an array; 1 otherwise.
fn elements(unit: UnitRef<'_, Slice>, entry: &Entry<'_>) -> u64 {
    let Some(found) = target(unit, entry).filter(|it| it.tag() == gimli::DW_TAG_array_type) else {
        return 1;
    };
    let mut tree = unit.entries_tree(Some(found.offset())).unwrap();
    let mut children = tree.root().unwrap().children();
    let mut elements = 1;
    while let Some(child) = children.next().unwrap() {
        if let Some(last) = number(child.entry(), gimli::DW_AT_upper_bound) {
            elements *= last + 1;
        }
    }
    elements
}

fn read_macros(dwarf: &gimli::Dwarf<Slice>, unit: &Unit<Slice>, debug: &mut Debug) {
    let mut entries = unit.entries();
    entries.next_entry().unwrap();
    let root = entries.current().unwrap();
    let at = [gimli::DW_AT_macros, gimli::DW_AT_GNU_macros];
    let at = at.iter().find_map(|&name| root.attr_value(name));
    let mut left = match at {
        Some(AttributeValue::DebugMacroRef(at)) => vec![at],
        Some(AttributeValue::SecOffset(at)) => vec![gimli::DebugMacroOffset(at)],
        other => panic!("no macros: {other:?}"),
    };
    while let Some(at) = left.pop() {
        let mut macros = dwarf.macros(at).unwrap();
        while let Some(entry) = macros.next().unwrap() {
            match entry {
                gimli::MacroEntry::Define { text, .. } => {
                    let text = text.string(UnitRef::new(dwarf, unit)).unwrap();
                    let text = text.to_string_lossy().into_owned();
                    if let Some((name, value)) = text.split_once(' ') {
                        debug.macros.insert(name.to_owned(), value.to_owned());
                    }
                }
                gimli::MacroEntry::Import { offset } => left.push(offset),
                _ => {}
            }
        }
    }
}

impl Debug {
    fn member(&self, of: &str, name: &str) -> &Member {
        let (_, members) = &self.structs[of];
        members
            .get(name)
            .unwrap_or_else(|| panic!("struct {of} has no member {name}: {:?}", members.keys()))
    }

    fn offset(&self, of: &str, name: &str) -> usize {
        self.member(of, name).offset as usize
    }

    fn number(&self, name: &str) -> usize {
        let value = self.macros.get(name);
        let value = value.unwrap_or_else(|| panic!("there is no macro {name}"));
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {value}"))
    }
}

/// Returns the name of a member of `tsd_s`.
fn tsd(name: &str) -> String {
    format!("cant_access_tsd_items_directly_use_a_getter_or_setter_{name}")
}

#[test]
fn a_threads_words_are_where_they_are_taken_to_be() {
    let debug = debug();
    let at = |name: &str| debug.offset("tsd_s", &tsd(name));
    assert_eq!(at("thread_allocated"), layout::ALLOCATED);
    assert_eq!(
        at("thread_allocated_next_event_fast"),
        layout::ALLOCATED_LIMIT
    );
    assert_eq!(at("thread_deallocated"), layout::FREED);
    assert_eq!(
        at("thread_deallocated_next_event_fast"),
        layout::FREED_LIMIT
    );
    let bins = at("tcache") + debug.offset("tcache_s", "bins");
    assert_eq!(bins, layout::BINS);
    assert_eq!(
        debug.variables["_rjem_je_tsd_tls"].0,
        debug.structs["tsd_s"].0
    );
}

#[test]
fn a_bin_is_laid_out_as_it_is_taken_to_be() {
    let debug = debug();
    let at = |name: &str| debug.offset("cache_bin_s", name);
    assert_eq!(
        debug.structs["cache_bin_s"].0,
        size_of::<layout::Bin>() as u64
    );
    assert_eq!(at("stack_head"), offset_of!(layout::Bin, head));
    assert_eq!(at("tstats"), offset_of!(layout::Bin, requests));
    assert_eq!(at("low_bits_low_water"), offset_of!(layout::Bin, low_water));
    assert_eq!(at("low_bits_full"), offset_of!(layout::Bin, full));
    assert_eq!(at("low_bits_empty"), offset_of!(layout::Bin, empty));
    let most = at("bin_info") + debug.offset("cache_bin_info_s", "ncached_max");
    assert_eq!(most, offset_of!(layout::Bin, most));
    for name in ["low_bits_low_water", "low_bits_full", "low_bits_empty"] {
        assert_eq!(debug.member("cache_bin_s", name).bytes, 2, "{name}");
    }
}

#[test]
fn the_map_of_addresses_is_as_it_is_taken_to_be() {
    let debug = debug();
    assert_eq!(debug.offset("emap_s", "rtree"), 0);
    let root = debug.member("rtree_s", "root");
    assert_eq!(root.offset as usize, layout::ROOT_AT);
    let of_leaf = layout::PAGE_BITS + layout::LEAF_BITS;
    assert_eq!(debug.number("LG_VADDR") as u32 - of_leaf, layout::LEAF_BITS);
    assert_eq!(root.bytes, 8 << layout::LEAF_BITS);
    assert_eq!(debug.number("LG_PAGE") as u32, layout::PAGE_BITS);
    // `rtree_leaf_elm_bits_encode` puts the class above the bits of an address.
    assert_eq!(debug.number("LG_VADDR") as u32, layout::CLASS_AT);
    assert_eq!(debug.number("EDATA_ALIGNMENT"), layout::EXTENT_ALIGNMENT);
    assert_eq!(1 << debug.number("LG_CACHELINE"), layout::LARGE_ALIGNMENT);
    assert_eq!(
        debug.structs["edata_s"].0 as usize % layout::EXTENT_ALIGNMENT,
        0
    );
    // `e_size_esn` is in a union without a name.
    let (_, members) = &debug.structs["edata_s"];
    let at_size = members
        .values()
        .filter(|it| it.offset == layout::EXTENT_BYTES_AT as u64);
    assert_eq!(at_size.map(|it| it.bytes).collect::<Vec<_>>(), [8]);
    assert_eq!(debug.offset("edata_s", "e_bits"), 0);
    let width = |field: &str| debug.number(&format!("EDATA_BITS_{field}_WIDTH")) as u32;
    let before = debug.number("MALLOCX_ARENA_BITS") as u32;
    assert_eq!(before, layout::ARENA_BITS);
    assert_eq!(debug.number("EDATA_BITS_ARENA_SHIFT"), 0);
    assert_eq!(before, layout::IS_SLAB_AT);
    assert_eq!(width("STATE"), layout::STATE_BITS);
    let state_at = debug.number("RTREE_LEAF_STATE_SHIFT");
    assert_eq!(state_at as u32, layout::STATE_AT);
    let states =
        ["dirty", "muzzy", "retained"].map(|name| debug.states[&format!("extent_state_{name}")]);
    let expected = [layout::DIRTY, layout::MUZZY, layout::RETAINED];
    assert_eq!(states, expected.map(|state| state as u64));
    let fields = ["SLAB", "COMMITTED", "PAI", "ZEROED", "GUARDED", "STATE"].map(width);
    assert_eq!(before + fields.iter().sum::<u32>(), layout::SLAB_CLASS_AT);
    let page_bits = debug.number("LG_PAGE") as u32;
    let tiny_bits = debug.number("SC_LG_TINY_MIN") as u32;
    assert_eq!(page_bits - tiny_bits + 1, layout::FREE_BLOCKS_BITS);
    let (bytes, classes) = debug.variables["_rjem_je_sz_index2size_tab"];
    assert_eq!(classes.next_power_of_two(), 1 << layout::SLAB_CLASS_BITS);
    assert_eq!(bytes, 8 * classes);
    assert!(classes <= layout::CLASSES as u64, "{classes}");
    let (_, small) = debug.variables["_rjem_je_bin_infos"];
    assert_eq!(small, layout::SMALL_CLASSES as u64);
}

/// Compares the sizes of parameters and result, for every function in the file.
#[test]
fn functions_and_variables_are_what_they_are_taken_to_be() {
    let debug = debug();
    let functions: [(&str, &[u64], u64); 12] = [
        ("large_palloc", &[8, 8, 8, 8, 1], 8),
        ("large_dalloc", &[8, 8], 0),
        ("narenas_total_get", &[], 4),
        ("arena_init", &[8, 4, 8], 8),
        ("arena_decay", &[8, 8, 1, 1], 0),
        ("pac_destroy", &[8, 8], 0),
        ("tcache_flush", &[8], 0),
        ("arena_basic_stats_merge", &[8; 9], 0),
        ("tcache_enabled_set", &[8, 1], 0),
        ("cache_bin_init_disabled", &[8, 2], 0),
        ("tcache_cleanup", &[8], 0),
        ("base_new", &[8, 4, 8, 1], 8),
    ];
    for (name, parameters, result) in functions {
        let found = debug.functions.get(&format!("_rjem_je_{name}"));
        assert_eq!(found, Some(&(parameters.to_vec(), result)), "{name}");
    }
    let variables = [
        ("arena_emap_global", debug.structs["emap_s"].0),
        (
            "tcache_gc_te_handler",
            size_of::<layout::ThreadEvent>() as u64,
        ),
        ("opt_tcache", 1),
        ("global_do_not_change_tcache_maxclass", 8),
        ("narenas_auto", 4),
        ("arenas", 8), // an array that is declared without a length
    ];
    for (name, bytes) in variables {
        let found = debug.variables.get(&format!("_rjem_je_{name}"));
        assert_eq!(found.map(|it| it.0), Some(bytes), "{name}");
    }
    let (bytes, members) = &debug.structs["te_base_cb_s"];
    assert_eq!(*bytes, size_of::<layout::ThreadEvent>() as u64);
    let names = [
        "enabled",
        "new_event_wait",
        "postponed_event_wait",
        "event_handler",
    ];
    let offsets = names.map(|name| members.get(name).map(|it| it.offset));
    assert_eq!(
        offsets,
        [Some(0), Some(8), Some(16), Some(24)],
        "{members:?}"
    );
}

/// Every symbol of jemalloc that the library names is in that file, and compared above.
#[test]
fn every_private_symbol_is_compared() {
    let source = fs::read_to_string(repository().join("preload/src/allocator/layout.rs")).unwrap();
    let this = fs::read_to_string(repository().join("tests/tests/jemalloc_layout.rs")).unwrap();
    let names = source.split('"').filter(|text| text.contains("_rjem_je_"));
    let mut count = 0;
    for name in names {
        count += 1;
        let name = name
            .trim_start_matches("__real_")
            .trim_start_matches("_rjem_je_");
        let is_compared =
            this.contains(&format!("\"{name}\"")) || this.contains(&format!("_rjem_je_{name}\""));
        // An opaque struct that is passed on unchanged.
        assert!(is_compared || name == "arena_config_default", "{name}");
    }
    assert!(count >= 15, "{count}");
}

#[test]
fn counts_of_arenas_are_where_they_are_taken_to_be() {
    let debug = debug();
    let at = |of: &str, name: &str| debug.offset(of, name);
    let large = at("arena_s", "stats") + at("arena_stats_s", "lstats");
    assert_eq!(large, layout::ARENA_LARGE_AT);
    let internal = at("arena_s", "stats") + at("arena_stats_s", "internal");
    assert_eq!(internal, layout::ARENA_INTERNAL_AT);
    let one = debug.structs["arena_stats_large_s"].0 as usize;
    assert_eq!(one, layout::LARGE_BYTES);
    let all = debug.member("arena_stats_s", "lstats").bytes as usize;
    assert_eq!(all / one, layout::LARGE_CLASSES);
    let active = at("arena_stats_large_s", "active_bytes");
    assert_eq!(active, layout::LARGE_ACTIVE_AT);
    let allocations = at("arena_stats_large_s", "nmalloc");
    assert_eq!(allocations, layout::LARGE_ALLOCATIONS_AT);
    assert_eq!(at("arena_stats_large_s", "ndalloc"), layout::LARGE_FREES_AT);
    assert_eq!(at("arena_s", "base"), layout::ARENA_BASE_AT);
    assert_eq!(at("base_s", "resident"), layout::BASE_RESIDENT_AT);
    let ranges = at("arena_s", "pa_shard") + at("pa_shard_s", "pac");
    assert_eq!(ranges, layout::ARENA_RANGES_AT);
    let retained = ["eset", "guarded_eset"].map(|set| {
        ranges + at("pac_s", "ecache_retained") + at("ecache_s", set) + at("eset_s", "npages")
    });
    assert_eq!(retained, layout::ARENA_RETAINED_AT);
    assert_eq!(debug.structs["bin_s"].0 as usize, layout::BIN_BYTES);
    let blocks = at("bin_s", "stats") + at("bin_stats_s", "curregs");
    assert_eq!(blocks, layout::BIN_BLOCKS_AT);
    let count = ["arena_s", "base_s", "bin_stats_s"].map(|of| match of {
        "arena_s" => debug.member(of, "base").bytes,
        "base_s" => debug.member(of, "resident").bytes,
        _ => debug.member(of, "curregs").bytes,
    });
    assert_eq!(count, [8; 3]);
}

#[test]
fn small_classes_are_described_as_they_are_taken_to_be() {
    let debug = debug();
    let at = |name: &str| debug.offset("bin_info_s", name);
    let bytes = debug.structs["bin_info_s"].0;
    assert_eq!(bytes, size_of::<layout::BinInfo>() as u64);
    assert_eq!(at("reg_size"), offset_of!(layout::BinInfo, block));
    assert_eq!(at("slab_size"), offset_of!(layout::BinInfo, slab));
    assert_eq!(at("nregs"), offset_of!(layout::BinInfo, blocks));
    assert_eq!(at("n_shards"), offset_of!(layout::BinInfo, shards));
    assert_eq!(at("bitmap_info"), offset_of!(layout::BinInfo, bitmap));
    let classes = layout::SMALL_CLASSES as u64;
    assert_eq!(
        debug.variables["_rjem_je_bin_infos"],
        (bytes * classes, classes)
    );
    let offsets = debug.variables["_rjem_je_arena_bin_offsets"];
    assert_eq!(offsets, (4 * classes, classes));
}

#[test]
fn an_arenas_list_of_caches_is_as_it_is_taken_to_be() {
    let debug = debug();
    let at = |of: &str, name: &str| debug.offset(of, name);
    let list = at("arena_s", "cache_bin_array_descriptor_ql");
    assert_eq!(list, layout::ARENA_CACHES_AT);
    let of_list = at("arena_s", "tcache_ql_mtx") + layout::MUTEX_LOCK_AT;
    assert_eq!(of_list, layout::ARENA_CACHES_LOCK_AT);
    // The mutex is in a union without a name, behind 64 bytes of statistics and a hint of a byte.
    let mutex = debug.structs["malloc_mutex_s"].0 as usize;
    assert_eq!(
        mutex,
        layout::MUTEX_LOCK_AT + size_of::<libc::pthread_mutex_t>()
    );
    assert_eq!(at("cache_bin_array_descriptor_s", "link"), 0);
    assert_eq!(
        at("cache_bin_array_descriptor_s", "bins"),
        layout::CACHE_BINS_AT
    );
    let bins = debug.member("tcache_s", "bins").bytes as usize;
    assert_eq!(bins / size_of::<layout::Bin>(), layout::CACHED_CLASSES);
}
