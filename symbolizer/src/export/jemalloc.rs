//! jemalloc format: text (`heap_v2/<interval>`) with numbers by thread, for `jeprof --thread=N`.
//!
//! No other text format that a current tool reads has numbers by thread. go tool pprof and
//! google-pprof do not read it.
//!
//! ```text
//! heap_v2/524288
//!   t*: 7: 9000 [8: 9100]             all threads, sampled counts
//!   t0: 7: 9000 [8: 9100] server      one thread, and its name
//! @ 0x9010 0x1101 …                   a stack; PCs as in gperftools' text
//!   t*: 2: 2000 [3: 3000]
//!   t0: 2: 2000 [3: 3000]
//! ```
//!
//! Its readers unsample each line by its average size: `x = b/n, n·f and b·f with f =
//! 1/(1-e^(-x/interval))`. So the estimates are multiplied by the inverse here, as jemalloc's own
//! `prof_unbias` does. A line holds one size class, whose sizes are close to their average. For a
//! log, whose samples were counted, nothing is lost. A line of other numbers comes back rounded to
//! samples.
//!
//! One factor is right only if all samples were taken under one interval. Otherwise the interval is
//! stated as 0, and readers leave the numbers alone. The same holds if every allocation was
//! recorded, and for a dump without an interval. It also holds if a line has only blocks of 0
//! bytes: jeprof takes their average, too, and then divides by zero.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use heapprof_core::{Estimate, Row, SizeClass};

use crate::export::Options;
use crate::export::facts::facts;
use crate::export::gperftools::frames;
use crate::model::metric::Numbers;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;
use crate::model::run::Run;
use crate::naming::symbols::Symbols;

/// Writes the profile with addresses. The metric does not matter: all four are in it. Numbers by
/// thread are in it when the profile has them.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    _symbols: &Symbols,
    _options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    // 0: readers take the numbers as they are. 1 would make them unsample, and a block of one byte
    // be 1.6.
    let interval = match has_line_without_bytes(profile) {
        true => 0,
        false => only_interval(profile).unwrap_or(0),
    };
    let mut all = Numbers::default();
    let mut by_thread: BTreeMap<u32, Numbers> = BTreeMap::new();
    let mut of_row: BTreeMap<(u32, u8), Vec<(u32, Numbers)>> = BTreeMap::new();
    for row in &profile.rows {
        all += sampled(row, interval);
    }
    for part in profile.extras.threads.iter().flatten() {
        let numbers = sampled(&part.row, interval);
        *by_thread.entry(part.thread).or_default() += numbers;
        let key = (part.row.stack, part.row.class.0);
        of_row.entry(key).or_default().push((part.thread, numbers));
    }

    writeln!(out, "heap_v2/{interval}")?;
    line(out, "t*", &all, "")?;
    let mut names: HashMap<u32, &str> = HashMap::new();
    for thread in &profile.threads {
        names.entry(thread.number).or_insert(&thread.name);
    }
    for (thread, numbers) in &by_thread {
        let name = names.get(thread);
        let name = name.map_or(String::new(), |name| format!(" {}", Printable(name)));
        line(out, &format!("t{thread}"), numbers, &name)?;
    }
    for row in &profile.rows {
        let numbers = sampled(row, interval);
        if numbers.is_zero() {
            continue;
        }
        write!(out, "@")?;
        for address in frames(profile.stack_of(row)) {
            write!(out, " {address:#x}")?;
        }
        writeln!(out)?;
        line(out, "t*", &numbers, "")?;
        let parts = of_row.get_mut(&(row.stack, row.class.0));
        if let Some(parts) = parts {
            parts.sort_unstable_by_key(|(thread, _)| *thread);
            for (thread, numbers) in parts.iter() {
                line(out, &format!("t{thread}"), numbers, "")?;
            }
        }
    }
    writeln!(out, "\nMAPPED_LIBRARIES:")?;
    for module in &profile.modules {
        for m in module.mappings() {
            writeln!(
                out,
                "{:08x}-{:08x} {} {:08x} 00:00 0 {}",
                m.start,
                m.end,
                m.perms,
                m.offset,
                Printable(&m.path)
            )?;
        }
    }
    // Behind the mappings, where no reader looks: in front, jeprof takes them for the profile's
    // end.
    for fact in facts(profile) {
        // "Unsampled already" they are everywhere but here.
        if fact.starts_with("estimator: ") {
            continue;
        }
        writeln!(out, "# {}", Printable(&fact))?;
    }
    Ok(())
}

/// The interval that every sample was taken under, if it was one, and not that of a complete
/// recording. Blocks that were recorded for their size have one of their own.
fn only_interval(profile: &Profile) -> Option<u64> {
    if profile.precision() != Precision::Sampled {
        return None;
    }
    let of_run = |run: &Run| {
        let stated = run.interval.map(|interval| (interval, interval));
        run.intervals_seen.or(stated)
    };
    let (least, most) = match profile.parts.is_empty() {
        true => of_run(&profile.run)?,
        // Not those of the sum, which leave out blocks that were recorded for their size.
        false => {
            let mut parts = profile.parts.iter().map(|part| of_run(&part.run));
            let first = parts.next()??;
            parts.try_fold(first, |(least, most), part| {
                let (from, to) = part?;
                Some((least.min(from), most.max(to)))
            })?
        }
    };
    (least == most && most > 1).then_some(most)
}

/// Returns true if a line would have blocks and no bytes.
fn has_line_without_bytes(profile: &Profile) -> bool {
    let parts = profile.extras.threads.iter().flatten();
    let rows = profile.rows.iter().chain(parts.map(|part| &part.row));
    let mut numbers = rows.map(|row| Numbers::of(&row.totals));
    numbers.any(|n| {
        n.in_use_objects > 0 && n.in_use_bytes == 0
            || n.allocated_objects > 0 && n.allocated_bytes == 0
    })
}

fn line(out: &mut impl Write, who: &str, n: &Numbers, name: &str) -> io::Result<()> {
    writeln!(
        out,
        "  {who}: {}: {} [{}: {}]{name}",
        n.in_use_objects, n.in_use_bytes, n.allocated_objects, n.allocated_bytes
    )
}

/// A row's numbers as samples that a reader's unsampling turns into them.
fn sampled(row: &Row, interval: u64) -> Numbers {
    let numbers = Numbers::of(&row.totals);
    if interval == 0 {
        return numbers;
    }
    let largest = row.class.upper();
    let of = |objects, bytes, estimate: &Estimate| {
        counted(estimate, largest, interval).unwrap_or_else(|| inverse(objects, bytes, interval))
    };
    let (in_use_objects, in_use_bytes) = of(
        numbers.in_use_objects,
        numbers.in_use_bytes,
        &row.totals.in_use,
    );
    let (allocated_objects, allocated_bytes) = of(
        numbers.allocated_objects,
        numbers.allocated_bytes,
        &row.totals.allocated,
    );
    Numbers {
        in_use_objects,
        in_use_bytes,
        allocated_objects,
        allocated_bytes,
    }
}

/// The samples as they were counted, and as many bytes as make a reader arrive at the estimate: the
/// root of `b / (1 - e^(-b/(n interval))) = B`, which grows with b. `None` when they were not taken
/// under this interval: then no size of the row's class is a root.
fn counted(estimate: &Estimate, largest: u64, interval: u64) -> Option<(u64, u64)> {
    if estimate.samples == 0 || estimate.bytes_error() == 0.0 {
        return None;
    }
    let samples = estimate.samples as f64;
    let wanted = estimate.bytes_fixed().to_f64() / samples;
    let unsampled = |size: f64| size / -(-size / interval as f64).exp_m1();
    let (mut low, mut high) = (0.25, largest as f64 + 0.25);
    if wanted < unsampled(low) || wanted > unsampled(high) {
        return None;
    }
    // 64 halvings leave nothing of a double's digits.
    for _ in 0..64 {
        let middle = (low + high) / 2.0;
        if unsampled(middle) < wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    // The number of blocks of up to 8 bytes may differ by a factor of eight for equal bytes. For
    // these, take the size by which the same number of blocks comes back, if the bytes also come
    // back up to a thousandth.
    let by_objects = -(interval as f64) * (-samples / estimate.objects_f64()).ln_1p();
    let off = (unsampled(by_objects) / wanted - 1.0).abs();
    let size = match largest == SizeClass::of(0).upper() && off < 0.001 {
        true => by_objects,
        false => low,
    };
    Some((estimate.samples, (size * samples).round().max(1.0) as u64))
}

/// Without counted samples: the estimates times a reader's factor's inverse, objects rounded to
/// whole ones and bytes such that the average, on which the factor hangs, stays.
fn inverse(objects: u64, bytes: u64, interval: u64) -> (u64, u64) {
    if objects == 0 || bytes == 0 {
        // No average, no factor: readers leave such pairs as they are.
        return (objects, bytes);
    }
    let average = bytes as f64 / objects as f64;
    let share = -(-average / interval as f64).exp_m1();
    let objects = (objects as f64 * share).round().max(1.0);
    (objects as u64, (objects * average).round().max(1.0) as u64)
}
