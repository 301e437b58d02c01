//! Firefox profiler format: allocations and frees as native allocations, in a processed profile.
//!
//! The profiler's views of retained memory then work for any selected range of time. Open it at
//! <https://profiler.firefox.com>, which reads the file on your machine and uploads nothing.
//!
//! Each sampled block is an allocation of as many bytes as it stands for, and a free of as many.
//! All are on one thread, where the viewer looks for them. A dump has no events: each of its rows
//! is one block at time 0, and what was freed is freed at once.
//!
//! The format has bytes and no number of objects. The rounding error is carried on, so that sums
//! are right.
//!
//! The tables are those of version 55 of the format, which later viewers upgrade (`tables`).

mod tables;

use std::collections::HashMap;
use std::io::{self, Write};

use heapprof_core::Weight;
use serde::Serialize;

use crate::export::Options;
use crate::export::facts::in_a_line;
use crate::model::metric::Numbers;
use crate::model::printable::{Json, Printable};
use crate::model::profile::Profile;
use crate::naming::symbols::Symbols;
use tables::{Lib, Tables};

/// Writes the profile. The metric does not matter: the viewer has its own switch.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let run = &profile.run;
    let name = run.name();
    let name = match (options.title.as_str(), name) {
        ("", "") => "unknown program".into(),
        ("", name) => Printable(name).to_string(),
        (title, _) => Printable(title).to_string(),
    };
    let mut tables = Tables::default();
    let stacks: Vec<Option<usize>> = profile
        .stacks
        .iter()
        .map(|stack| tables.stack(profile, symbols, stack))
        .collect();
    let document = Document {
        meta: Meta::of(&format!("{name}{}", in_a_line(profile)), run.start_wall_ns),
        libs: tables.libs.clone(),
        threads: vec![Thread::of(
            &name,
            profile,
            allocations(profile, &stacks),
            tables,
        )],
        pages: [],
        profiler_overhead: [],
        counters: [],
    };
    Json::Compact.write(&document, out)
}

/// Returns when each sampled block came and went.
fn allocations(profile: &Profile, stacks: &[Option<usize>]) -> Allocations {
    let mut list = Allocations {
        weight_type: "bytes",
        ..Allocations::default()
    };
    let stack_of = |stack: u32| stacks.get(stack as usize).copied().flatten();
    if let Some(events) = &profile.extras.events {
        let mut live: HashMap<u64, (i64, Option<usize>)> = HashMap::new();
        let mut carried = 0.0;
        for event in events {
            match event.allocated {
                Some(block) => {
                    let weight = Weight::of(block.size, block.interval).objects_f64();
                    let exact = weight * block.size as f64 + carried;
                    let bytes = exact.round();
                    carried = exact - bytes;
                    let stack = stack_of(block.stack);
                    live.insert(event.id, (bytes as i64, stack));
                    list.add(event.time_ns, stack, event.id, bytes as i64);
                }
                None => {
                    if let Some((bytes, stack)) = live.remove(&event.id) {
                        list.add(event.time_ns, stack, event.id, -bytes);
                    }
                }
            }
        }
    } else {
        for (row, id) in profile.rows.iter().zip((1u64..).step_by(2)) {
            let numbers = Numbers::of(&row.totals);
            let stack = stack_of(row.stack);
            let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let freed = numbers.allocated_bytes.saturating_sub(numbers.in_use_bytes);
            if numbers.in_use_bytes > 0 {
                list.add(0, stack, id, signed(numbers.in_use_bytes));
            }
            if freed > 0 {
                list.add(0, stack, id + 1, signed(freed));
                list.add(0, stack, id + 1, -signed(freed));
            }
        }
    }
    list
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    meta: Meta,
    libs: Vec<Lib>,
    threads: Vec<Thread>,
    pages: [(); 0],
    profiler_overhead: [(); 0],
    counters: [(); 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    version: u32,
    preprocessed_profile_version: u32,
    product: String,
    start_time: f64,
    interval: f64,
    process_type: u32,
    categories: [Category; 1],
    marker_schema: [(); 0],
    sample_units: SampleUnits,
    extensions: Extensions,
    debug: bool,
    /// Names are in the file: the viewer need not ask a symbol server.
    symbolicated: bool,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    initial_visible_threads: [usize; 1],
    initial_selected_threads: [usize; 1],
}

#[derive(Serialize)]
struct Category {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Extensions {
    length: usize,
    #[serde(rename = "baseURL")]
    base_url: [(); 0],
    id: [(); 0],
    name: [(); 0],
}

impl Meta {
    fn of(name: &str, start_wall_ns: u64) -> Meta {
        Meta {
            version: 24,
            preprocessed_profile_version: 55,
            product: format!("heapprof: {name}"),
            start_time: start_wall_ns as f64 / 1e6,
            interval: 1.0,
            process_type: 0,
            categories: [Category {
                name: "Other",
                color: "grey",
                subcategories: ["Other"],
            }],
            marker_schema: [],
            sample_units: SampleUnits {
                time: "ms",
                event_delay: "ms",
                thread_cpu_delta: "µs",
            },
            extensions: Extensions {
                length: 0,
                base_url: [],
                id: [],
                name: [],
            },
            debug: false,
            symbolicated: true,
            uses_only_one_stack_type: true,
            source_code_is_not_on_searchfox: true,
            initial_visible_threads: [0],
            initial_selected_threads: [0],
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    name: String,
    process_name: String,
    process_type: &'static str,
    is_main_thread: bool,
    pid: String,
    tid: String,
    process_startup_time: f64,
    process_shutdown_time: f64,
    register_time: f64,
    unregister_time: f64,
    paused_ranges: [(); 0],
    show_markers_in_timeline: bool,
    samples: Samples,
    native_allocations: Allocations,
    markers: Markers,
    #[serde(flatten)]
    tables: Tables,
}

impl Thread {
    fn of(name: &str, profile: &Profile, list: Allocations, tables: Tables) -> Thread {
        let end = milliseconds(profile.run.duration_ns);
        let pid = profile.run.pid.to_string();
        Thread {
            name: name.into(),
            process_name: name.into(),
            process_type: "default",
            is_main_thread: true,
            tid: pid.clone(),
            pid,
            process_startup_time: 0.0,
            process_shutdown_time: end,
            register_time: 0.0,
            unregister_time: end,
            paused_ranges: [],
            show_markers_in_timeline: false,
            // A thread without a sample has no length in the viewer's timeline.
            samples: Samples {
                length: 2,
                stack: [None; 2],
                time_deltas: [0.0, end],
                weight: [1; 2],
                weight_type: "samples",
                thread_cpu_delta: [0; 2],
            },
            native_allocations: list,
            markers: Markers::default(),
            tables,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    stack: [Option<usize>; 2],
    time_deltas: [f64; 2],
    weight: [u32; 2],
    weight_type: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: [u32; 2],
}

/// A free is the address of its allocation with the weight negated.
#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Allocations {
    length: usize,
    time: Vec<f64>,
    weight: Vec<i64>,
    weight_type: &'static str,
    stack: Vec<Option<usize>>,
    memory_address: Vec<u64>,
    thread_id: Vec<u32>,
}

impl Allocations {
    fn add(&mut self, time_ns: u64, stack: Option<usize>, id: u64, bytes: i64) {
        self.length += 1;
        self.time.push(milliseconds(time_ns));
        self.weight.push(bytes);
        self.stack.push(stack);
        self.memory_address.push(id);
        self.thread_id.push(0);
    }
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    category: [(); 0],
    data: [(); 0],
    name: [(); 0],
    phase: [(); 0],
    start_time: [(); 0],
    end_time: [(); 0],
}

fn milliseconds(ns: u64) -> f64 {
    ns as f64 / 1e6
}
