//! Facts: lines of `key: value` about a profile, for the comments of dumps and of pprof.
//!
//! The reader of dumps (`crate::read::dump`) recognises the first keys.

use crate::analysis::completeness::Recorded;
use crate::export::Options;
use crate::model::confidence::Confidence;
use crate::model::measure::Measure;
use crate::model::metric::Metric;
use crate::model::precision::Precision;
use crate::model::printable::Printable;
use crate::model::profile::Profile;

/// The lines, most important first.
pub(super) fn facts(profile: &Profile) -> Vec<String> {
    let run = &profile.run;
    let mut lines = Vec::new();
    let version = if run.library.is_empty() {
        env!("CARGO_PKG_VERSION")
    } else {
        &run.library
    };
    lines.push(format!("heapprof: {version}"));
    if !run.program.is_empty() {
        lines.push(format!("program: {}", run.program));
    }
    if !run.executed_as.is_empty() {
        lines.push(format!("executed as: {}", run.executed_as));
    }
    if run.is_attached {
        lines.push("attached: blocks from before are not known".to_owned());
    }
    if !run.allocator.is_empty() {
        lines.push(format!("allocator: {}", run.allocator));
    }
    if !run.args.is_empty() {
        lines.push(format!("command: {}", run.args.join(" ")));
    }
    if run.pid != 0 {
        lines.push(format!("pid: {}", run.pid));
    }
    match (run.intervals(), run.interval) {
        // The longest first, which is what a reader of one number is to take.
        (Some((least, most)), _) if least < most => {
            lines.push(format!("interval: {most} bytes at most, {least} at least"));
        }
        (Some((interval, _)), _) | (None, Some(interval)) => {
            lines.push(format!("interval: {interval} bytes"));
        }
        (None, None) => {}
    }
    if !run.reason.is_empty() {
        lines.push(format!("reason: {}", run.reason));
    }
    lines.push(format!("estimator: {}", estimator(profile)));
    lines.extend(profile.circumstances());
    if profile.precision() != Precision::Exact {
        // As the library writes it into dumps; `crate::read::dump` reads both.
        let of = |metric| profile.error(metric);
        if let (Some(a), Some(b), Some(c), Some(d)) = (
            of(Metric::InUseObjects),
            of(Metric::InUseBytes),
            of(Metric::AllocatedObjects),
            of(Metric::AllocatedBytes),
        ) {
            lines.push(format!(
                "standard error: in use {a:.0} objects, {b:.0} bytes; allocated {c:.0} objects, {d:.0} bytes"
            ));
        }
    }
    // The four errors are read together: one of 0 for want of samples has this beside it.
    for (metric, what) in [
        (Metric::InUseBytes, "in use"),
        (Metric::AllocatedBytes, "allocated"),
    ] {
        let bound = profile.unseen_bytes(Confidence::default());
        if let (true, Some(bound)) = (profile.has_no_sample_of(metric), bound) {
            lines.push(format!(
                "no samples: {what} less than {bound:.0} bytes (95 % confidence)"
            ));
        }
    }
    for (counter, n) in profile.account.losses() {
        lines.push(format!("lost: {n} {}", counter.describe()));
    }
    let without_room = profile.account.without_room;
    if without_room > 0 {
        lines.push(format!(
            "left out: {without_room} records, because the log needs more memory than it may take (--max-memory)"
        ));
    }
    lines.extend(profile.account.faults());
    lines
}

/// The circumstances in one line, behind what a form with place for one has said:
/// `; view: …; filtered …`.
pub(super) fn in_a_line(profile: &Profile) -> String {
    let lines = profile.circumstances();
    lines
        .iter()
        .map(|line| format!("; {}", Printable(line)))
        .collect()
}

/// The intervals around the metric that was chosen and around what no sample was seen of, in words
/// that do not end in a number; none when the numbers are exact, or nobody knows.
pub(super) fn intervals(profile: &Profile, options: &Options) -> Vec<String> {
    let percent = options.confidence.percent();
    let mut lines = Vec::new();
    let measure = options.metric;
    let error = match measure {
        Measure::Basic(metric) => profile.error(metric),
        _ if profile.precision() == Precision::Stated => None,
        _ => Some(measure.of_all(profile).error()),
    };
    if profile.precision() == Precision::Exact {
        return lines;
    }
    let bound = profile.unseen_bytes(options.confidence);
    if let (true, Some(bound)) = (has_no_samples(profile, measure), bound) {
        lines.push(format!(
            "no samples: {measure} of blocks of less than {bound:.0} bytes in all ({percent} % confidence)"
        ));
    } else if let Some(error) = error {
        let half = error * options.confidence.standard_errors();
        let shown = match half {
            half if half >= 100.0 => format!("{half:.0}"),
            half => format!("{half:.3}"),
        };
        lines.push(format!(
            "{percent} % interval of the total: ± {shown} {} ({measure})",
            measure.unit()
        ));
    }
    if let Some(bytes) = bound {
        lines.push(format!(
            "a site not listed could still hold up to {bytes:.0} bytes ({percent} % confidence)"
        ));
    }
    lines
}

/// Returns true if what is shown rests on no sample, and is an estimate all the same.
pub(super) fn has_no_samples(profile: &Profile, measure: Measure) -> bool {
    match measure {
        Measure::Basic(metric) => profile.has_no_sample_of(metric),
        _ => profile.precision() == Precision::Sampled && measure.of_all(profile).samples == 0,
    }
}

/// How the numbers came about, in one line.
pub(super) fn estimator(profile: &Profile) -> &'static str {
    match profile.precision() {
        Precision::Exact => match profile.recorded() {
            Recorded::All => "exact, every allocation was recorded",
            Recorded::SinceFork => {
                "exact for what was allocated since the fork, all of which was recorded"
            }
            Recorded::UpToTheLast if profile.totals().allocated.samples == 0 => {
                "no allocation was recorded before the log breaks off"
            }
            Recorded::UpToTheLast => {
                "every allocation up to the last record of the log was recorded; it has no end"
            }
            Recorded::InParts => {
                "every allocation was recorded, but parts of the record are missing"
            }
        },
        Precision::Sampled => "unsampled already, each sample weighs 1/(1-exp(-size/interval))",
        Precision::Stated => "as stated by the dump this was made from",
    }
}
