//! `heapprof check`: judges a profile by the limits of a budget file.

mod budget;
mod json;

use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    Measure, Printable, Profile, ReadRequest, Symbols, WantedExtras, retain_stacks,
};

use crate::cli::inputs::several;
use crate::cli::inputs::source::Source;
use crate::cli::options::limit::{Judgement, LimitVerdict, judge};
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::options::suppressions::{SuppressionArgs, say_unused};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;
use budget::{Budget, BudgetLimit};

/// Text of the help: an example of a budget file.
const BUDGET: &str = r#"A budget, in TOML:
  suppressions = "known.supp"   # lines of leak:PATTERN; beside this file
  [[limit]]
  metric = "peak"               # as in heapprof top -m [in-use-bytes]
  at-most = "200MiB"
  [[limit]]
  name = "the parser's cache"
  site = "parse_*"              # or function = of any frame, or module = that of the site
  at-most = "10MiB"
  must-match = true             # [false]

A pattern matches anywhere in a name, at its beginning with ^, and at its end with $. A line on
standard error names each that matches nothing. Its limit passes, as a site with few samples may
have none, unless it says must-match = true.

Exit status: 0, all limits are kept; 3, one is exceeded; 4, none is, and one cannot be judged: the
log is damaged or cut, has no samples, names are missing, a pattern that must match does not, or
noise is too large; 1, there is no such file; 2, the command line makes no sense."#;

/// Judge a profile by a budget that is kept with the code
///
/// Each limit passes, fails, or cannot be judged. Noise never makes a limit pass or fail.
#[derive(Debug, clap::Args)]
#[command(after_long_help = BUDGET)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// Read the limits from this file
    #[arg(short, long, value_name = "TOML", default_value = "heapprof.toml")]
    budget: PathBuf,

    #[command(flatten)]
    suppressions: SuppressionArgs,

    /// Exit with status 0 if no limit is exceeded and one cannot be judged
    #[arg(long)]
    allow_inconclusive: bool,

    /// Print JSON, with the verdict on each limit
    #[arg(long)]
    json: bool,
}

/// A limit, and what was found.
struct Judged<'a> {
    limit: &'a BudgetLimit,
    judgement: Judgement,
    /// True if the limit's pattern matches a stack, or there is no pattern.
    matches: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let budget = Budget::read(&args.budget)?;
    let suppressions = args.suppressions.or(budget.suppressions.clone());
    let has_peak =
        |it: &BudgetLimit| matches!(it.measure, Measure::PeakBytes | Measure::PeakObjects);
    if args.source.files.len() > 1 && !args.source.joined && budget.limits.iter().any(has_peak) {
        say::note(&several::OWN_PEAKS);
    }
    let mut judged: Vec<Judged<'_>> = Vec::new();
    let mut heap = None;
    for of_mappings in [false, true] {
        let is_of_them = |it: &&BudgetLimit| it.measure.is_mapped() == of_mappings;
        let limits: Vec<&BudgetLimit> = budget.limits.iter().filter(is_of_them).collect();
        if limits.is_empty() {
            continue;
        }
        let mut profile = args.source.part(&ReadRequest {
            view: args.source.time.view(),
            pasts: (limits.iter())
                .any(|it| it.measure.needs_pasts())
                .then_some(DEFAULT_TEMPORARY),
            mappings: of_mappings,
            extras: WantedExtras::default(),
            ..ReadRequest::default()
        })?;
        for it in &limits {
            args.source.need_times(it.measure, &profile)?;
        }
        let symbols = args.source.symbols(&profile)?;
        if !of_mappings {
            suppressions.apply(&mut profile, &symbols)?;
        }
        judged.extend(
            limits
                .into_iter()
                .map(|limit| judged_by(limit, &profile, &symbols)),
        );
        heap.get_or_insert(profile);
    }
    let Some(profile) = heap else {
        return Ok(());
    };
    judged.iter().for_each(|it| it.say_if_unused(&args.budget));
    let verdict = judged.iter().map(|it| it.judgement.verdict).max();
    let verdict = verdict.unwrap_or(LimitVerdict::Inconclusive);
    let shown = Destination::Stdout.write(|out| match args.json {
        true => json::write(&profile, &judged, verdict, out),
        false => judged.iter().try_for_each(|it| it.write(out)),
    });
    match shown {
        Err(error) if !error.is_broken_pipe() => return Err(error),
        _ => {}
    }
    let number = |wanted| {
        judged
            .iter()
            .filter(|it| it.judgement.verdict == wanted)
            .count()
    };
    let of_all = judged.len();
    match verdict {
        LimitVerdict::Exceeded => Err(Failure::Exceeded(format!(
            "{} of {of_all} limits exceeded",
            number(LimitVerdict::Exceeded)
        ))),
        LimitVerdict::Inconclusive if !args.allow_inconclusive => Err(Failure::Inconclusive(
            format!("{} of {of_all} limits", number(LimitVerdict::Inconclusive)),
        )),
        _ => Ok(()),
    }
}

impl Judged<'_> {
    fn write(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let verdict = self.judgement.verdict.in_words();
        write!(out, "{verdict:<12}  ")?;
        if let Some(name) = &self.limit.name {
            write!(out, "{}: ", Printable(name))?;
        }
        if let Some(of) = &self.limit.of {
            let pattern = Printable(of.pattern.text());
            write!(out, "{} {pattern}: ", of.subject.name())?;
        }
        writeln!(out, "{}", Printable(&self.judgement.words))
    }

    /// Says that the pattern matches nothing: the function may have another name now.
    fn say_if_unused(&self, budget: &Path) {
        if let Some(of) = self.limit.of.as_ref().filter(|_| !self.matches) {
            let pattern = format!("{} {}", of.subject.name(), of.pattern.text());
            say_unused(budget, of.line, &pattern);
        }
    }
}

/// Judges by one limit.
fn judged_by<'a>(limit: &'a BudgetLimit, profile: &Profile, symbols: &Symbols) -> Judged<'a> {
    let judged = |judgement, matches| Judged {
        limit,
        judgement,
        matches,
    };
    let Some(of) = &limit.of else {
        return judged(judge(limit.limit, profile, profile, limit.measure), true);
    };
    let selected = of.subject.select(&of.pattern, profile, symbols);
    let matches = selected.contains(&true);
    let why = match matches {
        true => None,
        false if of.subject.lacks_names(profile, symbols) => {
            Some("nothing matches, and not all frames have names (`heapprof info` says why)")
        }
        false if of.must_match => Some(
            "nothing matches, though it must (must-match): the function may have another name now",
        ),
        false => None,
    };
    if let Some(words) = why {
        let judgement = Judgement {
            verdict: LimitVerdict::Inconclusive,
            words: words.into(),
        };
        return judged(judgement, matches);
    }
    let mut part = profile.clone();
    let what = format!("{} {}", of.subject.name(), of.pattern.text());
    retain_stacks(&mut part, &selected, &what);
    judged(judge(limit.limit, profile, &part, limit.measure), matches)
}
