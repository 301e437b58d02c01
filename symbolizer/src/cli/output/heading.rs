//! Heading: the lines above every table.
//!
//! It says what ran, the four totals with their errors, how exact they are, and which part of the
//! run is shown.

use std::io::{self, Write};

use heapprof_symbolizer::{
    Bytes, Confidence, Count, Metric, Precision, Printable, Profile, Recorded, Run,
};

use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::{write_all_wrapped, write_wrapped};

/// The heading: what ran, the four totals with their errors, and the same as plain numbers, in
/// lines of that width.
pub(crate) fn write_totals(
    profile: &Profile,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    write_totals_at(profile, Confidence::default(), width, out)
}

/// The same, with intervals of that confidence.
pub(crate) fn write_totals_at(
    profile: &Profile,
    confidence: Confidence,
    width: Option<usize>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    write_lines(profile, confidence, &mut text)?;
    write_all_wrapped(&text, INDENT, width, out)
}

/// Where a line of the heading goes on that is too wide.
const INDENT: usize = 4;

/// The peak has a line if it is so many times higher than what is in use.
const NOTEWORTHY_PEAK: f64 = 1.1;

fn write_lines(profile: &Profile, confidence: Confidence, out: &mut impl Write) -> io::Result<()> {
    let run = &profile.run;
    write!(out, "{}", Printable(&profile.process_name()))?;
    if run.duration_ns > 0 {
        // For several processes it is the longest duration, not the duration of all together.
        let each = match profile.parts.is_empty() || run.is_joined {
            true => "",
            false => "each up to ",
        };
        write!(out, ", {each}{:.1} s", run.duration_ns as f64 / 1e9)?;
    }
    writeln!(
        out,
        ": {}{}",
        describe_precision(profile),
        describe_confidence(profile, confidence)
    )?;

    for line in profile.selection() {
        writeln!(out, "{}", Printable(&line))?;
    }
    let numbers = profile.numbers();
    let quantity = |metric: Metric, value: f64| {
        if metric.is_bytes() {
            Bytes(value).to_string()
        } else {
            Count(value.round() as u64).to_string()
        }
    };
    let shown = |metric: Metric| -> String {
        let text = quantity(metric, numbers.get(metric) as f64);
        match profile.error(metric) {
            Some(error) if profile.precision() != Precision::Exact => {
                let half = error * confidence.standard_errors();
                format!("{text} ± {}", quantity(metric, half))
            }
            _ => text,
        }
    };
    for (label, bytes, objects) in [
        ("in use   ", Metric::InUseBytes, Metric::InUseObjects),
        (
            "allocated",
            Metric::AllocatedBytes,
            Metric::AllocatedObjects,
        ),
    ] {
        let bound = profile.unseen_bytes(confidence);
        if let Some(bound) = bound.filter(|_| profile.has_no_sample_of(bytes)) {
            let (bound, percent) = (Bytes(bound), confidence.percent());
            writeln!(
                out,
                "  {label}  no samples: less than {bound} ({percent} % confidence)"
            )?;
            continue;
        }
        writeln!(
            out,
            "  {label}  {} in {} blocks",
            shown(bytes),
            shown(objects)
        )?;
    }
    if let Some(peak) = profile.peak_of_run()
        && peak.bytes.to_f64() > numbers.in_use_bytes as f64 * NOTEWORTHY_PEAK
    {
        let bytes = Bytes(peak.bytes.to_f64());
        let error = peak.error().filter(|&error| error > 0.0);
        let half = error.map(|error| Bytes(error * confidence.standard_errors()));
        let half = half.map_or(String::new(), |half| format!(" ± {half}"));
        let seconds = peak.time_ns as f64 / 1e9;
        writeln!(out, "  peak       {bytes}{half} in use at {seconds:.1} s")?;
    }
    writeln!(
        out,
        "total: in use {} objects, {} bytes; allocated {} objects, {} bytes",
        numbers.in_use_objects,
        numbers.in_use_bytes,
        numbers.allocated_objects,
        numbers.allocated_bytes
    )?;
    if let Some(line) = profile.resident() {
        writeln!(out, "{line}")?;
    }
    let lives = profile.still_runs().into_iter().chain(profile.went_on());
    for line in lives.chain(profile.conditions()) {
        writeln!(out, "{}", Printable(&line))?;
    }
    Ok(())
}

/// How exact the numbers are, in words.
pub(crate) fn describe_precision(profile: &Profile) -> String {
    let mut runs = profile.parts.iter().map(|part| &part.run);
    let of_one = || profile.parts.is_empty() && profile.run.was_never_recorded();
    if of_one() || runs.len() > 0 && runs.all(Run::was_never_recorded) {
        return "nothing recorded, since recording was never started".into();
    }
    match (profile.precision(), profile.run.interval) {
        (Precision::Exact, _) => match profile.recorded() {
            Recorded::All => "every allocation recorded, numbers are exact".into(),
            Recorded::SinceFork => {
                "every allocation since the fork recorded, numbers are exact for these".into()
            }
            Recorded::UpToTheLast if profile.totals().allocated.samples == 0 => {
                "no allocation recorded before the log breaks off".into()
            }
            Recorded::UpToTheLast => {
                "every allocation up to the last record of the log recorded".into()
            }
            Recorded::InParts => {
                "every allocation recorded, but parts of the record are missing".into()
            }
        },
        (Precision::Sampled, Some(interval)) => {
            let interval = match profile.run.intervals() {
                Some((least, most)) if least != most => {
                    format!("{} to {}", Bytes(least as f64), Bytes(most as f64))
                }
                Some((_, only)) => Bytes(only as f64).to_string(),
                None => Bytes(interval as f64).to_string(),
            };
            match profile.run.record_over() {
                Some(size) => format!(
                    "sampled every {interval} on average, blocks of {} and more all recorded",
                    Bytes(size as f64)
                ),
                None => format!("sampled every {interval} on average"),
            }
        }
        (Precision::Sampled, None) => "sampled".into(),
        (Precision::Stated, Some(interval)) if profile.stated_errors.is_some() => format!(
            "a dump, sampled every {} on average; the error of its single lines is not stated",
            Bytes(interval as f64)
        ),
        (Precision::Stated, Some(interval)) if interval > 1 => format!(
            "a dump, sampled every {} on average; it does not state the error of its numbers",
            Bytes(interval as f64)
        ),
        (Precision::Stated, _) => "a dump; it does not state the error of its numbers".into(),
    }
}

/// Says what ± means, if it is shown.
pub(crate) fn describe_confidence(profile: &Profile, confidence: Confidence) -> String {
    let is_known = match profile.precision() {
        Precision::Exact => false,
        Precision::Sampled => true,
        Precision::Stated => profile.stated_errors.is_some(),
    };
    if is_known {
        format!("; ± is the {} % interval", confidence.percent())
    } else {
        String::new()
    }
}

/// Writes whose mappings these are, and when the resident bytes were read.
pub(crate) fn write_mappings_read(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let who = Printable(&profile.process_name()).to_string();
    let line = match profile.mappings.read_ns {
        Some(ns) => format!(
            "{who}: mappings; resident bytes and names as of {:.3} s",
            ns as f64 / 1e9
        ),
        None if !profile.parts.is_empty() => {
            format!("{who}: mappings; resident bytes and names as of each process's last reading")
        }
        None => format!("{who}: mappings; resident bytes and names were not read"),
    };
    write_wrapped(&line, INDENT, stdout_width(), out)?;
    if profile.run.is_attached {
        writeln!(
            out,
            "mappings from before heapprof was attached have no stack"
        )?;
    }
    Ok(())
}
