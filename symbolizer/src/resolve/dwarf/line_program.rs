//! Line program: the line number program of one unit, run once past all wanted addresses.

use super::Slice;
use super::budget::{Budget, ReadError};
use crate::resolve::names::Names;
use gimli::{ColumnType, UnitRef};
use std::collections::HashMap;
use std::sync::Arc;

/// A place in the source, its file still a number of the unit's file table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) file: u64,
    pub(super) line: Option<u32>,
    pub(super) column: Option<u32>,
}

/// How many rows are paid for at a time.
const ROWS_AT_ONCE: u64 = 4096;

/// The row of each of the sorted `wanted` addresses.
pub(super) fn rows_of(
    unit: UnitRef<'_, Slice<'_>>,
    wanted: &[u64],
    budget: &Budget,
) -> Result<Vec<Option<Row>>, ReadError> {
    let mut found = vec![None; wanted.len()];
    // The row that is in force, from its address on, and the next wanted address that it may be
    // for.
    let mut current: Option<(u64, Row)> = None;
    let mut next = 0;
    // A sequence that begins at 0 is code that the linker dropped: with all its rows, which are
    // from 0 on and would be taken for other code's.
    let (mut begins, mut is_dropped) = (true, false);
    let run = run(unit, budget, |row| {
        let here = row.address();
        if std::mem::replace(&mut begins, row.end_sequence()) {
            is_dropped = here == 0;
        }
        if is_dropped {
            return;
        }
        match current {
            // The end of a row's reach, or a later word on the same address.
            Some((begin, row_before)) => {
                while next < wanted.len() && wanted[next] < here {
                    if wanted[next] >= begin && found[next].is_none() {
                        found[next] = Some(row_before);
                    }
                    next += 1;
                }
            }
            None => next = wanted.partition_point(|&svma| svma < here),
        }
        current = (!row.end_sequence()).then(|| (here, place(row)));
    });
    // Rows before the damage are valid.
    if found.iter().all(Option::is_none) {
        run?;
    }
    Ok(found)
}

/// The address ranges that the unit's line program speaks of.
pub(super) fn sequences_of(
    unit: UnitRef<'_, Slice<'_>>,
    budget: &Budget,
    mut each: impl FnMut(gimli::Range),
) -> Result<(), ReadError> {
    let mut begin = None;
    run(unit, budget, |row| {
        if !row.end_sequence() {
            begin.get_or_insert(row.address());
        } else if let Some(begin) = begin.take()
            && begin != 0
            && begin < row.address()
        {
            each(gimli::Range {
                begin,
                end: row.address(),
            });
        }
    })
}

fn run(
    unit: UnitRef<'_, Slice<'_>>,
    budget: &Budget,
    mut each: impl FnMut(&gimli::LineRow),
) -> Result<(), ReadError> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let mut rows = program.rows();
    let mut count = 0;
    while let Some((_, row)) = rows.next_row()? {
        count += 1;
        if count % ROWS_AT_ONCE == 0 {
            budget.spend(ROWS_AT_ONCE)?;
        }
        each(row);
    }
    budget.spend(count % ROWS_AT_ONCE)
}

fn place(row: &gimli::LineRow) -> Row {
    let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
    let column = match row.column() {
        ColumnType::LeftEdge => None,
        ColumnType::Column(column) => u32::try_from(column.get()).ok(),
    };
    Row {
        file: row.file_index(),
        line,
        column: line.and(column),
    }
}

/// The file table of a unit; paths are joined when first asked for.
pub(super) struct FileNames<'u, 'd> {
    unit: UnitRef<'u, Slice<'d>>,
    names: &'u Names,
    known: HashMap<u64, Option<Arc<str>>>,
}

impl<'u, 'd> FileNames<'u, 'd> {
    pub(super) fn new(unit: UnitRef<'u, Slice<'d>>, names: &'u Names) -> Self {
        FileNames {
            unit,
            names,
            known: HashMap::new(),
        }
    }

    pub(super) fn get(&mut self, index: u64) -> Option<Arc<str>> {
        let (unit, names) = (self.unit, self.names);
        self.known
            .entry(index)
            .or_insert_with(|| Some(names.file(&path(unit, index)?)))
            .clone()
    }
}

/// Compilation directory, directory and file name joined, as far as the later ones are relative.
fn path(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Option<Vec<u8>> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let mut path = unit
        .comp_dir
        .map_or_else(Vec::new, |dir| dir.slice().to_vec());
    // Directory 0 is the compilation directory itself.
    if file.directory_index() != 0
        && let Some(directory) = file.directory(header)
    {
        push(&mut path, unit.attr_string(directory).ok()?.slice());
    }
    push(&mut path, unit.attr_string(file.path_name()).ok()?.slice());
    (!path.is_empty()).then_some(path)
}

fn push(path: &mut Vec<u8>, part: &[u8]) {
    if part.starts_with(b"/") {
        path.clear();
    } else if !path.is_empty() && !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(part);
}
