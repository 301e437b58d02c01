//! OTLP format: a `ProfilesData` message of OpenTelemetry's profiles (`v1development`).
//!
//! ```text
//!  ProfilesData ─┬─ dictionary: tables of strings, functions, mappings, locations, stacks, …
//!                └─ resource (service, process) ─ scope (heapprof) ─┬─ Profile alloc_objects
//!                                                                   ├─ Profile alloc_space
//!                                                                   ├─ Profile inuse_objects
//!                                                                   └─ Profile inuse_space, …
//! ```
//!
//! A Profile has one sample type, so there is one for each number. The values are unsampled. Entry
//! 0 of each table is the empty value, and no table has an entry twice. A mapping has its build-id
//! as attribute, by which a receiver finds names of its own. A location's address is that of the
//! call.

pub mod proto;

use std::collections::HashMap;
use std::io::{self, Write};

use heapprof_format::{SPAN_ID, TRACE_ID};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::export::Options;
use crate::export::facts::{facts, intervals};
use crate::export::samples::{Increment, Samples, clamp};
use crate::model::measure::Measure;
use crate::model::profile::{Place, Profile};
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;
use proto::{AnyValue, ArrayValue, KeyValue, Value};

/// Writes the profile: all four numbers, and those of the past behind them if it has pasts.
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
    let mut comments = facts(profile);
    comments.extend(intervals(profile, options));
    let resource = Resource::default();
    let message = Builder::new(profile, symbols).build(&samples, &comments, options, &resource);
    out.write_all(&message.encode_to_vec())
}

/// The resource, in the words of a user: names for the process beside those in its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    /// Name of the service; empty for that of the program.
    pub service: String,
    /// Further attributes, by key. A key that has a meaning here already takes this value.
    pub attributes: Vec<(String, String)>,
}

/// The message of an increment of a profile, for a receiver.
pub fn increment(
    profile: &Profile,
    symbols: &Symbols,
    increment: &Increment,
    resource: &Resource,
) -> proto::ProfilesData {
    let samples = Samples::of_increment(profile, increment);
    let mut comments = facts(profile);
    // A command line may hold passwords.
    comments.retain(|line| !line.starts_with("command: "));
    Builder::new(profile, symbols).build(&samples, &comments, &Options::default(), resource)
}

/// A table of the dictionary. Equal entries are one; entry 0 is the empty value.
struct Table<T> {
    entries: Vec<T>,
    /// By encoding, which is empty for the empty value.
    indices: HashMap<Vec<u8>, i32>,
}

impl<T: Message + Default> Table<T> {
    fn new() -> Self {
        let mut table = Table {
            entries: Vec::new(),
            indices: HashMap::new(),
        };
        table.index(T::default());
        table
    }

    fn index(&mut self, entry: T) -> i32 {
        // A message is far below this many entries: a stack has an address for each at least.
        let next = i32::try_from(self.entries.len()).unwrap_or(i32::MAX);
        let index = *self.indices.entry(entry.encode_to_vec()).or_insert(next);
        if index == next {
            self.entries.push(entry);
        }
        index
    }
}

struct Builder<'a> {
    profile: &'a Profile,
    symbols: &'a Symbols,
    strings: Vec<String>,
    string_indices: HashMap<String, i32>,
    mappings: Table<proto::Mapping>,
    locations: Table<proto::Location>,
    functions: Table<proto::Function>,
    attributes: Table<proto::KeyValueAndUnit>,
    stacks: Table<proto::Stack>,
    links: Table<proto::Link>,
    /// Index of the location of each place.
    places: HashMap<Place, i32>,
}

impl<'a> Builder<'a> {
    fn new(profile: &'a Profile, symbols: &'a Symbols) -> Self {
        let mut builder = Builder {
            profile,
            symbols,
            strings: Vec::new(),
            string_indices: HashMap::new(),
            mappings: Table::new(),
            locations: Table::new(),
            functions: Table::new(),
            attributes: Table::new(),
            stacks: Table::new(),
            links: Table::new(),
            places: HashMap::new(),
        };
        builder.string(""); // entry 0, as in the other tables
        builder
    }

    fn build(
        mut self,
        samples: &Samples,
        comments: &[String],
        options: &Options,
        resource: &Resource,
    ) -> proto::ProfilesData {
        let written: Vec<(i32, Vec<i32>, i32)> = (samples.samples.iter())
            .map(|sample| {
                let size = sample.block_bytes.map(|bytes| {
                    let value = AnyValue::from(clamp(bytes));
                    self.attribute("bytes", value, "bytes")
                });
                let (labels, link) = self.labels(sample.stack);
                let attributes = size.into_iter().chain(labels).collect();
                (self.stack(sample.stack), attributes, link)
            })
            .collect();
        let comment = self.comments(comments);
        let mut profiles = Vec::new();
        for (column, &measure) in samples.measures.iter().enumerate() {
            let (name, unit) = measure.sample_type();
            let with_stack = samples.samples.iter().zip(&written);
            let of_measure: Vec<proto::Sample> = with_stack
                .filter(|(sample, _)| sample.values[column] != 0)
                .map(|(sample, (stack, attributes, link))| proto::Sample {
                    stack_index: *stack,
                    attribute_indices: attributes.clone(),
                    link_index: *link,
                    values: vec![sample.values[column]],
                })
                .collect();
            profiles.push(proto::Profile {
                profile_id: self.profile_id(samples, measure, &of_measure, resource),
                sample_type: Some(self.value_type(name, unit)),
                samples: of_measure,
                time_unix_nano: samples.wall_ns,
                duration_nano: samples.duration_ns,
                period_type: Some(self.value_type("allocated_bytes", "bytes")),
                period: clamp(self.profile.run.interval.unwrap_or(1).max(1)),
                attribute_indices: comment.into_iter().collect(),
            });
        }
        let first = options.metric.sample_type().0;
        let order = samples
            .measures
            .iter()
            .map(|measure| measure.sample_type().0);
        let scope = proto::InstrumentationScope {
            name: "heapprof".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            attributes: vec![
                key_value("pprof.scope.default_sample_type", first.into()),
                key_value("pprof.scope.sample_type_order", array(order)),
            ],
        };
        proto::ProfilesData {
            resource_profiles: vec![proto::ResourceProfiles {
                resource: Some(self.resource(resource)),
                scope_profiles: vec![proto::ScopeProfiles {
                    scope: Some(scope),
                    profiles,
                }],
            }],
            dictionary: Some(proto::ProfilesDictionary {
                mapping_table: self.mappings.entries,
                location_table: self.locations.entries,
                function_table: self.functions.entries,
                link_table: self.links.entries,
                string_table: self.strings,
                attribute_table: self.attributes.entries,
                stack_table: self.stacks.entries,
            }),
        }
    }

    fn resource(&self, resource: &Resource) -> proto::Resource {
        let run = &self.profile.run;
        let service = match (resource.service.as_str(), run.name()) {
            ("", "") => "unknown_service",
            ("", name) => name,
            (service, _) => service,
        };
        let mut attributes = vec![key_value("service.name", service.into())];
        if run.pid != 0 {
            attributes.push(key_value("process.pid", i64::from(run.pid).into()));
        }
        for (key, value) in [
            ("process.executable.name", run.name()),
            ("process.executable.path", &run.program),
        ] {
            if !value.is_empty() {
                attributes.push(key_value(key, value.into()));
            }
        }
        // The program's description of itself; the user's words come before it.
        let said = run
            .resource
            .iter()
            .filter(|(key, _)| key != "service.name" || resource.service.is_empty());
        for (key, value) in said.chain(&resource.attributes) {
            attributes.retain(|known| known.key != *key);
            attributes.push(key_value(key, value.as_str().into()));
        }
        proto::Resource { attributes }
    }

    /// The id of a Profile: the same for the same content, so that a receiver knows a repetition.
    fn profile_id(
        &self,
        samples: &Samples,
        measure: Measure,
        written: &[proto::Sample],
        resource: &Resource,
    ) -> Vec<u8> {
        let run = &self.profile.run;
        let total = (written.iter().flat_map(|sample| &sample.values))
            .fold(0i64, |sum, &value| sum.wrapping_add(value));
        let mut hash = Sha256::new();
        for text in [
            &resource.service,
            &run.program,
            measure.sample_type().0,
            &format!("{:?}", resource.attributes),
        ] {
            hash.update(text);
            hash.update([0]);
        }
        for number in [
            run.pid.into(),
            run.start_wall_ns,
            samples.wall_ns,
            samples.duration_ns,
            written.len() as u64,
            total.cast_unsigned(),
        ] {
            hash.update(number.to_le_bytes());
        }
        hash.finalize()[..16].to_vec()
    }

    fn comments(&mut self, comments: &[String]) -> Option<i32> {
        if comments.is_empty() {
            return None;
        }
        let value = array(comments.iter().map(String::as_str));
        Some(self.attribute("pprof.profile.comment", value, ""))
    }

    /// The attributes and the link of a stack's labels. A trace and a span are the link.
    fn labels(&mut self, stack: u32) -> (Vec<i32>, i32) {
        let Some(stack) = self.profile.stacks.get(stack as usize) else {
            return (Vec::new(), 0);
        };
        let labels = &stack.labels;
        let id = |key: &str, bytes| bytes_of_hex(labels.get(key)?).filter(|id| id.len() == bytes);
        let link = id(TRACE_ID, 16).zip(id(SPAN_ID, 8));
        let is_shown = |key: &str| link.is_none() || ![TRACE_ID, SPAN_ID].contains(&key);
        let shown = labels.iter().filter(|(key, _)| is_shown(key));
        let attributes = shown
            .map(|(key, value)| self.attribute(key, value.into(), ""))
            .collect();
        let link = link.map_or(0, |(trace_id, span_id)| {
            self.links.index(proto::Link { trace_id, span_id })
        });
        (attributes, link)
    }

    fn stack(&mut self, stack: u32) -> i32 {
        let profile = self.profile;
        let Some(stack) = profile.stacks.get(stack as usize) else {
            return 0;
        };
        let location_indices = profile
            .places(stack)
            .map(|place| self.location(place))
            .collect();
        self.stacks.index(proto::Stack { location_indices })
    }

    fn location(&mut self, place: Place) -> i32 {
        if let Some(&index) = self.places.get(&place) {
            return index;
        }
        let symbols = self.symbols;
        let frames = symbols.frames(place);
        let lines = frames.iter().filter_map(|frame| self.line(frame)).collect();
        let module = self.profile.module_of(place);
        let kind = match module.is_some_and(|it| it.code.is_some()) {
            true => "cpython",
            false => "native",
        };
        let kind = self.attribute("profile.frame.type", kind.into(), "");
        let location = proto::Location {
            mapping_index: self.mapping(place),
            address: place.avma,
            lines,
            attribute_indices: vec![kind],
        };
        let index = self.locations.index(location);
        self.places.insert(place, index);
        index
    }

    fn line(&mut self, frame: &Frame) -> Option<proto::Line> {
        let function = frame.function.as_ref()?;
        let function = proto::Function {
            name_strindex: self.string(function.demangled()),
            system_name_strindex: self.string(function.raw()),
            filename_strindex: self.string(frame.file.as_deref().unwrap_or("")),
            start_line: 0,
        };
        Some(proto::Line {
            function_index: self.functions.index(function),
            line: frame.line.unwrap_or(0).into(),
            column: frame.column.unwrap_or(0).into(),
        })
    }

    /// Index of the mapping of a place, 0 outside all.
    fn mapping(&mut self, place: Place) -> i32 {
        let Some(mapped) = self.profile.module_of(place).and_then(|module| {
            let segment = module.segment_of(place.avma)?;
            module.code.is_none().then(|| module.mapped(segment))
        }) else {
            return 0;
        };
        let build_id = (!mapped.build_id.is_empty()).then(|| {
            let value = AnyValue::from(mapped.build_id.as_str());
            self.attribute("process.executable.build_id.gnu", value, "")
        });
        let mapping = proto::Mapping {
            memory_start: mapped.start,
            memory_limit: mapped.end,
            file_offset: mapped.file_offset,
            filename_strindex: self.string(mapped.path),
            attribute_indices: build_id.into_iter().collect(),
        };
        self.mappings.index(mapping)
    }

    fn attribute(&mut self, key: &str, value: AnyValue, unit: &str) -> i32 {
        let attribute = proto::KeyValueAndUnit {
            key_strindex: self.string(key),
            value: Some(value),
            unit_strindex: self.string(unit),
        };
        self.attributes.index(attribute)
    }

    fn value_type(&mut self, name: &str, unit: &str) -> proto::ValueType {
        proto::ValueType {
            type_strindex: self.string(name),
            unit_strindex: self.string(unit),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        if let Some(&index) = self.string_indices.get(text) {
            return index;
        }
        let index = i32::try_from(self.strings.len()).unwrap_or(i32::MAX);
        self.strings.push(text.into());
        self.string_indices.insert(text.into(), index);
        index
    }
}

/// Returns the bytes of hexadecimal digits.
fn bytes_of_hex(digits: &str) -> Option<Vec<u8>> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|it| it.is_ascii_hexdigit());
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    is_hex.then(|| (0..digits.len()).step_by(2).map_while(byte).collect())
}

fn key_value(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.into(),
        value: Some(value),
    }
}

fn array<'a>(texts: impl Iterator<Item = &'a str>) -> AnyValue {
    AnyValue {
        value: Some(Value::ArrayValue(ArrayValue {
            values: texts.map(AnyValue::from).collect(),
        })),
    }
}
