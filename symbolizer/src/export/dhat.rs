//! DHAT format: JSON, version 2, for valgrind's `dh_view.html` and for the Firefox profiler.
//!
//! Each stack is a program point with totals (`tb`, `tbk`) and what is in use at the end (`eb`,
//! `ebk`). If the profile has events, a point also has its numbers at the global peak (`gb`,
//! `gbk`), at its own peak (`mb`, `mbk`), and its lifetimes (`tl`). Without events (a dump) peaks
//! are unknown: the end stands for them, and `cmd`, which the viewer shows, says so.
//!
//! If the log rotated, totals are of the whole run, and events of the time that has detail. The
//! viewer divides `tl` by `tbk`. So `tl` is the mean lifetime of the blocks with detail, times the
//! number of all blocks.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use heapprof_core::{Estimate, Fixed, Weight};
use serde::Serialize;

use crate::export::Options;
use crate::export::facts::{estimator, in_a_line};
use crate::model::extras::{Block, Event};
use crate::model::metric::Numbers;
use crate::model::printable::Json;
use crate::model::profile::{CallStack, Profile};
use crate::naming::symbols::Symbols;

#[derive(Serialize)]
#[expect(non_snake_case, reason = "DHAT's names")]
struct Document {
    dhatFileVersion: u32,
    mode: &'static str,
    verb: &'static str,
    /// True if lifetimes are known.
    bklt: bool,
    /// True if accesses are.
    bkacc: bool,
    /// The unit of time, the unit of a million times, and the largest time that is called short.
    tu: &'static str,
    Mtu: &'static str,
    tuth: u64,
    cmd: String,
    pid: u32,
    /// When it ended, and when it was largest.
    te: u64,
    tg: u64,
    pps: Vec<Point>,
    ftbl: Vec<String>,
}

#[derive(Serialize, Default)]
struct Point {
    tb: u64,
    tbk: u64,
    tl: u64,
    mb: u64,
    mbk: u64,
    gb: u64,
    gbk: u64,
    eb: u64,
    ebk: u64,
    fs: Vec<usize>,
}

/// Writes the profile. All metrics are in it.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    _options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let run = &profile.run;
    // For a view, "the end" is its end.
    let end_ns = run.span.map_or(run.duration_ns, |span| span.to.time_ns());
    let since_ns = run.checkpoint.map(|checkpoint| checkpoint.time_ns);
    let mut frames = Frames::default();
    let history = profile
        .extras
        .events
        .as_ref()
        .map(|events| History::of(events, profile.stacks.len(), since_ns, end_ns));

    let mut of_stack: BTreeMap<u32, Numbers> = BTreeMap::new();
    for row in &profile.rows {
        *of_stack.entry(row.stack).or_default() += Numbers::of(&row.totals);
    }
    // Stacks may have equal frames; the viewer wants each program point once.
    let mut points: BTreeMap<Vec<usize>, Point> = BTreeMap::new();
    for (stack, n) in of_stack {
        let Some(call_stack) = profile.stacks.get(stack as usize) else {
            continue;
        };
        let fs = frames.of(profile, symbols, call_stack);
        let point = points.entry(fs).or_default();
        let past = match &history {
            Some(history) => history.stacks[stack as usize],
            None => Past {
                most: (n.in_use_bytes as f64, n.in_use_objects as f64),
                at_peak: (n.in_use_bytes as f64, n.in_use_objects as f64),
                ..Past::default()
            },
        };
        let add = |sum: &mut u64, n: f64| *sum = sum.saturating_add(n.round() as u64);
        point.tb = point.tb.saturating_add(n.allocated_bytes);
        point.tbk = point.tbk.saturating_add(n.allocated_objects);
        point.eb = point.eb.saturating_add(n.in_use_bytes);
        point.ebk = point.ebk.saturating_add(n.in_use_objects);
        add(&mut point.tl, past.lifetimes_us(n.allocated_objects));
        add(&mut point.mb, past.most.0);
        add(&mut point.mbk, past.most.1);
        add(&mut point.gb, past.at_peak.0);
        add(&mut point.gbk, past.at_peak.1);
    }
    let pps = points.into_iter().map(|(fs, point)| Point { fs, ..point });

    let mut cmd = match &run.args[..] {
        [] => run.program.clone(),
        args => args.join(" "),
    };
    cmd.push_str(&format!(
        " (heapprof: {}{}{})",
        estimator(profile),
        in_a_line(profile),
        match history {
            Some(_) => "",
            None => "; peaks and lifetimes are not known: \"at t-gmax\" is at the end",
        }
    ));
    let document = Document {
        dhatFileVersion: 2,
        mode: "rust-heap",
        verb: "Allocated",
        bklt: true,
        bkacc: false,
        tu: "µs",
        Mtu: "s",
        // As dhat-rs: a block that lived at most ten microseconds was short-lived.
        tuth: 10,
        cmd,
        pid: run.pid,
        te: end_ns / 1000,
        tg: history.map_or(end_ns, |history| history.peak_ns) / 1000,
        pps: pps.collect(),
        ftbl: frames.table,
    };
    Json::Compact.write(&document, out)
}

/// The strings of frames, each once.
struct Frames {
    table: Vec<String>,
    index: HashMap<String, usize>,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            table: vec!["[root]".into()],
            index: HashMap::new(),
        }
    }
}

impl Frames {
    /// The frames of a stack, innermost first.
    fn of(&mut self, profile: &Profile, symbols: &Symbols, stack: &CallStack) -> Vec<usize> {
        let mut indices = Vec::new();
        for place in profile.places(stack) {
            for frame in symbols.frames(place) {
                let function = symbols.function(profile, place, frame);
                let at = match (&frame.file, frame.line, profile.module_of(place)) {
                    (Some(file), Some(line), _) => format!("{file}:{line}"),
                    (Some(file), None, _) => file.to_string(),
                    (None, _, Some(module)) => format!("in {}", module.path),
                    (None, _, None) => "in ???".into(),
                };
                let table = &mut self.table;
                let text = format!("{:#x}: {function} ({at})", place.avma);
                indices.push(*self.index.entry(text).or_insert_with_key(|text| {
                    table.push(text.clone());
                    table.len() - 1
                }));
            }
        }
        if indices.is_empty() {
            indices.push(0);
        }
        indices
    }
}

/// The numbers of a stack that events tell; bytes and objects, estimated.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    now: (f64, f64),
    most: (f64, f64),
    at_peak: (f64, f64),
    /// Times lived by blocks that came since detail begins, and by those that were there already;
    /// and how many these are.
    lived_us: [f64; 2],
    blocks: [f64; 2],
}

impl Past {
    /// A block has lived so long.
    fn lived(&mut self, is_older: bool, objects: f64, us: f64) {
        self.lived_us[usize::from(is_older)] += objects * us;
        self.blocks[usize::from(is_older)] += objects;
    }

    /// The sum over so many blocks. Older ones are those that live long, of their contemporaries:
    /// they stand for a stack only that has no others.
    fn lifetimes_us(&self, objects: u64) -> f64 {
        match (self.lived_us, self.blocks) {
            // All are known.
            ([new, _], [_, 0.0]) if objects as f64 <= self.blocks[0].round() => new,
            ([new, _], [blocks, _]) if blocks > 0.0 => new / blocks * objects as f64,
            ([_, old], [_, blocks]) if blocks > 0.0 => old / blocks * objects as f64,
            _ => 0.0,
        }
    }
}

struct History {
    stacks: Vec<Past>,
    peak_ns: u64,
}

impl History {
    /// Two passes: when the peak was, then what each stack had there. `since_ns`: when detail
    /// begins, of a log that rotated.
    fn of(events: &[Event], stacks: usize, since_ns: Option<u64>, end_ns: u64) -> History {
        // Events that led to the heap at that time, in no order: no peak is among them.
        let is_before = |event: &&Event| since_ns.is_some_and(|since| event.time_ns <= since);
        let before = events.iter().take_while(is_before).count();
        let since_ns = since_ns.unwrap_or(0);
        let mut live: HashMap<u64, (u64, Block)> = HashMap::new();
        let mut past = vec![Past::default(); stacks];
        // Fixed-point numbers, as everywhere: of equal maxima it is the first.
        let (mut total, mut most, mut peak) = (Estimate::default(), Fixed::default(), None);
        for index in 0..=events.len() {
            if index == before && before > 0 {
                (most, peak) = (total.bytes_fixed(), Some(index - 1));
                past.iter_mut().for_each(|stack| stack.most = stack.now);
            }
            let Some(event) = events.get(index) else {
                break;
            };
            let Some((born_ns, block)) = change(&mut live, event) else {
                continue;
            };
            let (bytes, objects) = weigh(&block);
            let Some(stack) = past.get_mut(block.stack as usize) else {
                continue;
            };
            let weight = Weight::of(block.size, block.interval);
            if event.allocated.is_some() {
                total.add(&weight);
                stack.now = (stack.now.0 + bytes, stack.now.1 + objects);
                if stack.now.0 > stack.most.0 {
                    stack.most = stack.now;
                }
                if total.bytes_fixed() > most {
                    (most, peak) = (total.bytes_fixed(), Some(index));
                }
            } else {
                total.remove(&weight);
                stack.now = (stack.now.0 - bytes, stack.now.1 - objects);
                stack.lived(
                    born_ns < since_ns,
                    objects,
                    lived_us(born_ns, event.time_ns),
                );
            }
        }
        for (born_ns, block) in live.values() {
            if let Some(stack) = past.get_mut(block.stack as usize) {
                stack.lived(
                    *born_ns < since_ns,
                    weigh(block).1,
                    lived_us(*born_ns, end_ns),
                );
            }
        }
        live.clear();
        for event in events.iter().take(peak.map_or(0, |index| index + 1)) {
            let Some((_, block)) = change(&mut live, event) else {
                continue;
            };
            let (bytes, objects) = weigh(&block);
            let sign = if event.allocated.is_some() { 1.0 } else { -1.0 };
            if let Some(stack) = past.get_mut(block.stack as usize) {
                stack.at_peak.0 += sign * bytes;
                stack.at_peak.1 += sign * objects;
            }
        }
        History {
            stacks: past,
            peak_ns: peak.map_or(0, |index| events[index].time_ns.max(since_ns)),
        }
    }
}

/// The block that came or went, and when it had come.
fn change(live: &mut HashMap<u64, (u64, Block)>, event: &Event) -> Option<(u64, Block)> {
    match event.allocated {
        Some(block) => {
            live.insert(event.id, (event.time_ns, block));
            Some((event.time_ns, block))
        }
        None => live.remove(&event.id),
    }
}

fn weigh(block: &Block) -> (f64, f64) {
    let objects = Weight::of(block.size, block.interval).objects_f64();
    (objects * block.size as f64, objects)
}

fn lived_us(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1000.0
}
