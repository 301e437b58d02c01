//! pprof format: `profile.proto`, gzipped, for `go tool pprof`, Parca, Pyroscope and speedscope.
//!
//! It follows the conventions of heap profiles: four sample types in Go's order, with unsampled
//! values. Each (stack, size class) is one sample, with its average block size as numeric label
//! `bytes`, so that `-tagfocus=1MB:` works; the labels of the program are texts. A location's
//! address is that of the call. Its first line is the innermost inlined function. Ids count from 1
//! and label keys are never 0, which Parca demands. The first mapping is the program.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::export::Options;
use crate::export::facts::{facts, intervals};
use crate::export::samples::{Before, Increment, Sample, Samples, clamp};
pub use crate::model::pprof_proto as proto;
use crate::model::profile::{Place, Profile};
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// Functions that pprof leaves out at the leaf end of a stack. It matches them whole, against names
/// cut at `(`. Only allocation entry points: never a name that a program would give a function of
/// its own, such as `allocate`, because everything below such a frame would vanish with it. For
/// that reason the whole names of the standard allocator's: a constructor of the program's own runs
/// below its `construct`, whose name begins with no return type where gcc left the linkage name out
/// (types of unnamed namespaces).
const DROP_FRAMES: &str = "malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc\
    |operator new(\\[\\])?|__rust_alloc|__rust_alloc_zeroed|__rust_realloc|__rdl_alloc|__rdl_alloc_zeroed|__rdl_realloc\
    |alloc::alloc::.*|std::(allocator|__new_allocator|allocator_traits<std::allocator)<.*>::allocate\
    |__gnu_cxx::new_allocator<.*>::allocate";

/// Writes the profile. The metric that was chosen is what pprof shows first; all four are in it,
/// and those of the past behind them if the profile has pasts.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let samples = Samples::of(profile);
    compressed(
        &Builder::new(profile, symbols).build(&samples, options),
        out,
    )
}

/// Writes an increment of a profile, without its command line.
///
/// # Errors
/// Those of `out`.
pub fn write_increment(
    profile: &Profile,
    symbols: &Symbols,
    increment: &Increment,
    out: &mut impl Write,
) -> io::Result<()> {
    let samples = Samples::of_increment(profile, increment);
    let message = Builder::new(profile, symbols).build(&samples, &Options::default());
    compressed(&message, out)
}

fn compressed(message: &proto::Profile, out: &mut impl Write) -> io::Result<()> {
    // No time and no name in the header: equal profiles are equal files.
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

/// A profile that is fetched from a running process, as scrapers of Go's endpoints expect it.
#[derive(Debug)]
pub(crate) struct Fetched<'a> {
    /// Wall clock of the fetch, nanoseconds since 1970: scrapers store it as the sample's time.
    pub(crate) time_ns: u64,
    /// The time that the difference covers; 0 for the whole time since the start.
    pub(crate) duration_ns: u64,
    /// The four numbers of each row at the beginning of the difference, by addresses and class.
    pub(crate) before: Option<&'a Before>,
}

/// Writes the profile with its four sample types, or what changed of it.
///
/// # Errors
/// Those of `out`.
pub(crate) fn write_fetched(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    fetched: &Fetched<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut samples = Samples::of(profile);
    samples.wall_ns = fetched.time_ns;
    samples.duration_ns = fetched.duration_ns;
    if let Some(before) = fetched.before {
        samples.subtract(profile, before);
    }
    let message = Builder::new(profile, symbols).build(&samples, options);
    let mut gzip = GzEncoder::new(out, Compression::fast());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

struct Builder<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    message: proto::Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(i64, i64, i64), u64>,
    locations: HashMap<Place, u64>,
    /// Id of the mapping of each (module, segment).
    mappings: HashMap<(u32, u64), u64>,
    /// By mapping id less one: has every location a function, a file, a line; has any inlined ones.
    named: Vec<[bool; 4]>,
}

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        let mut builder = Builder {
            profile,
            symbols,
            message: proto::Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            mappings: HashMap::new(),
            named: Vec::new(),
        };
        builder.string(""); // entry 0, as the format demands
        builder
    }

    fn build(mut self, samples: &Samples, options: &Options) -> proto::Profile {
        for &measure in &samples.measures {
            let (name, unit) = measure.sample_type();
            let value_type = self.value_type(name, unit);
            self.message.sample_type.push(value_type);
            if measure == options.metric {
                self.message.default_sample_type = value_type.r#type;
            }
        }
        self.message.period_type = Some(self.value_type("space", "bytes"));
        let run = &self.profile.run;
        self.message.period = run.interval.unwrap_or(1).max(1) as i64;
        self.message.time_nanos = samples.wall_ns as i64;
        self.message.duration_nanos = samples.duration_ns as i64;
        self.message.drop_frames = self.string(DROP_FRAMES);
        // The interval of the totals is none of an increment's; and a command line may hold
        // passwords.
        let mut comments = facts(self.profile);
        match samples.is_sent {
            true => comments.retain(|line| !line.starts_with("command: ")),
            false => comments.extend(intervals(self.profile, options)),
        }
        for fact in comments {
            let comment = self.string(&fact);
            self.message.comment.push(comment);
        }

        self.main_mapping();
        for sample in &samples.samples {
            self.sample(sample);
        }
        for (mapping, [function, file, line, inline]) in
            self.message.mapping.iter_mut().zip(&self.named)
        {
            // Set, they tell pprof not to look for names of its own: only when none is missing.
            mapping.has_functions = *function;
            mapping.has_filenames = *function && *file;
            mapping.has_line_numbers = *function && *line;
            mapping.has_inline_frames = *function && *inline;
        }
        self.message
    }

    fn sample(&mut self, sample: &Sample) {
        let profile = self.profile;
        let stack = profile.stacks.get(sample.stack as usize);
        let places = stack.into_iter().flat_map(|stack| profile.places(stack));
        let location_id = places.map(|place| self.location(place)).collect();
        let size = sample.block_bytes.map(|bytes| proto::Label {
            key: self.string("bytes"),
            str: 0,
            num: clamp(bytes),
            num_unit: self.string("bytes"),
        });
        let mut label: Vec<proto::Label> = size.into_iter().collect();
        for (key, value) in stack.iter().flat_map(|stack| stack.labels.iter()) {
            // Parca demands keys.
            if !key.is_empty() {
                label.push(proto::Label {
                    key: self.string(key),
                    str: self.string(value),
                    num: 0,
                    num_unit: 0,
                });
            }
        }
        self.message.sample.push(proto::Sample {
            location_id,
            value: sample.values.clone(),
            label,
        });
    }

    fn location(&mut self, place: Place) -> u64 {
        if let Some(&id) = self.locations.get(&place) {
            return id;
        }
        let mapping_id = self.mapping(place);
        let frames = self.symbols.frames(place);
        let line: Vec<proto::Line> = frames.iter().filter_map(|frame| self.line(frame)).collect();
        if mapping_id > 0 {
            let has = |test: fn(&Frame) -> bool| frames.iter().all(test);
            let [function, file, number, inline] = &mut self.named[mapping_id as usize - 1];
            *function &= has(|frame| frame.function.is_some());
            *file &= has(|frame| frame.file.is_some());
            *number &= has(|frame| frame.line.is_some());
            *inline |= frames.len() > 1;
        }
        let id = self.message.location.len() as u64 + 1;
        self.message.location.push(proto::Location {
            id,
            mapping_id,
            address: place.avma,
            line,
            is_folded: false,
        });
        self.locations.insert(place, id);
        id
    }

    fn line(&mut self, frame: &Frame) -> Option<proto::Line> {
        let function = frame.function.as_ref()?;
        let name = self.string(function.demangled());
        let system_name = self.string(function.raw());
        let filename = self.string(frame.file.as_deref().unwrap_or(""));
        let next = self.message.function.len() as u64 + 1;
        let id = *self
            .functions
            .entry((name, system_name, filename))
            .or_insert(next);
        if id == next {
            self.message.function.push(proto::Function {
                id,
                name,
                system_name,
                filename,
                start_line: 0,
            });
        }
        Some(proto::Line {
            function_id: id,
            line: frame.line.unwrap_or(0).into(),
            column: frame.column.unwrap_or(0).into(),
        })
    }

    /// The program comes first, whether or not a stack passes through it.
    fn main_mapping(&mut self) {
        let modules = &self.profile.modules;
        let program = &self.profile.run.program;
        let main = modules
            .iter()
            .position(|module| module.path == *program && module.code.is_none())
            .unwrap_or(0);
        let code = modules
            .get(main)
            .and_then(|m| m.segments.iter().find(|s| s.flags & 1 != 0));
        if let Some(code) = code {
            self.mapping(Place {
                module: Some(main as u32),
                avma: code.start,
            });
        }
    }

    /// Id of the mapping of a place, 0 outside all.
    fn mapping(&mut self, place: Place) -> u64 {
        let (Some(index), Some(module)) = (place.module, self.profile.module_of(place)) else {
            return 0;
        };
        let segment = module.segment_of(place.avma);
        let Some(segment) = segment.filter(|_| module.code.is_none()) else {
            return 0;
        };
        if let Some(&id) = self.mappings.get(&(index, segment.start)) {
            return id;
        }
        let mapped = module.mapped(segment);
        let id = self.message.mapping.len() as u64 + 1;
        let (filename, build_id) = (self.string(mapped.path), self.string(&mapped.build_id));
        self.message.mapping.push(proto::Mapping {
            id,
            memory_start: mapped.start,
            memory_limit: mapped.end,
            file_offset: mapped.file_offset,
            filename,
            build_id,
            ..proto::Mapping::default()
        });
        self.named.push([true, true, true, false]);
        self.mappings.insert((index, segment.start), id);
        id
    }

    fn value_type(&mut self, name: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            r#type: self.string(name),
            unit: self.string(unit),
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&index) = self.strings.get(text) {
            return index;
        }
        let index = self.message.string_table.len() as i64;
        self.message.string_table.push(text.into());
        self.strings.insert(text.into(), index);
        index
    }
}
