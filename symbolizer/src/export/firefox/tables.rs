//! Tables: columns of equal length that refer to each other's rows, as the Firefox profiler's
//! format has them.
//!
//! ```text
//! stack ─> frame ─> func ─────> resource ─> lib
//!   │        │  └──> nativeSymbol ──────────┘   the function that physically has the instruction
//!   └prefix  └ address in the lib, line, inlineDepth (0: not inlined, then inwards)
//! ```

use std::collections::HashMap;

use serde::Serialize;

use crate::model::loaded_module::LoadedModule;
use crate::model::printable::Printable;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// See the module's text.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tables {
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    native_symbols: NativeSymbols,
    string_array: Vec<String>,
    #[serde(skip)]
    pub(super) libs: Vec<Lib>,
    #[serde(skip)]
    index: Index,
}

/// Where rows are that are already there.
#[derive(Default)]
struct Index {
    strings: HashMap<String, usize>,
    /// By module: its lib and its resource, which have the same number.
    libs: HashMap<u32, usize>,
    symbols: HashMap<(usize, usize), usize>,
    funcs: HashMap<(usize, Option<usize>, Option<usize>), usize>,
    /// The frames of a place, outermost first.
    places: HashMap<Place, Vec<usize>>,
    stacks: HashMap<(Option<usize>, usize), usize>,
}

#[derive(Serialize, Default)]
struct StackTable {
    length: usize,
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FrameTable {
    length: usize,
    /// As the lib's file states it; -1 outside of all.
    address: Vec<i64>,
    inline_depth: Vec<usize>,
    category: Vec<usize>,
    subcategory: Vec<usize>,
    func: Vec<usize>,
    native_symbol: Vec<Option<usize>>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<usize>,
    line: Vec<Option<u32>>,
    column: Vec<Option<u32>>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct FuncTable {
    length: usize,
    name: Vec<usize>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    /// -1 outside of all libs.
    resource: Vec<i64>,
    file_name: Vec<Option<usize>>,
    line_number: Vec<Option<u32>>,
    column_number: Vec<Option<u32>>,
}

#[derive(Serialize, Default)]
struct ResourceTable {
    length: usize,
    lib: Vec<usize>,
    name: Vec<usize>,
    host: Vec<Option<usize>>,
    r#type: Vec<u32>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    lib_index: Vec<usize>,
    address: Vec<u64>,
    name: Vec<usize>,
    function_size: Vec<Option<u64>>,
}

/// A module, as symbol servers know it.
#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lib {
    arch: &'static str,
    name: String,
    path: String,
    debug_name: String,
    debug_path: String,
    breakpad_id: String,
    code_id: Option<String>,
}

impl Lib {
    fn of(module: &LoadedModule) -> Lib {
        let (name, path) = (text(module.name()), text(&module.path));
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        Lib {
            arch: "x86_64",
            debug_name: name.clone(),
            debug_path: path.clone(),
            name,
            path,
            breakpad_id: breakpad_id(&module.build_id),
            code_id: (!module.build_id.is_empty()).then(|| hex(&module.build_id)),
        }
    }
}

/// The first 16 bytes of a build-id, read as a GUID of little-endian parts, and an age of 0.
fn breakpad_id(build_id: &[u8]) -> String {
    let mut guid = [0u8; 16];
    let known = build_id.len().min(16);
    guid[..known].copy_from_slice(&build_id[..known]);
    for part in [0..4, 4..6, 6..8] {
        guid[part].reverse();
    }
    let digits: String = guid.iter().map(|byte| format!("{byte:02X}")).collect();
    digits + "0"
}

fn text(name: &str) -> String {
    Printable(name).to_string()
}

impl Tables {
    /// The row of a stack; `None` for one without frames.
    pub(super) fn stack(
        &mut self,
        profile: &Profile,
        symbols: &Symbols,
        stack: &CallStack,
    ) -> Option<usize> {
        let places: Vec<Place> = profile.places(stack).collect();
        let mut prefix = None;
        for place in places.into_iter().rev() {
            for at in 0..self.frames(profile, symbols, place) {
                let frame = self.index.places[&place][at];
                let table = &mut self.stack_table;
                let row = *self.index.stacks.entry((prefix, frame)).or_insert_with(|| {
                    table.prefix.push(prefix);
                    table.frame.push(frame);
                    table.length += 1;
                    table.length - 1
                });
                prefix = Some(row);
            }
        }
        prefix
    }

    /// Sees to it that the frames of a place have rows, and says how many there are.
    fn frames(&mut self, profile: &Profile, symbols: &Symbols, place: Place) -> usize {
        if let Some(known) = self.index.places.get(&place) {
            return known.len();
        }
        let lib = self.lib(profile, place);
        let svma = symbols.svma(place);
        let frames = symbols.frames(place);
        let physical = frames
            .last()
            .map(|frame| self.string(&symbols.function(profile, place, frame)));
        let symbol = lib
            .zip(physical)
            .map(|(lib, name)| self.symbol(lib, name, svma));
        let mut rows = Vec::with_capacity(frames.len());
        for (depth, frame) in frames.iter().rev().enumerate() {
            let name = self.string(&symbols.function(profile, place, frame));
            let func = self.func(name, frame, lib);
            let table = &mut self.frame_table;
            let address = lib.and_then(|_| i64::try_from(svma).ok());
            table.address.push(address.unwrap_or(-1));
            table.inline_depth.push(depth);
            table.category.push(0);
            table.subcategory.push(0);
            table.func.push(func);
            table.native_symbol.push(symbol);
            table.inner_window_id.push(0);
            table.line.push(frame.line);
            table.column.push(frame.column);
            table.length += 1;
            rows.push(table.length - 1);
        }
        let count = rows.len();
        self.index.places.insert(place, rows);
        count
    }

    fn func(&mut self, name: usize, frame: &Frame, lib: Option<usize>) -> usize {
        let file = frame.file.as_deref().map(|file| self.string(file));
        let table = &mut self.func_table;
        *self
            .index
            .funcs
            .entry((name, file, lib))
            .or_insert_with(|| {
                table.name.push(name);
                table.is_js.push(false);
                table.relevant_for_js.push(false);
                table.resource.push(lib.map_or(-1, |lib| lib as i64));
                table.file_name.push(file);
                table.line_number.push(None);
                table.column_number.push(None);
                table.length += 1;
                table.length - 1
            })
    }

    /// `svma` is the first address of it that was met, which is as near to its start as is known.
    fn symbol(&mut self, lib: usize, name: usize, svma: u64) -> usize {
        let table = &mut self.native_symbols;
        let row = *self.index.symbols.entry((lib, name)).or_insert_with(|| {
            table.lib_index.push(lib);
            table.address.push(svma);
            table.name.push(name);
            table.function_size.push(None);
            table.length += 1;
            table.length - 1
        });
        table.address[row] = table.address[row].min(svma);
        row
    }

    fn lib(&mut self, profile: &Profile, place: Place) -> Option<usize> {
        let (number, module) = (place.module?, profile.module_of(place)?);
        if let Some(&known) = self.index.libs.get(&number) {
            return Some(known);
        }
        const LIBRARY: u32 = 1;
        let lib = Lib::of(module);
        let name = self.string(&lib.name);
        self.libs.push(lib);
        let table = &mut self.resource_table;
        let row = table.length;
        table.lib.push(row);
        table.name.push(name);
        table.host.push(None);
        table.r#type.push(LIBRARY);
        table.length += 1;
        self.index.libs.insert(number, row);
        Some(row)
    }

    fn string(&mut self, name: &str) -> usize {
        let array = &mut self.string_array;
        *self
            .index
            .strings
            .entry(text(name))
            .or_insert_with_key(|name| {
                array.push(name.clone());
                array.len() - 1
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breakpad_id_is_a_build_id_with_parts_turned() {
        let id: Vec<u8> = (0x11..0x25).collect();
        assert_eq!(breakpad_id(&id), "1413121116151817191A1B1C1D1E1F200");
        assert_eq!(breakpad_id(&[]), format!("{:033}", 0));
    }
}
