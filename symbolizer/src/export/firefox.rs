//! The Firefox profiler's processed profile: allocations and frees as native allocations, so that its
//! views of retained memory work for any selected range of time. Open it at
//! <https://profiler.firefox.com>, which reads the file on your machine and uploads nothing.
//!
//! Each sampled block is an allocation of as many bytes as it stands for, and a free of the same. All
//! are on one thread, where the viewer looks for them. From a dump, which has no events, each row
//! is one block at time 0, and what was freed is freed at once.
//!
//! Bytes only: the form has no number of objects. Rounding is carried on, so that sums are right.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile as Document,
    ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};
use heapprof_core::Weight;

use crate::export::Options;
use crate::metric::Numbers;
use crate::printable::Printable;
use crate::profile::{CallStack, Profile};
use crate::symbols::Symbols;

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
    let name = run.program.rsplit('/').next().unwrap_or_default();
    let name = match (options.title.as_str(), name) {
        ("", "") => "unknown program".into(),
        ("", name) => Printable(name).to_string(),
        (title, _) => title.into(),
    };
    let start = Duration::from_nanos(run.start_wall_ns);
    let mut document = Document::new(
        &format!("heapprof: {name}"),
        ReferenceTimestamp::from_duration_since_unix_epoch(start),
        SamplingInterval::from_millis(1),
    );
    let at = Timestamp::from_nanos_since_reference;
    let process = document.add_process(&name, run.pid, at(0));
    document.set_process_end_time(process, at(run.duration_ns));
    let thread = document.add_thread(process, run.pid, at(0), true);
    document.set_thread_name(thread, &name);
    document.set_thread_end_time(thread, at(run.duration_ns));
    document.add_initial_visible_thread(thread);
    document.add_initial_selected_thread(thread);

    let stacks: Vec<Option<StackHandle>> = profile
        .stacks
        .iter()
        .map(|stack| intern(&mut document, thread, profile, symbols, stack))
        .collect();
    // A thread without a sample has no length in the viewer's timeline.
    for time in [0, run.duration_ns] {
        document.add_sample(thread, at(time), None, CpuDelta::ZERO, 1);
    }
    let mut add = |time_ns, stack, id, bytes| {
        document.add_allocation_sample(thread, at(time_ns), stack, id, bytes);
    };

    if let Some(events) = &profile.detail.events {
        let mut live: HashMap<u64, (i64, Option<StackHandle>)> = HashMap::new();
        let mut carried = 0.0;
        for event in events {
            match event.came {
                Some(block) => {
                    let weight = Weight::of(block.size, block.interval).objects_f64();
                    let exact = weight * block.size as f64 + carried;
                    let bytes = exact.round();
                    carried = exact - bytes;
                    let stack = stacks.get(block.stack as usize).copied().flatten();
                    live.insert(event.id, (bytes as i64, stack));
                    add(event.time_ns, stack, event.id, bytes as i64);
                }
                None => {
                    if let Some((bytes, stack)) = live.remove(&event.id) {
                        add(event.time_ns, stack, event.id, -bytes);
                    }
                }
            }
        }
    } else {
        for (row, id) in profile.rows.iter().zip((1u64..).step_by(2)) {
            let numbers = Numbers::of(&row.totals);
            let stack = stacks.get(row.stack as usize).copied().flatten();
            let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let freed = numbers.allocated_bytes.saturating_sub(numbers.in_use_bytes);
            if numbers.in_use_bytes > 0 {
                add(0, stack, id, signed(numbers.in_use_bytes));
            }
            if freed > 0 {
                add(0, stack, id + 1, signed(freed));
                add(0, stack, id + 1, -signed(freed));
            }
        }
    }
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

fn intern(
    document: &mut Document,
    thread: ThreadHandle,
    profile: &Profile,
    symbols: &Symbols,
    stack: &CallStack,
) -> Option<StackHandle> {
    let mut names = Vec::new();
    for place in profile.places(stack) {
        for frame in symbols.frames(place) {
            names.push(Printable(&symbols.function(profile, place, frame)).to_string());
        }
    }
    let mut handle = None;
    for name in names.iter().rev() {
        let frame = FrameInfo {
            frame: Frame::Label(document.intern_string(name)),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        };
        let frame = document.intern_frame(thread, frame);
        handle = Some(document.intern_stack(thread, handle, frame));
    }
    handle
}
