//! pprof reader: a heap profile in `profile.proto`, gzipped, as a profile: ours, Go's, tcmalloc's,
//! jemalloc_pprof's.
//!
//! Sample types are known by their names. A file may lack objects, or all that was freed. Addresses
//! are those of calls. Functions and lines in the file are believed; a location without them is
//! resolved like one of a dump. A location without an address, or with the address of another one,
//! gets an address that no process has, so that its names stay apart.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use heapprof_core::{Estimate, Row, SizeClass, Totals};
use heapprof_format::{MAX_FRAMES, MAX_LABELS, Segment};
use prost::Message;

use crate::model::labels::Labels;
use crate::model::loaded_module::LoadedModule;
use crate::model::pprof_proto as proto;
use crate::model::profile::{CallStack, Profile};
use crate::model::run::Ending;
use crate::read::dump::read_comment;
use crate::resolve::{Frame, MOST_INLINED, Name, shortened};

/// Most bytes that are unpacked: a few hundred times a large service's profile.
const LARGEST: u64 = 256 << 20;
/// How many times larger a file may become, and how many bytes it may have in any case. A hostile
/// file becomes a thousand times larger, and its messages take forty times as much memory again.
const MOST_EXPANSION: u64 = 32;
const ALWAYS_ALLOWED: u64 = 16 << 20;

/// Where addresses are made up: the kernel's half, which no profile of a process has.
const MADE_UP: u64 = 0xffff_8000_0000_0000;

/// Why a gzipped file is no heap profile.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// It does not unpack.
    #[error("a gzip file that does not unpack")]
    Gzip(#[source] std::io::Error),
    /// It is too large.
    #[error("a gzip file that unpacks to more than {} MiB, the most that is allowed for its size", .0 >> 20)]
    TooLarge(u64),
    /// It is a log.
    #[error(
        "a compressed log of heapprof; unpack it first, by `gunzip` (`heapprof compress` makes logs that need no unpacking)"
    )]
    Log,
    /// It is something else.
    #[error("a gzip file, but no pprof profile")]
    Proto(#[source] prost::DecodeError),
    /// It is not about memory.
    #[error("a pprof profile without bytes in use or allocated (it has: {0})")]
    NotHeap(String),
}

/// The profile in a gzipped `profile.proto`.
///
/// # Errors
/// When it is none, or not about memory.
pub fn profile_of_pprof(gzip: &[u8]) -> Result<Profile, PprofError> {
    let allowed = (gzip.len() as u64)
        .saturating_mul(MOST_EXPANSION)
        .saturating_add(ALWAYS_ALLOWED)
        .min(LARGEST);
    let mut bytes = Vec::new();
    MultiGzDecoder::new(gzip)
        .take(allowed + 1)
        .read_to_end(&mut bytes)
        .map_err(PprofError::Gzip)?;
    if bytes.len() as u64 > allowed {
        return Err(PprofError::TooLarge(allowed));
    }
    if bytes.starts_with(&heapprof_format::FILE_HEADER) {
        return Err(PprofError::Log);
    }
    let message = proto::Profile::decode(&bytes[..]).map_err(PprofError::Proto)?;
    drop(bytes);
    profile_of_message(&message)
}

fn profile_of_message(message: &proto::Profile) -> Result<Profile, PprofError> {
    let string = |index: i64| -> &str {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        message.string_table.get(index).map_or("", String::as_str)
    };
    let types: Vec<&str> = message
        .sample_type
        .iter()
        .map(|t| string(t.r#type))
        .collect();
    let column = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| types.iter().position(|t| t == name))
    };
    let in_use = (
        column(&["inuse_objects", "objects"]),
        column(&["inuse_space", "space"]),
    );
    let allocated = (
        column(&["alloc_objects", "allocated_objects"]),
        column(&["alloc_space", "allocated_space"]),
    );
    if in_use.1.is_none() && allocated.1.is_none() {
        return Err(PprofError::NotHeap(types.join(", ")));
    }

    let mut profile = Profile::default();
    profile.run.ending = Ending::Snapshot;
    profile.run.start_wall_ns = u64::try_from(message.time_nanos).unwrap_or(0);
    profile.run.duration_ns = u64::try_from(message.duration_nanos).unwrap_or(0);
    if message
        .period_type
        .is_some_and(|t| string(t.r#type) == "space")
    {
        profile.run.interval = u64::try_from(message.period).ok().filter(|n| *n > 0);
    }
    for &comment in &message.comment {
        read_comment(string(comment), &mut profile);
    }
    if allocated.1.is_none() {
        let remark = "the file has nothing of what was freed: \"allocated\" is what is in use";
        profile.account.remarks.push(remark.into());
    }
    for mapping in &message.mapping {
        profile.modules.push(LoadedModule {
            path: shortened(string(mapping.filename)).into_owned(),
            build_id: bytes_of_hex(string(mapping.build_id)),
            segments: vec![Segment {
                start: mapping.memory_start,
                len: mapping.memory_limit.saturating_sub(mapping.memory_start),
                file_offset: mapping.file_offset,
                flags: 5,
            }],
            ..LoadedModule::default()
        });
    }
    if let (true, Some(first)) = (profile.run.program.is_empty(), profile.modules.first()) {
        profile.run.program.clone_from(&first.path);
    }

    let addresses = locations(message, &string, &mut profile);
    let mut stack_of: HashMap<(Vec<u64>, Labels), u32> = HashMap::new();
    let (mut negative, mut unknown) = (0u64, 0u64);
    for sample in &message.sample {
        let mut value = |column: Option<usize>| -> u64 {
            let value = column.and_then(|column| sample.value.get(column));
            u64::try_from(*value.unwrap_or(&0)).unwrap_or_else(|_| {
                negative += 1;
                0
            })
        };
        let mut pair = |(objects, bytes): (Option<usize>, Option<usize>)| {
            let bytes = value(bytes);
            (value(objects).max(u64::from(bytes > 0)), bytes)
        };
        let now = pair(in_use);
        let ever = if allocated.1.is_some() {
            pair(allocated)
        } else {
            now
        };
        let mut frames = Vec::new();
        for id in sample.location_id.iter().take(MAX_FRAMES) {
            match addresses.get(id) {
                Some(&address) => frames.push(address),
                None => unknown += 1,
            }
        }
        let texts = sample.label.iter().filter(|label| label.str != 0);
        let texts = texts.map(|label| {
            let (key, value) = (string(label.key), string(label.str));
            (shortened(key).into_owned(), shortened(value).into_owned())
        });
        let labels = Labels::new(texts.take(MAX_LABELS).collect());
        let stacks = &mut profile.stacks;
        let stack = *stack_of
            .entry((frames, labels))
            .or_insert_with_key(|(frames, labels)| {
                stacks.push(CallStack {
                    labels: labels.clone(),
                    frames: frames.clone(),
                    // Calls, not what follows them.
                    interrupted: (0..frames.len() as u32).collect(),
                    ..CallStack::default()
                });
                stacks.len() as u32 - 1
            });
        let label = sample
            .label
            .iter()
            .find(|label| string(label.key) == "bytes")
            .and_then(|label| u64::try_from(label.num).ok());
        let average = label.or(ever.1.checked_div(ever.0)).unwrap_or(0);
        profile.rows.push(Row {
            stack,
            class: SizeClass::of(average),
            totals: Totals {
                in_use: Estimate::given(now.0, now.1),
                allocated: Estimate::given(ever.0, ever.1),
            },
        });
    }
    let remarks = &mut profile.account.remarks;
    if negative > 0 {
        remarks.push(format!(
            "{negative} negative numbers (a difference of profiles?) were read as 0"
        ));
    }
    if unknown > 0 {
        remarks.push(format!("{unknown} frames are not in the file"));
    }
    Ok(profile)
}

/// Addresses by the id of the location; the frames that the file states go into the profile.
fn locations<'a>(
    message: &'a proto::Profile,
    string: &impl Fn(i64) -> &'a str,
    profile: &mut Profile,
) -> HashMap<u64, u64> {
    let functions: HashMap<u64, &proto::Function> =
        message.function.iter().map(|f| (f.id, f)).collect();
    let mut texts = Texts {
        string,
        names: HashMap::new(),
        files: HashMap::new(),
    };
    let mut addresses = HashMap::new();
    let mut taken = HashSet::new();
    for (location, number) in message.location.iter().zip(0u64..) {
        let mut address = location.address;
        if address == 0 || !taken.insert(address) {
            address = MADE_UP + number;
            taken.insert(address);
        }
        addresses.insert(location.id, address);
        let mut frame = |line: &proto::Line, inlined: bool| {
            let function = functions.get(&line.function_id)?;
            Some(Frame {
                function: texts.name(function),
                file: texts.file(function.filename),
                line: u32::try_from(line.line).ok().filter(|line| *line > 0),
                column: u32::try_from(line.column).ok().filter(|column| *column > 0),
                inlined,
            })
        };
        let Some((physical, inlined)) = location.line.split_last() else {
            continue;
        };
        let kept = inlined.iter().take(MOST_INLINED);
        let mut frames: Vec<Frame> = kept.filter_map(|line| frame(line, true)).collect();
        if inlined.len() > MOST_INLINED {
            frames.push(Frame::left_out());
        }
        frames.extend(frame(physical, false));
        if frames.iter().any(|frame| frame.function.is_some()) {
            profile.frames.insert(address, frames);
        }
    }
    addresses
}

/// The names of functions and files, each made once: thousands of lines have the same.
struct Texts<S> {
    string: S,
    /// By the places of the name and the linkage name in the table of strings.
    names: HashMap<(i64, i64), Option<Arc<Name>>>,
    files: HashMap<i64, Option<Arc<str>>>,
}

impl<'a, S: Fn(i64) -> &'a str> Texts<S> {
    fn name(&mut self, function: &proto::Function) -> Option<Arc<Name>> {
        let string = &self.string;
        let make = || {
            let (name, linkage) = (string(function.name), string(function.system_name));
            if name.is_empty() {
                return None;
            }
            let of_linkage = Name::new(linkage);
            Some(Arc::new(match of_linkage.demangled() == name {
                true => of_linkage,
                false => Name::new(name),
            }))
        };
        let key = (function.name, function.system_name);
        self.names.entry(key).or_insert_with(make).clone()
    }

    fn file(&mut self, place: i64) -> Option<Arc<str>> {
        let string = &self.string;
        let make = || Some(string(place)).filter(|file| !file.is_empty());
        self.files
            .entry(place)
            .or_insert_with(|| make().map(|file| Arc::from(shortened(file))))
            .clone()
    }
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> = hex
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
    digits
        .unwrap_or_default()
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}
