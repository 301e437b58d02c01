//! Loaded module: an object file of the process, where it lay and when; or a function that an
//! interpreter ran, which has addresses of its own.

use std::sync::Arc;

use heapprof_format::{Code, FileStamp, Mapping, Module, Segment};

use crate::resolve::ModuleKey;

/// A loaded object file and when it was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedModule {
    /// Path as the loader knew it.
    pub path: String,
    /// Build-id, empty when it has none or it is not known.
    pub build_id: Vec<u8>,
    /// The file that was loaded, as far as it is known without a build-id.
    pub stamp: Option<FileStamp>,
    /// avma minus svma. A dump does not state it: it is then found in the file's headers.
    pub bias: Option<u64>,
    /// Segments in ascending order of address.
    pub segments: Vec<Segment>,
    /// When it was first seen.
    pub loaded_ns: u64,
    /// When it was gone, at the latest.
    pub unloaded_ns: Option<u64>,
    /// The function of an interpreter that it is. Its path is that of the source.
    pub code: Option<Arc<Code>>,
}

/// A segment of a module in memory, in whole pages.
pub(crate) struct Mapped<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) file_offset: u64,
    pub(crate) path: &'a str,
    /// In hexadecimal; empty when there is none.
    pub(crate) build_id: String,
}

/// Most segments that one address is looked for in. Segments of one module overlap where a dump
/// states some of them twice; in a hostile file, any number overlaps.
const DEEPEST_OVERLAP: usize = 16;

impl LoadedModule {
    /// Returns true if the address lies in one of its segments.
    pub fn contains(&self, avma: u64) -> bool {
        self.segment_of(avma).is_some()
    }

    /// Returns the identity of its file, on any machine; `None` if it has none.
    pub fn key(&self) -> Option<ModuleKey> {
        if self.code.is_some() {
            return None;
        }
        ModuleKey::of(&self.path, &self.build_id, self.stamp)
    }

    /// The segment that the address lies in.
    pub fn segment_of(&self, avma: u64) -> Option<&Segment> {
        let after = self.segments.partition_point(|s| s.start <= avma);
        let before = self.segments[..after].iter().rev();
        before
            .take(DEEPEST_OVERLAP)
            .find(|s| avma - s.start < s.len)
    }

    /// A segment in whole pages, with the file as formats of other programs name it.
    pub(crate) fn mapped(&self, segment: &Segment) -> Mapped<'_> {
        let path = match self.path.strip_suffix(" (deleted)") {
            Some(path) if !self.build_id.is_empty() => path,
            _ => &self.path,
        };
        let lead = segment.start % 4096;
        let end = segment.start.saturating_add(segment.len);
        Mapped {
            start: segment.start - lead,
            end: end.checked_next_multiple_of(4096).unwrap_or(end),
            file_offset: segment.file_offset.saturating_sub(lead),
            path,
            build_id: (self.build_id.iter())
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        }
    }

    /// The last part of its path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns true if it is the profiler itself.
    pub fn is_profiler(&self) -> bool {
        self.name().starts_with("libheapprof")
    }

    /// Returns true if it is an allocator, ours or another's: its functions are nobody's site.
    pub fn is_allocator(&self) -> bool {
        const BEGIN: [&str; 3] = ["libjemalloc", "libtcmalloc", "libmimalloc"];
        self.is_profiler() || BEGIN.iter().any(|begin| self.name().starts_with(begin))
    }

    /// Where it was mapped; nowhere, if it is a function of an interpreter.
    pub fn mappings(&self) -> Vec<Mapping> {
        if self.code.is_some() {
            return Vec::new();
        }
        Mapping::of_module(&Module {
            number: 0,
            time_ns: self.loaded_ns,
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            stamp: self.stamp,
            bias: self.bias.unwrap_or(0),
            segments: self.segments.clone(),
        })
    }

    pub(crate) fn was_loaded_at(&self, time_ns: u64) -> bool {
        self.loaded_ns <= time_ns && self.unloaded_ns.is_none_or(|gone| time_ns <= gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_segment_that_begins_before_it() {
        let segment = |start, len| Segment {
            start,
            len,
            file_offset: 0,
            flags: 5,
        };
        let module = LoadedModule {
            segments: vec![
                segment(0x1000, 0x800),
                segment(0x2000, 0x800),
                segment(0x2000, 0x100),
            ],
            ..LoadedModule::default()
        };
        let found = |avma| module.segment_of(avma).map(|s| (s.start, s.len));
        assert_eq!(found(0xfff), None);
        assert_eq!(found(0x1000), Some((0x1000, 0x800)));
        assert_eq!(found(0x1800), None);
        assert_eq!(found(0x2700), Some((0x2000, 0x800)));
        assert_eq!(found(u64::MAX), None);
    }
}
