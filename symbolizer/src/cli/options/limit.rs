//! Limit options: `--fail-above` and `--allow-inconclusive`, and the message when a limit is
//! exceeded or cannot be judged.

use heapprof_core::byte_number;
use heapprof_symbolizer::{Change, Confidence, Limit, Measure, Printable, Profile, REAL, Ruling};

use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// Parses the limit of a number: `200MiB`, `1.5GiB`, or `5000`.
pub(crate) fn amount(text: &str) -> Result<Limit, String> {
    byte_number(text)
        .map(|number| Limit::Amount(number as f64))
        .map_err(|error| error.to_string())
}

/// Parses the limit of growth: an amount, or `5%` of the amount before.
pub(crate) fn growth(text: &str) -> Result<Limit, String> {
    const WANTED: &str = "an amount or a share, such as 10MiB, 5000, or 5%";
    let Some(percent) = text.strip_suffix('%') else {
        let is_number = text.starts_with(|c: char| c.is_ascii_digit());
        return amount(text).map_err(|why| match is_number {
            true => format!("{why}; or a share, such as 5%"),
            false => WANTED.into(),
        });
    };
    let percent = percent.trim().parse().ok();
    let percent = percent.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    let share = percent.map(|number| Limit::Share(number / 100.0));
    share.ok_or_else(|| WANTED.into())
}

/// A limit that was given, and what is done if it cannot be judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gate {
    pub(crate) limit: Limit,
    pub(crate) allows_inconclusive: bool,
}

/// How sure a judgement is.
const CONFIDENCE: f64 = 99.73;

/// Bytes that a profile may have of which no sample was seen.
pub(crate) fn unseen(profile: &Profile) -> f64 {
    let confidence = Confidence::of_percent(CONFIDENCE);
    let bytes = confidence.and_then(|confidence| profile.unseen_bytes(confidence));
    bytes.unwrap_or(0.0)
}

/// The answer to whether a number is within its limit; the worst is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LimitVerdict {
    Within,
    Inconclusive,
    Exceeded,
}

impl LimitVerdict {
    /// Returns the verdict for people.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            LimitVerdict::Within => "pass",
            LimitVerdict::Inconclusive => "cannot judge",
            LimitVerdict::Exceeded => "FAIL",
        }
    }

    /// Returns the verdict for programs.
    pub(crate) fn key(self) -> &'static str {
        match self {
            LimitVerdict::Within => "pass",
            LimitVerdict::Inconclusive => "cannot-judge",
            LimitVerdict::Exceeded => "fail",
        }
    }
}

/// A verdict with its reason.
#[derive(Debug, Clone)]
pub(crate) struct Judgement {
    pub(crate) verdict: LimitVerdict,
    pub(crate) words: String,
}

/// Judges a number of a part of a profile, which may be all of it.
pub(crate) fn judge(limit: Limit, whole: &Profile, part: &Profile, measure: Measure) -> Judgement {
    let inconclusive = |words| Judgement {
        verdict: LimitVerdict::Inconclusive,
        words,
    };
    let doubts = whole.doubts();
    if !doubts.is_empty() {
        return inconclusive(doubts.join("; "));
    }
    let total = measure.total(part);
    let number = measure.quantity(total.value);
    let allowed = limit.allows(0.0);
    let ruling = limit.of_number(&total, unseen(whole));
    if ruling != Ruling::Exceeded
        && let Some(memory) = part.doubt_of_memory(measure, allowed)
    {
        return inconclusive(memory);
    }
    let error = with_error(measure, total.error());
    let most = allowed;
    let (mut number, mut allowed) = (number, measure.quantity(most));
    if ruling == Ruling::Exceeded && number == allowed {
        // They differ in digits that are not shown.
        number += &format!(" ({:.0})", total.value);
        allowed += &format!(" ({most:.0})");
    }
    let what = format!("{measure} is {number}{error}");
    match ruling {
        Ruling::Within => Judgement {
            verdict: LimitVerdict::Within,
            words: format!("{what}, within the limit of {allowed}"),
        },
        ruling => of_ruling(ruling, &what, &allowed),
    }
}

/// Returns the judgement of a ruling on `what`.
fn of_ruling(ruling: Ruling, what: &str, limit: &str) -> Judgement {
    let (verdict, words) = match ruling {
        Ruling::Within => (LimitVerdict::Within, String::new()),
        Ruling::Exceeded => (
            LimitVerdict::Exceeded,
            format!("{what}, above the limit of {limit}"),
        ),
        Ruling::Unsure => (
            LimitVerdict::Inconclusive,
            format!(
                "{what}, and the limit of {limit} is nearer than {REAL} standard errors: a smaller sampling interval tells"
            ),
        ),
    };
    Judgement { verdict, words }
}

impl Gate {
    /// Checks that all that is shown of a profile is within the limit.
    pub(crate) fn check(self, profile: &Profile, measure: Measure) -> Result<(), Failure> {
        self.act_on(judge(self.limit, profile, profile, measure))
    }

    /// Checks that all that it grew by is.
    pub(crate) fn check_growth(
        self,
        doubts: &[String],
        measure: Measure,
        total: &Change,
        unseen: f64,
    ) -> Result<(), Failure> {
        self.doubt(doubts)?;
        let before = measure.quantity(total.before);
        let of_before = match self.limit {
            Limit::Amount(_) => String::new(),
            Limit::Share(share) => format!(", {} % of {before}", share * 100.0),
        };
        let error = match total.is_unsure {
            true => 0.0,
            false => total.error(),
        };
        let change = measure.quantity(total.difference().abs());
        let went = match total.difference() < 0.0 {
            true => "shrank",
            false => "grew",
        };
        let allowed = measure.quantity(self.limit.allows(total.before));
        self.act_on(of_ruling(
            self.limit.of_growth(total, unseen),
            &format!("{measure} {went} by {change}{}", with_error(measure, error)),
            &format!("{allowed}{of_before}"),
        ))
    }

    fn doubt(self, doubts: &[String]) -> Result<(), Failure> {
        match doubts {
            [] => Ok(()),
            doubts => self.cannot_judge(&doubts.join("; ")),
        }
    }

    fn act_on(self, judgement: Judgement) -> Result<(), Failure> {
        match judgement.verdict {
            LimitVerdict::Within => Ok(()),
            LimitVerdict::Exceeded => Err(Failure::Exceeded(judgement.words)),
            LimitVerdict::Inconclusive => self.cannot_judge(&judgement.words),
        }
    }

    /// Fails, or says why the limit cannot be judged.
    pub(crate) fn cannot_judge(self, why: &str) -> Result<(), Failure> {
        if !self.allows_inconclusive {
            return Err(Failure::Inconclusive(why.into()));
        }
        say::note(&format_args!("note: cannot judge: {}", Printable(why)));
        Ok(())
    }
}

/// The check, also where nobody read to the end of what was shown (`| head`).
pub(crate) fn after(
    shown: Result<(), Failure>,
    check: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    match shown {
        Err(error) if !error.is_broken_pipe() => Err(error),
        shown => check().and(shown),
    }
}

fn with_error(measure: Measure, error: f64) -> String {
    match error > 0.0 {
        true => format!(" (standard error {})", measure.quantity(error)),
        false => String::new(),
    }
}
