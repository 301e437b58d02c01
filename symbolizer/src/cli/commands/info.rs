//! `heapprof info`: shows what a file is, how it was recorded, and what it cannot say.

mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use heapprof_format::{Counter, WalkEnd};
use heapprof_symbolizer::{
    By, Bytes, Confidence, Count, Health, MISSING_FRAMES, Metric, Numbers, Percent, Printable,
    Profile, Regime, Run, Symbols, groups, unsampled_bytes, utc,
};

use crate::cli::inputs::source::Source;
use crate::cli::options::confidence;
use crate::cli::options::debuginfod::summary;
use crate::cli::output::coverage;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::{describe_precision, write_totals_at};
use crate::cli::output::processes;
use crate::cli::output::table::{Align, Table};
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::{write_all_wrapped, write_wrapped};

/// Show what a file is, how it was recorded, and what is missing from it
///
/// Program, times, sampling interval, samples and losses by cause, modules with build-ids and
/// whether names were found, why stacks ended, and damage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// Confidence level of the intervals, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", value_parser = confidence::parse, allow_negative_numbers = true)]
    confidence: Confidence,

    /// Print JSON, with all of it
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let profile = args.source.profile()?;
    let symbols = args.source.symbols(&profile)?;
    let asked = || args.source.places.servers.account();
    Destination::Stdout.write(|out| {
        if args.json {
            let asked = asked().map(|account| summary(&account));
            return json::write(&profile, &symbols, args.confidence, asked, out);
        }
        write_totals_at(&profile, args.confidence, stdout_width(), out)?;
        match profile.parts.is_empty() {
            true => write_run(&profile, out)?,
            false => {
                processes::write(&profile, out)?;
                write_detail(&profile, out)?;
                write_markers(&profile.run, out)?;
            }
        }
        let mut account = Vec::new();
        write_account(&profile, args.confidence, &mut account)?;
        write_all_wrapped(&account, BEHIND_NUMBER, stdout_width(), out)?;
        write_allocators(&profile, &symbols, out)?;
        write_walks(&profile, out)?;
        coverage::write(&profile, &symbols, out)?;
        write_modules(&profile, &symbols, out)?;
        match asked() {
            Some(account) => writeln!(out, "\nAsked of debuginfod: {}", summary(&account)),
            None => Ok(()),
        }
    })
}

/// Where a line goes on that is too wide: behind its number.
const BEHIND_NUMBER: usize = 6;
/// Where the value of a fact stands.
const BEHIND_KEY: usize = 16;

fn fact(out: &mut impl Write, key: &str, value: &str) -> io::Result<()> {
    let text = format!("  {key:<14}{}", Printable(value));
    write_wrapped(&text, BEHIND_KEY, stdout_width(), out)
}

fn write_run(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let run = &profile.run;
    writeln!(out, "\nRun")?;
    let unknown = |text: &str| {
        if text.is_empty() {
            "not stated".to_owned()
        } else {
            text.to_owned()
        }
    };
    fact(out, "program", &unknown(&run.program))?;
    if !run.executed_as.is_empty() {
        fact(out, "executed as", &run.executed_as)?;
    }
    if !run.title.is_empty() {
        fact(out, "title", &run.title)?;
    }
    if let Some(words) = run.allocator_in_words() {
        fact(out, "allocator", &words)?;
    }
    for what in &run.tapped {
        fact(out, "tapped", what)?;
    }
    if run.is_attached {
        fact(
            out,
            "attached",
            "to the running process; blocks from before are not known",
        )?;
    }
    if !run.args.is_empty() {
        fact(out, "command line", &run.args.join(" "))?;
    }
    if run.forked_from != 0 {
        fact(out, "forked from", &format!("pid {}", run.forked_from))?;
    }
    if run.start_wall_ns != 0 {
        fact(out, "start", &utc(run.start_wall_ns))?;
    }
    if run.duration_ns != 0 {
        fact(
            out,
            "duration",
            &format!("{:.3} s", run.duration_ns as f64 / 1e9),
        )?;
    }
    fact(out, "end", run.ending.describe())?;
    fact(out, "numbers", &describe_precision(profile))?;
    if let Some((least, most)) = run.intervals().filter(|(least, most)| least != most) {
        let text = format!(
            "changed while running, from {} to {} bytes",
            Count(least),
            Count(most)
        );
        fact(out, "interval", &text)?;
    } else if let Some((interval, _)) = run.intervals() {
        fact(out, "interval", &format!("{} bytes", Count(interval)))?;
    }
    write_regimes(run, out)?;
    if !run.library.is_empty() {
        fact(out, "recorded by", &format!("heapprof {}", run.library))?;
    }
    for (name, value) in &run.settings {
        fact(out, "setting", &format!("{name}={value}"))?;
    }
    write_segments(profile, out)?;
    write_detail(profile, out)?;
    write_markers(run, out)?;
    if !profile.threads.is_empty() {
        fact(
            out,
            "threads",
            &Count(profile.threads.len() as u64).to_string(),
        )?;
    }
    for (key, value) in &run.resource {
        fact(out, "resource", &format!("{key}={value}"))?;
    }
    for (key, values) in label_values(profile) {
        let values = match values {
            1 => "1 value".to_owned(),
            n => format!("{} values", Count(n as u64)),
        };
        fact(out, "label", &format!("{key}, {values}"))?;
    }
    Ok(())
}

/// Returns the keys of labels, with the numbers of their values.
fn label_values(profile: &Profile) -> BTreeMap<&str, usize> {
    let mut values: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (key, value) in profile.stacks.iter().flat_map(|stack| stack.labels.iter()) {
        values.entry(key).or_default().insert(value);
    }
    let values = values.into_iter();
    values.map(|(key, values)| (key, values.len())).collect()
}

/// The moments that have names.
fn write_markers(run: &Run, out: &mut impl Write) -> io::Result<()> {
    run.markers.iter().try_for_each(|marker| {
        let text = format!("{:.3} s  {}", marker.time_ns as f64 / 1e9, marker.name);
        fact(out, "marker", &text)
    })
}

/// Most changes that are listed.
const MOST_REGIMES: usize = 20;

/// Writes what was in force when: changes that somebody asked for one by one, changes by the budget
/// in sum.
fn write_regimes(run: &Run, out: &mut impl Write) -> io::Result<()> {
    let (by_budget, asked): (Vec<&Regime>, Vec<&Regime>) =
        run.regimes.iter().partition(|regime| regime.by_budget);
    let mut stopped = false;
    for regime in asked.iter().take(MOST_REGIMES) {
        let what = match regime.interval {
            0 => "stopped".to_owned(),
            1 if stopped => "started, every allocation".to_owned(),
            1 => "every allocation from here on".to_owned(),
            n if stopped => format!("started, interval {} bytes", Count(n)),
            n => format!("interval {} bytes from here on", Count(n)),
        };
        stopped = regime.interval == 0;
        let text = format!("{:.3} s  {what}", regime.time_ns as f64 / 1e9);
        fact(out, "recording", &text)?;
    }
    if asked.len() > MOST_REGIMES {
        let text = format!("… and {} more changes", asked.len() - MOST_REGIMES);
        fact(out, "recording", &text)?;
    }
    let stopped_ns = run.stopped_ns(0, run.duration_ns);
    if stopped_ns > 0 {
        let text = format!(
            "{:.3} s of {:.3} s in all; what was allocated then is missing",
            stopped_ns as f64 / 1e9,
            run.duration_ns as f64 / 1e9
        );
        fact(out, "stopped for", &text)?;
    }
    let raised = by_budget.iter().map(|regime| regime.interval);
    if let (Some(least), Some(most)) = (raised.clone().min(), raised.max()) {
        let text = format!(
            "changed the interval {} times, between {} and {} bytes",
            Count(by_budget.len() as u64),
            Count(least),
            Count(most)
        );
        fact(out, "budget", &text)?;
    }
    Ok(())
}

/// Shows the totals of each allocator, if there are several.
fn write_allocators(profile: &Profile, symbols: &Symbols, out: &mut impl Write) -> io::Result<()> {
    let all = groups(profile, symbols, By::Allocator, Metric::InUseBytes, false);
    if profile.run.tapped.is_empty() || all.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nAllocators")?;
    for each in &all {
        let Numbers {
            in_use_bytes,
            allocated_bytes,
            ..
        } = each.own;
        writeln!(
            out,
            "  {:>10} in use, {:>10} allocated  {}",
            Bytes(in_use_bytes as f64).to_string(),
            Bytes(allocated_bytes as f64).to_string(),
            Printable(&each.name)
        )?;
    }
    Ok(())
}

/// Returns true if threads asked for what the samples stand for.
fn write_health(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    if let Some(bytes) = unsampled_bytes(profile) {
        let bytes = Bytes(bytes as f64);
        writeln!(
            out,
            "  health: NO SAMPLE came, and the allocator had {bytes} in use at the end: their blocks are missing"
        )?;
    }
    let Some(health) = Health::of(profile) else {
        return Ok(());
    };
    write!(
        out,
        "  health: samples stand for {} of requested memory, the threads counted {} (± {}): ",
        Bytes(health.samples),
        Bytes(health.counted),
        Bytes(health.tolerance)
    )?;
    if health.agrees() {
        return writeln!(out, "agrees");
    }
    let percent = health.difference() * 100.0;
    if percent < 0.0 {
        writeln!(
            out,
            "DISAGREES by {percent:.1} %: records are missing, or samples stand for too little"
        )
    } else {
        writeln!(
            out,
            "DISAGREES by +{percent:.1} %: samples stand for too much"
        )
    }
}

/// Writes from when on a rotated log has detail, and from when on moments.
fn write_detail(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let Some(checkpoint) = &profile.run.checkpoint else {
        return Ok(());
    };
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let detail = format!("every moment from {} on", seconds(checkpoint.time_ns));
    fact(out, "in detail", &detail)?;
    let Some(known) = profile.before_detail() else {
        return fact(out, "coarsely", "nothing before that");
    };
    let moments = match profile.coarse.first() {
        Some(first) => format!(
            "{} moments from {} on: ",
            profile.coarse.len(),
            seconds(first.time_ns)
        ),
        None => String::new(),
    };
    fact(out, "coarsely", &format!("{moments}{known}"))
}

/// Writes which segments of a rotated log there are, and what is gone.
fn write_segments(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let segments = &profile.account.segments;
    let Some(last) = segments.last() else {
        return Ok(());
    };
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let checkpoint = profile.run.checkpoint.as_ref();
    let first = checkpoint.map_or(1, |checkpoint| checkpoint.segment);
    let begins = checkpoint.map_or(0, |checkpoint| checkpoint.time_ns);
    fact(
        out,
        "segments",
        &format!(
            "{} (number {first} to {})",
            last.number - first + 1,
            last.number
        ),
    )?;
    let starts = segments
        .iter()
        .map(|segment| (segment.number, segment.time_ns));
    let mut all: Vec<(u32, u64)> = starts.filter(|(number, _)| *number > first).collect();
    all.insert(0, (first, begins));
    let ends = all
        .iter()
        .skip(1)
        .map(|(_, ns)| *ns)
        .chain([profile.run.duration_ns]);
    const SHOWN: usize = 8;
    for (&(number, from), to) in all.iter().zip(ends).take(SHOWN) {
        fact(
            out,
            "",
            &format!("{number}: {} to {}", seconds(from), seconds(to)),
        )?;
    }
    if all.len() > SHOWN {
        fact(out, "", &format!("and {} more", all.len() - SHOWN))?;
    }
    match checkpoint {
        Some(checkpoint) => fact(
            out,
            "not kept",
            &format!(
                "{} older segments, {}: totals and what is in use are exact all the same",
                checkpoint.segment - 1,
                Bytes(checkpoint.bytes_before as f64),
            ),
        ),
        None => fact(out, "not kept", "nothing: all segments are here"),
    }
}

fn write_account(
    profile: &Profile,
    confidence: Confidence,
    out: &mut impl Write,
) -> io::Result<()> {
    let account = &profile.account;
    writeln!(out, "\nSamples and losses")?;
    let totals = profile.totals();
    // The profiler's counters and the damage of the file are known for the whole run only.
    let spans = profile.parts.iter().map(|part| part.run.span);
    let is_part = spans.chain([profile.run.span]).any(|span| span.is_some());
    let of_all = if is_part { ", in the whole run" } else { "" };
    if profile.run.intervals_seen.is_some() {
        writeln!(
            out,
            "  {:>12}  samples{}, {} of them in use, from {} stacks",
            Count(totals.allocated.samples).to_string(),
            if is_part {
                " in the part that is shown"
            } else {
                ""
            },
            Count(totals.in_use.samples),
            Count(stacks_shown(profile).len() as u64)
        )?;
    } else {
        writeln!(
            out,
            "  {:>12}  stacks",
            Count(stacks_shown(profile).len() as u64).to_string()
        )?;
    }
    let mut line = |n: u64, what: &str| -> io::Result<()> {
        if n == 0 {
            Ok(())
        } else {
            let what = Printable(what);
            writeln!(out, "  {:>12}  {what}{of_all}", Count(n).to_string())
        }
    };
    for &(counter, n) in &account.counters {
        if !matches!(
            counter,
            Counter::CountedBytes
                | Counter::CountedThreads
                | Counter::ResidentBytes
                | Counter::MostResidentBytes
        ) {
            line(n, counter.describe())?;
        }
    }
    line(
        account.unknown_frees,
        "frees of blocks whose allocation is not in the file",
    )?;
    line(
        account.unknown_stacks,
        "stacks of samples that are not in the file",
    )?;
    line(
        account.implausible,
        "allocations with impossible numbers, left out",
    )?;
    line(account.missing_frames, MISSING_FRAMES)?;
    if let Some(bytes) = profile.unseen_bytes(confidence) {
        writeln!(
            out,
            "  a site not listed could still hold up to {} ({} % confidence: {:.2} × the interval; docs/time.md)",
            Bytes(bytes),
            confidence.percent(),
            confidence.unseen_intervals()
        )?;
    }
    write_health(profile, out)?;
    // The counters know what befell the recording, not what befell the file.
    let is_whole = account.is_whole()
        && profile.parts.iter().all(|part| part.is_whole)
        && unsampled_bytes(profile).is_none();
    if account.losses().next().is_none() && !account.counters.is_empty() && is_whole {
        match profile.run.ending {
            ending if !ending.is_cut() => writeln!(out, "  nothing was lost")?,
            _ => writeln!(
                out,
                "  nothing was lost up to the end of the log, where the run was not yet over"
            )?,
        }
    }
    for damage in account.damages() {
        writeln!(out, "  {damage}")?;
    }
    for notice in &profile.run.notices {
        let seconds = notice.time_ns as f64 / 1e9;
        writeln!(out, "  at {seconds:.3} s: {}", Printable(&notice.text))?;
    }
    for remark in &account.remarks {
        writeln!(out, "  note: {}", Printable(remark))?;
    }
    Ok(())
}

/// The stacks and blocks whose walks ended in one way.
#[derive(Default)]
struct WalkEnds {
    samples: u64,
    stacks: u64,
    /// Bytes allocated.
    bytes: u64,
}

fn walk_ends(profile: &Profile) -> BTreeMap<WalkEnd, WalkEnds> {
    let mut ends: BTreeMap<WalkEnd, WalkEnds> = BTreeMap::new();
    for row in &profile.rows {
        let Some(end) = profile.stack_of(row).end else {
            continue;
        };
        let bytes = Numbers::of(&row.totals).allocated_bytes;
        let entry = ends.entry(end).or_default();
        entry.samples = entry.samples.saturating_add(row.totals.allocated.samples);
        entry.bytes = entry.bytes.saturating_add(bytes);
    }
    for stack in stacks_shown(profile) {
        let end = profile.stacks.get(stack as usize).and_then(|s| s.end);
        if let Some(entry) = end.and_then(|end| ends.get_mut(&end)) {
            entry.stacks += 1;
        }
    }
    ends
}

/// The stacks that have a number in the part that is shown. A log's others are in the profile, too.
fn stacks_shown(profile: &Profile) -> BTreeSet<u32> {
    profile.rows.iter().map(|row| row.stack).collect()
}

fn write_walks(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let ends = walk_ends(profile);
    let whole = ends
        .values()
        .fold(0u64, |sum, ends| sum.saturating_add(ends.bytes));
    if ends.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWhy stacks ended")?;
    let mut table = Table::new(&[
        ("samples", Align::Right),
        ("stacks", Align::Right),
        ("allocated", Align::Right),
        ("", Align::Right),
        ("end", Align::Left),
    ]);
    for (end, walks) in ends {
        table.row(vec![
            Count(walks.samples).to_string(),
            Count(walks.stacks).to_string(),
            Bytes(walks.bytes as f64).to_string(),
            Percent {
                part: walks.bytes as f64,
                whole: whole as f64,
            }
            .to_string(),
            end.describe().into(),
        ]);
    }
    table.write(stdout_width(), out)
}

fn write_modules(profile: &Profile, symbols: &Symbols, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nModules")?;
    let mut table = Table::new(&[
        ("addresses", Align::Right),
        ("lines", Align::Right),
        ("names", Align::Right),
        ("none", Align::Right),
        ("build-id", Align::Left),
        ("module", Align::Path),
    ]);
    let mut unused = 0;
    let modules = profile.modules.iter().enumerate();
    for (i, module) in modules.filter(|(_, module)| module.code.is_none()) {
        let Some(report) = symbols.reports().get(&(i as u32)) else {
            unused += 1;
            continue;
        };
        let quality = &report.quality;
        let id = hex(&module.build_id);
        let gone = match module.unloaded_ns {
            Some(time) => format!(" (unloaded at {:.3} s)", time as f64 / 1e9),
            None => String::new(),
        };
        table.row(vec![
            Count(quality.asked).to_string(),
            Count(quality.by_dwarf).to_string(),
            Count(quality.by_symbols).to_string(),
            Count(quality.unresolved).to_string(),
            if id.is_empty() { "none".into() } else { id },
            format!("{}{gone}", module.path),
        ]);
    }
    table.write(stdout_width(), out)?;
    if unused > 0 {
        writeln!(out, "  {unused} more modules have no address in any stack")?;
    }

    let outside = symbols.perf_map();
    let is_short = |report: &&_| -> bool { is_incomplete(report) };
    let mut short = symbols.reports().values().filter(is_short).peekable();
    if outside.is_none() && short.peek().is_none() {
        return writeln!(out, "  every address has a name");
    }
    writeln!(
        out,
        "\nNames that are missing or have no lines, and what to do"
    )?;
    let outside = outside.map(ToString::to_string);
    for report in outside.into_iter().chain(short.map(ToString::to_string)) {
        for line in report.lines() {
            let line = format!("  {}", Printable(line));
            write_wrapped(&line, BEHIND_NUMBER, stdout_width(), out)?;
        }
    }
    Ok(())
}

fn hex(build_id: &[u8]) -> String {
    build_id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_incomplete(report: &heapprof_symbolizer::resolve::ModuleReport) -> bool {
    // A stack names the called function of our library, and nobody needs a line in it. The
    // installed library is stripped.
    let is_ours = report.path.file_name() == Some("libheapprof.so".as_ref());
    report.quality.unresolved > 0 || !(is_ours || report.reasons.is_empty())
}
