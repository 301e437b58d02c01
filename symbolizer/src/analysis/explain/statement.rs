//! Statement: a finding in words: its numbers, and the options of the command that shows more.

use crate::analysis::explain::forecast::{Forecast, LONGEST_S, Outlook};
use crate::analysis::explain::kind::{FEW_GONE, Kind};
use crate::analysis::explain::readings::MappedGrowth;
use crate::analysis::explain::spread::SpreadGrowth;
use crate::analysis::explain::whole_run::PastBeforeDetail;
use crate::analysis::explain::{Churn, Explanation, Finding};
use crate::model::confidence::Confidence;
use crate::model::quantity::{Bytes, Count, Percent};
use crate::naming::site::SiteKey;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement<'a> {
    /// The verdict.
    pub verdict: &'static str,
    /// True if it is something to look into.
    pub is_trouble: bool,
    /// The site.
    pub site: &'a SiteKey,
    /// The numbers, each with its error.
    pub evidence: String,
    /// The command that shows more; `None`: none does.
    command: Option<Command>,
    /// When the site had the most, in nanoseconds.
    pub highest_ns: Option<u64>,
}

/// A command that shows more.
#[derive(Debug, Clone, PartialEq)]
enum Command {
    /// `heapprof tree` of the site, with these options.
    Tree(String),
    /// `heapprof top` by the names of mappings.
    Mappings,
    /// `heapprof top` of what grows.
    Growth,
}

impl Statement<'_> {
    /// Returns the command that shows more. `log` is the log as a shell takes it.
    pub fn command(&self, log: &str) -> Option<String> {
        let function = regex::escape(&self.site.function).replace('\'', "'\\''");
        Some(match self.command.as_ref()? {
            Command::Tree(options) => {
                // The whole name: another one may have it within.
                format!("heapprof tree {log} --focus '^{function}$' {options}")
            }
            Command::Mappings => format!("heapprof top {log} --by mapping"),
            Command::Growth => format!("heapprof top {log} -m growth"),
        })
    }
}

impl Explanation {
    /// Returns what is to look into, the most important first, and then the other findings.
    pub fn statements(&self) -> Vec<Statement<'_>> {
        let (troubles, others): (Vec<&Finding>, Vec<&Finding>) = self
            .findings
            .iter()
            .partition(|finding| finding.kind.is_trouble());
        let mapped = self.mapped.as_ref();
        let is_larger = |mapped: &MappedGrowth, it: &Finding| it.weight() >= mapped.bytes as f64;
        let place = mapped.map_or(0, |mapped| {
            troubles.partition_point(|it| is_larger(mapped, it))
        });
        let (larger, smaller) = troubles.split_at(place);
        let larger = larger.iter().map(|it| it.statement());
        let smaller = smaller.iter().map(|it| it.statement());
        let mapped = mapped.map(MappedGrowth::statement);
        let spread = self.spread.iter().map(SpreadGrowth::statement);
        let troubles = spread.chain(larger).chain(mapped).chain(smaller);
        let churn = self.churn.iter().map(Churn::statement);
        let others = others.into_iter().map(Finding::statement);
        troubles.chain(churn).chain(others).collect()
    }

    /// Returns what a reader must know of findings of growth in a short run; `None`: the run is
    /// longer, or nothing is to look into.
    pub fn remark_on_length(&self) -> Option<&'static str> {
        let is_to_look_into = self.findings.iter().any(|it| it.kind.is_trouble());
        (self.is_short && is_to_look_into).then_some(
            "The run is short: what grows may be the beginning of a program that goes on otherwise.",
        )
    }

    /// Returns the verdict on the whole run in a sentence, if there is one.
    pub fn summary(&self) -> Option<&'static str> {
        if self.is_too_short {
            return Some(match self.is_without_samples {
                true if self.records_all => "No allocation is in the log: nothing says what grows.",
                true => {
                    "Without a sample, nothing says what grows: a shorter interval (-i) takes more."
                }
                false => "The run is too short to say what grows: let it run longer.",
            });
        }
        let is_well = self.is_without_trouble();
        is_well.then_some(match self.is_of_few_samples {
            _ if self.is_in_parts => {
                "No site grows, bursts or churns in what was recorded, and parts of the record are missing: the run cannot be judged."
            }
            false => "Nothing is wrong: no site grows, bursts or churns.",
            true => {
                "No site grows, bursts or churns, as far as the few samples show: a shorter interval (-i) takes more."
            }
        })
    }
}

impl Finding {
    fn statement(&self) -> Statement<'_> {
        Statement {
            verdict: self.kind.name(),
            is_trouble: self.kind.is_trouble(),
            site: &self.site,
            evidence: match self.until_ns {
                Some(until_ns) => format!(
                    "up to {:.1} s, when recording was stopped: {}; how it went on is not known",
                    until_ns as f64 / 1e9,
                    evidence(self)
                ),
                None => evidence(self),
            },
            command: match self.kind {
                Kind::Leak | Kind::GrowingBlock | Kind::Backlog | Kind::MayGrow => {
                    Some(Command::Tree("-m growth".into()))
                }
                Kind::Burst | Kind::Periodic | Kind::Falls | Kind::Varies => {
                    Some(Command::Tree(at(self.highest_ns)))
                }
                Kind::Unknown if self.past_before_detail.is_some() => {
                    Some(Command::Tree("-m growth".into()))
                }
                Kind::Cache | Kind::OneTime | Kind::Unknown => None,
            },
            highest_ns: Some(self.highest_ns),
        }
    }
}

impl Churn {
    /// Says that `realloc` has made most of it; else empty. A block that it resizes is one that is
    /// freed, and another one.
    fn by_realloc(&self) -> String {
        if !self.is_by_realloc {
            return String::new();
        }
        let half = self.reallocs.error() * Confidence::default().standard_errors();
        let error = match half.round() as u64 {
            0 => String::new(),
            half => format!(" ± {}", Count(half)),
        };
        let number = Count(self.reallocs.value.round() as u64);
        format!("; realloc returned {number}{error} of these blocks")
    }

    fn statement(&self) -> Statement<'_> {
        let share = Percent {
            part: self.share,
            whole: 1.0,
        };
        let temporary = Percent {
            part: self.temporary,
            whole: self.allocated,
        };
        Statement {
            verdict: "churn",
            is_trouble: true,
            site: &self.site,
            evidence: format!(
                "{} allocated, {share} of all, and {temporary} of it freed within 10 ms{}",
                Bytes(self.allocated),
                self.by_realloc()
            ),
            command: Some(Command::Tree("-m temporary".into())),
            highest_ns: None,
        }
    }
}

impl SpreadGrowth {
    fn statement(&self) -> Statement<'_> {
        let growth = with_error(self.growth, self.growth_error, "/s");
        let in_use = with_error(self.in_use.value, self.in_use.error(), "");
        Statement {
            verdict: "growth",
            is_trouble: true,
            site: &self.site,
            evidence: format!(
                "the program grows by {growth}; {in_use} in use; no single site has most of it"
            ),
            command: Some(Command::Growth),
            highest_ns: None,
        }
    }
}

impl MappedGrowth {
    fn statement(&self) -> Statement<'_> {
        let rate = with_error(self.growth, self.growth_error, "/s");
        let bytes = Bytes(self.bytes as f64);
        let (whose, command) = match self.site_bytes {
            0 => (String::new(), Command::Mappings),
            mapped => (
                format!("; {} are mapped here", Bytes(mapped as f64)),
                Command::Tree("-m mapped".into()),
            ),
        };
        let arenas = match self.of_pymalloc {
            0 => String::new(),
            mapped => format!(
                "; {} are arenas of Python's pymalloc, whose objects PYTHONMALLOC=malloc shows",
                Bytes(mapped as f64)
            ),
        };
        Statement {
            verdict: "mappings grow",
            is_trouble: true,
            site: &self.site,
            evidence: format!(
                "memory that malloc never saw grows by {rate}; {bytes} resident in mappings{whose}{arenas}"
            ),
            command: Some(command),
            highest_ns: None,
        }
    }
}

/// The option for that moment, rounded up to a microsecond.
fn at(time_ns: u64) -> String {
    format!("--at {:.6}s", time_ns.div_ceil(1000) as f64 / 1e6)
}

/// Bytes with the 95 % interval, if there is a standard error.
fn with_error(value: f64, error: f64, unit: &str) -> String {
    let half = error * Confidence::default().standard_errors();
    match error > 0.0 {
        true => format!("{}{unit} ± {}", Bytes(value), Bytes(half)),
        false => format!("{}{unit}", Bytes(value)),
    }
}

/// The numbers of a finding.
fn evidence(finding: &Finding) -> String {
    let in_use = match finding.until_ns {
        // The end of the run is behind the time that is judged.
        Some(_) => format!("{} on average", Bytes(finding.mean)),
        None => with_error(finding.in_use.value, finding.in_use.error(), ""),
    };
    let growth = with_error(finding.growth, finding.growth_error, "/s");
    let gone = Percent {
        part: finding.gone,
        whole: 1.0,
    };
    let seconds = |ns: u64| format!("{:.1} s", ns as f64 / 1e9);
    let highest = format!(
        "{} at {}",
        with_error(finding.highest, finding.highest_error, ""),
        seconds(finding.highest_ns)
    );
    let freed_late = with_error(finding.freed_late, finding.freed_late_error, "");
    let (since, fallen) = match finding.past_before_detail {
        Some(PastBeforeDetail::Grown { since_ns, before }) => (
            format!(
                " since {} ({} then, coarsely)",
                seconds(since_ns),
                Bytes(before)
            ),
            String::new(),
        ),
        Some(PastBeforeDetail::Fallen { time_ns, bytes }) => (
            String::new(),
            format!(
                "; coarsely, {} at {}, which went",
                Bytes(bytes),
                seconds(time_ns)
            ),
        ),
        Some(PastBeforeDetail::NotKnown { .. }) | None => Default::default(),
    };
    if let Some(PastBeforeDetail::NotKnown { until_ns }) = finding.past_before_detail {
        return format!(
            "{in_use} in use; grows by {growth} since {}, and how it was before is not known",
            seconds(until_ns)
        );
    }
    match finding.kind {
        Kind::Leak => format!(
            "grows by {growth}{since}; {in_use} in use; {gone} of the bytes in use halfway through {} are freed by {}{}",
            match since.is_empty() {
                true => "the run",
                false => "that time",
            },
            finding.view_end_ns.map_or("its end".to_owned(), seconds),
            match finding.gone < FEW_GONE {
                true => "",
                false => ", but as large a part of its old blocks stays as of later ones",
            }
        ),
        Kind::GrowingBlock => {
            format!(
                "grows by {growth}{since}, in a block that is replaced by larger ones; {in_use} in use"
            )
        }
        Kind::Backlog => format!(
            "grows by {growth}{since}; {in_use} in use; old blocks are freed ({gone}), but more come{fallen}"
        ),
        Kind::Burst => format!(
            "{highest}, near the peak of the program; half of the time {}",
            match finding.usual > 0.0 {
                true => format!(
                    "no more than {}",
                    with_error(finding.usual, finding.usual_error, "")
                ),
                false => "nothing".to_owned(),
            }
        ),
        Kind::Periodic => format!(
            "rises and falls {} times, up to {highest}{fallen}",
            finding.rises
        ),
        Kind::Cache => format!(
            "{in_use} in use, level{}; {freed_late} freed and replaced in the second half of the time",
            (finding.settled_ns).map_or(String::new(), |ns| format!(" since {}", seconds(ns)))
        ),
        Kind::OneTime => format!(
            "{in_use} in use, allocated {}",
            match (finding.settled_ns, finding.began_ns) {
                (Some(ns), _) => format!("up to {}, and hardly any since", seconds(ns)),
                (None, Some(ns)) => format!("at {}, and hardly any since", seconds(ns)),
                (None, None) => "at the beginning".into(),
            }
        ),
        Kind::Falls => format!(
            "{in_use} in use, and falls: {highest}; {freed_late} freed in the second half of the time"
        ),
        Kind::MayGrow => format!(
            "{in_use} in use; grew by {growth}, but that may be chance, or over: a longer run or a shorter interval (-i) tells"
        ),
        Kind::Varies => {
            format!("{in_use} in use, up to {highest}; neither level nor in a pattern")
        }
        Kind::Unknown => format!(
            "{in_use} in use, up to {highest}; {freed_late} went while recording was stopped, and what replaced it is not known"
        ),
    }
}

impl Forecast {
    /// Returns the forecast as a sentence.
    pub fn in_words(&self) -> String {
        if self.is_reached() {
            let bytes = Bytes(self.bytes as f64);
            return format!("{} is {bytes}, and all of it is used", self.limit);
        }
        let limit = format!(
            "{} is {}, of which {} are used",
            self.limit,
            Bytes(self.bytes as f64),
            Bytes(self.used as f64)
        );
        let other = match &self.other {
            Some(other) => format!("; {}", other.in_words()),
            None => String::new(),
        };
        format!("{limit}: {}{other}", self.outlook.in_words())
    }
}

impl Outlook {
    fn in_words(&self) -> String {
        let days = LONGEST_S / 86_400.0;
        let rate = match self.since_ns {
            Some(ns) => format!("at the rate since {:.1} s", ns as f64 / 1e9),
            None => "at this rate".into(),
        };
        match (self.seconds, self.least_seconds) {
            (Some(seconds), least) => format!(
                "reached in {} {rate} ({} to {})",
                time(seconds),
                time(least.unwrap_or(seconds)),
                (self.most_seconds).map_or(format!("more than {days} days"), time)
            ),
            (None, Some(least)) => {
                format!("not reached before {} {rate}, if at all", time(least))
            }
            (None, None) => format!("not reached within {days} days {rate}"),
        }
    }
}

/// A time in the unit that people use for it.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
