//! `heapprof rss`: shows where the resident memory is, as lines that add up to it.

mod json;
mod pinning;

use std::io::{self, Write};
use std::path::PathBuf;

use heapprof_format::{MemoryField, MemoryReading};
use heapprof_symbolizer::control::Attached;
use heapprof_symbolizer::{
    Bytes, Input, InputError, Moment, PagesRead, Percent, Printable, Profile, ReadRequest,
    ResidentMemory, Temporary, View, cut_front, has_blocks_in_mappings, name_arenas,
};

use crate::cli::commands::rss::pinning::Pinning;
use crate::cli::inputs::process::log_of_named;
use crate::cli::inputs::single_file;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::colour::{self, TextStyle};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::describe_precision;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::{lines_of, write_wrapped};

/// Show where the resident memory is: blocks, free pages, stacks, files
///
/// The lines add up to the process's resident memory (RSS), as the library has read it while the
/// program ran (HEAPPROF_MEMORY_INTERVAL_MS). The last one is what the others do not explain. A
/// negative line has what lines above count and is not resident. Beside each line stands what would
/// shrink it. If the log has a reading of pages (`heapprof ctl PID pages`), the sites follow whose
/// old blocks pin slabs. With a PID and without --at, the process takes both readings now.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A record log (.heaplog), or the process id of a program that runs under heapprof
    #[arg(value_name = "LOG|PID")]
    source: PathBuf,

    /// The memory at a moment, by the nearest reading: 12.5s, 300ms, 2m, 50%, 10:00:00,
    /// 2026-11-21T10:00:00Z, start, end, peak, peak-rss, or a marker's name (NAME#2: the second)
    /// [default: end]
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    at: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    places: SymbolArgs,
}

/// Most nanoseconds between the moment and the reading for which the heap is not read again.
const NEAR_NS: u64 = 1_000_000;
/// Most nanoseconds between the reading of the memory and one of pages that belongs to it. Buffers
/// may be filled meanwhile.
const PAGES_NEAR_NS: u64 = 100_000_000;

/// Most whole readings that are tried for a moment whose own reading does not add up.
const MOST_WHOLE: usize = 3;

/// The moment that a user requests.
struct RequestedMoment {
    requested_ns: u64,
    /// The reading that is nearest to it, if that is another one.
    nearest: Option<MemoryReading>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let named = log_of_named(&args.source)?;
    if let (Some((_, pid)), None) = (&named, &args.at) {
        // Now, and not as it was a while ago. If the process does not take a reading, the last one
        // says its time.
        let _ = Attached::to(*pid).and_then(|process| {
            let _ = process.ask("pages");
            process.ask("memory")
        });
    }
    let file = named.map_or_else(|| args.source.clone(), |(log, _)| log);
    let input = Input::open(&file)?;
    input.log()?;
    let moment = args.at.as_deref().map_or(Moment::End, Moment::from);
    let view = |view| ReadRequest {
        view,
        pasts: Some(Temporary::default()),
        ..ReadRequest::default()
    };
    let profile = single_file::read_input(&file, &input, &view(View::At(moment)))?;
    let requested_ns = profile.run.span.map_or(0, |span| span.to.time_ns());
    let whole = profile.whole_memory.clone();
    let why_none =
        |profile: &Profile| Failure::Unfulfilled(why_none(&file.display().to_string(), profile));
    let Some(nearest) = profile.memory else {
        return Err(why_none(&profile));
    };
    // The heap is that of the reading's time, or the lines would not belong together.
    let at = |reading: MemoryReading| -> Result<_, Failure> {
        let at_reading = view(View::At(Moment::After(reading.time_ns)));
        let mut profile = input.read_part(&at_reading, |_| {})?;
        profile.memory = Some(reading);
        let pages = pages_near(&input, &profile)?;
        let memory = ResidentMemory::of(&profile, pages.as_ref());
        match memory {
            Some(memory) => Ok((profile, memory)),
            None => Err(why_none(&profile)),
        }
    };
    let (mut profile, mut memory) = match nearest.time_ns.abs_diff(requested_ns) > NEAR_NS {
        true => at(nearest)?,
        false => {
            let pages = pages_near(&input, &profile)?;
            let memory = ResidentMemory::of(&profile, pages.as_ref());
            let memory = memory.ok_or_else(|| why_none(&profile))?;
            (profile, memory)
        }
    };
    // Fields of different times may not add up. Then a whole reading that does is worth a little
    // time, but not another state of the process. If none does, it is the nearest.
    let in_use = memory.bytes("in_use").unwrap_or(0);
    let is_other = |it: &&MemoryReading| it.time_ns != nearest.time_ns;
    let is_same = |whole: &&MemoryReading| is_about_as_large(whole, &nearest);
    let whole = whole.iter().filter(is_other).filter(is_same);
    let mut is_first = !nearest.is_whole();
    for &whole in whole.take(MOST_WHOLE) {
        if nearest.has_own_detail() || memory.is_explained() {
            break;
        }
        let (of_other, other) = at(whole)?;
        let change = other.bytes("in_use").unwrap_or(0).abs_diff(in_use);
        if change > memory.resident / 10 {
            continue;
        }
        if is_first || other.is_explained() {
            (profile, memory) = (of_other, other);
        }
        is_first = false;
    }
    memory.note_unread_end(&profile.run, requested_ns);
    let nearest = (memory.reading.time_ns != nearest.time_ns).then_some(nearest);
    let requested = RequestedMoment {
        requested_ns,
        nearest,
    };
    if is_of_python(&profile) {
        let symbols = args.places.symbols(&file, &profile)?;
        name_arenas(&mut profile, &symbols);
    }
    let pinning = Pinning::find(&file, &input, memory.reading.time_ns, &args.places)?;
    Destination::Stdout.write(|out| match args.json {
        true => json::write(&profile, &memory, pinning.as_ref(), requested_ns, out),
        false => write_text(&profile, &memory, pinning.as_ref(), &requested, out),
    })
}

/// Returns true if the resident bytes of two readings differ by a tenth at most.
fn is_about_as_large(one: &MemoryReading, other: &MemoryReading) -> bool {
    let resident = |reading: &MemoryReading| reading.get(MemoryField::Resident).unwrap_or(0);
    let (one, other) = (resident(one), resident(other));
    one.abs_diff(other) <= other / 10
}

/// Returns the profile at a reading of pages near the reading of the memory, if the waterfall needs
/// it and there is one.
fn pages_near(input: &Input, profile: &Profile) -> Result<Option<Profile>, Failure> {
    let Some(at_ns) = profile.memory.map(|reading| reading.time_ns) else {
        return Ok(None);
    };
    if !has_blocks_in_mappings(profile) {
        return Ok(None);
    }
    let found = match input.read_part(&pinning::at_pages(at_ns, 0), |_| {}) {
        Err(InputError::NoPages { .. }) => return Ok(None),
        found => found?,
    };
    Ok(Some(found).filter(|it| it.pages.is_some_and(|read| is_near(&read, at_ns))))
}

/// Returns true if a reading of pages belongs to the reading of the memory at that time. Its own
/// time is that of its beginning, and it runs for half of its time or more.
fn is_near(read: &PagesRead, at_ns: u64) -> bool {
    let end_ns = read.time_ns.saturating_add(read.ran_ns.saturating_mul(2));
    let from_ns = read.time_ns.saturating_sub(PAGES_NEAR_NS);
    (from_ns..=end_ns.saturating_add(PAGES_NEAR_NS)).contains(&at_ns)
}

fn why_none(file: &str, profile: &Profile) -> String {
    let why = match profile
        .run
        .settings
        .iter()
        .any(|(name, value)| name == "HEAPPROF_MEMORY_INTERVAL_MS" && value == "0")
    {
        true => "it was recorded with HEAPPROF_MEMORY_INTERVAL_MS=0",
        false if profile.run.is_joined => "it joins several processes; give one process's log",
        false => {
            "none was taken: they come once a second while the program allocates (HEAPPROF_MEMORY_INTERVAL_MS), at markers, dumps (HEAPPROFILE) and the end"
        }
    };
    format!("{file}: no reading of the resident memory: {why}")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn write_text(
    profile: &Profile,
    memory: &ResidentMemory,
    pinning: Option<&Pinning>,
    requested: &RequestedMoment,
    out: &mut impl Write,
) -> io::Result<()> {
    let width = stdout_width().unwrap_or(80);
    let whole = memory.resident as f64;
    let at_ns = memory.reading.time_ns;
    let mut head = vec![format!(
        "{}: {} resident at {:.3} s",
        Printable(&profile.process_name()),
        Bytes(whole),
        seconds(at_ns)
    )];
    let requested_s = seconds(requested.requested_ns);
    if let Some(nearest) = requested.nearest {
        let resident = nearest.get(MemoryField::Resident);
        head.push(format!(
            "a whole reading near {requested_s:.3} s; {} were resident at {:.3} s",
            Bytes(resident.unwrap_or(0) as f64),
            seconds(nearest.time_ns)
        ));
    } else if at_ns.abs_diff(requested.requested_ns) > NEAR_NS {
        head.push(format!("the reading that is nearest to {requested_s:.3} s"));
    }
    head.push(describe_precision(profile));
    for line in head {
        write_wrapped(&line, INDENT, stdout_width(), out)?;
    }
    writeln!(out)?;
    let heading = format!("  {:<25} {:>10} {:>7}", "", "bytes", "share");
    let column = heading.len() + 2;
    // In a narrow table, the remedy has lines of its own.
    let is_beside = width >= column + LEAST_BESIDE;
    let heading = match is_beside {
        true => format!("{heading}  what would shrink it"),
        false => format!("{heading}\n{:INDENT$}what would shrink it", ""),
    };
    writeln!(
        out,
        "{}",
        TextStyle::Heading.paint(&heading, colour::is_on())
    )?;
    for line in &memory.lines {
        let value = line.bytes as f64;
        let share = Percent { part: value, whole }.to_string();
        let numbers = format!("  {:<25} {:>10} {share:>7}", line.name, Bytes(value));
        let numbers = TextStyle::of_share(value, whole).paint(&numbers, colour::is_on());
        let indent = if is_beside { column } else { INDENT };
        let remedy = Printable(&line.remedy).to_string();
        let remedy = lines_of(&remedy, width.saturating_sub(indent));
        match is_beside {
            true => writeln!(
                out,
                "{numbers}  {}",
                remedy.join(&format!("\n{:indent$}", ""))
            )?,
            false => {
                writeln!(out, "{numbers}")?;
                for line in remedy {
                    writeln!(out, "{:indent$}{line}", "")?;
                }
            }
        }
    }
    writeln!(
        out,
        "  {:<25} {:>10} {:>7}",
        "resident",
        Bytes(whole),
        "100.0%"
    )?;
    write_mappings(profile, whole, width, out)?;
    if let Some(pinning) = pinning {
        pinning.write(width, out)?;
    }
    let mut notes: Vec<_> = memory.huge_pages().into_iter().collect();
    notes.extend(memory.lazily_freed());
    notes.extend(memory.limits());
    notes.extend(memory.remarks().map(str::to_owned));
    notes.extend(profile.conditions());
    if !notes.is_empty() {
        writeln!(out)?;
    }
    for note in notes {
        write_wrapped(&Printable(&note).to_string(), INDENT, stdout_width(), out)?;
    }
    Ok(())
}

/// Returns true if the program, or a library of it, is a Python interpreter.
fn is_of_python(profile: &Profile) -> bool {
    let is_python = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("python") || name.starts_with("libpython")
    };
    profile.modules.iter().any(|module| is_python(&module.path))
}

/// Where a remark goes on that is too wide.
const INDENT: usize = 4;
/// Least columns of a remedy beside its line.
const LEAST_BESIDE: usize = 24;
/// Columns of the names of lines, which mappings leave blank if there is room.
const NAME: usize = 25;

/// Most names of mappings that are listed.
const MOST_NAMES: usize = 5;

/// Writes the names of the mappings with the most resident bytes.
fn write_mappings(
    profile: &Profile,
    whole: f64,
    width: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let names = profile.mappings.by_name();
    let resident = names.into_iter().filter(|(_, [_, resident])| *resident > 0);
    let names: Vec<_> = resident.take(MOST_NAMES).collect();
    if names.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let heading = "of the mappings and stacks, by name (`heapprof top --by mapping`):";
    write_wrapped(heading, INDENT, Some(width), out)?;
    // In a narrow table, the names need the room.
    let blank = if width < 2 * NAME + LEAST_BESIDE {
        0
    } else {
        NAME + 1
    };
    for (name, [_, resident]) in names {
        let part = resident as f64;
        let share = Percent { part, whole }.to_string();
        let numbers = format!(
            "  {:blank$}{:>10} {share:>7}  ",
            "",
            Bytes(part).to_string()
        );
        let room = width.saturating_sub(numbers.chars().count());
        writeln!(out, "{numbers}{}", Printable(&cut_front(name, room)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reading_of_pages_belongs_to_the_memory_at_its_end() {
        const MS: u64 = 1_000_000;
        let read = |ran_ms: u64| PagesRead {
            time_ns: 1000 * MS,
            record: 0,
            ran_ns: ran_ms * MS,
            pages: 1,
            blocks: 1,
            left_out: 0,
            is_cut: false,
            knows_slabs: false,
        };
        assert!(is_near(&read(600), 1900 * MS));
        assert!(!is_near(&read(600), 2400 * MS));
        assert!(!is_near(&read(1), 1200 * MS));
        assert!(is_near(&read(1), 920 * MS));
        assert!(!is_near(&read(1), 880 * MS));
    }
}
