//! Memory: the resident memory at the moments of a page, each with the lines that add up to it.

use serde::Serialize;

use super::number::Number;
use super::tables::Tables;
use crate::analysis::resident_memory::ResidentMemory;
use crate::analysis::timeline::memory_moments::MemoryMoment;
use crate::model::profile::Profile;

/// See the module's text.
#[derive(Serialize)]
pub(super) struct Memory {
    /// The names of the lines.
    names: Vec<&'static str>,
    /// In the order of time.
    readings: Vec<Reading>,
}

/// A reading. Its lines have the number of a name, bytes, and the number of the text that says
/// what would shrink them. Its remarks are numbers of texts.
#[derive(Serialize)]
struct Reading {
    time_s: f64,
    resident: u64,
    /// True if all of its numbers are of one time, but for a tenth of a second.
    is_whole: bool,
    /// True if all of its numbers are of one time.
    has_own_detail: bool,
    /// True if its lines explain it.
    is_explained: bool,
    lines: Vec<(usize, Number, i64)>,
    remarks: Vec<i64>,
}

impl Memory {
    /// That of a profile at some moments; `None`: nothing tells it. A profile of a part of the
    /// blocks has no lines: they would not belong together.
    pub(super) fn of(
        profile: &Profile,
        moments: &[MemoryMoment],
        tables: &mut Tables,
    ) -> Option<Memory> {
        let is_part = !profile.filtered.is_empty();
        let mut names: Vec<&'static str> = Vec::new();
        let mut readings = Vec::new();
        for moment in moments {
            let memory = ResidentMemory::at(moment.reading, moment.blocks, &profile.run);
            let Some(memory) = memory else { continue };
            let lines = memory
                .lines
                .iter()
                .filter(|line| !is_part && line.bytes != 0);
            let lines = lines.map(|line| {
                let known = names.iter().position(|name| *name == line.name);
                let name = known.unwrap_or_else(|| {
                    names.push(line.name);
                    names.len() - 1
                });
                let remedy = tables.text(Some(&line.remedy));
                (name, Number(line.bytes as f64), remedy)
            });
            readings.push(Reading {
                time_s: memory.reading.time_ns as f64 / 1e9,
                resident: memory.resident,
                is_whole: memory.reading.is_whole(),
                has_own_detail: memory.reading.has_own_detail(),
                is_explained: memory.is_explained(),
                lines: lines.collect(),
                remarks: (memory.remarks())
                    .map(|remark| tables.text(Some(remark)))
                    .collect(),
            });
        }
        (!readings.is_empty()).then_some(Memory { names, readings })
    }
}
