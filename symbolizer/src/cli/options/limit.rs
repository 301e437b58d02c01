//! Limit options: `--fail-above` and `--allow-inconclusive`, and the message when a limit is
//! exceeded or cannot be judged.

use heapprof_symbolizer::{Change, Confidence, Limit, Measure, Printable, Profile, REAL, Ruling};

use crate::cli::options::quantity::bytes;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// Parses the limit of a number: `200MiB`, or `5000`.
pub(crate) fn amount(text: &str) -> Result<Limit, String> {
    match text {
        "0" => Ok(Limit::Amount(0.0)),
        _ => bytes(text).map(|number| Limit::Amount(number as f64)),
    }
}

/// Parses the limit of growth: an amount, or `5%` of the amount before.
pub(crate) fn growth(text: &str) -> Result<Limit, String> {
    const WANTED: &str = "an amount or a share, such as 10MiB, 5000, or 5%";
    let Some(percent) = text.strip_suffix('%') else {
        return amount(text).map_err(|_| WANTED.into());
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

impl Gate {
    /// Checks that all that is shown of a profile is within the limit.
    pub(crate) fn check(self, profile: &Profile, measure: Measure) -> Result<(), Failure> {
        self.doubt(&profile.doubts())?;
        let total = measure.total(profile);
        let number = measure.quantity(total.value);
        let allowed = self.limit.allows(0.0);
        let ruling = self.limit.of_number(&total, unseen(profile));
        if ruling != Ruling::Exceeded {
            let memory = profile.doubt_of_memory(measure, allowed);
            self.doubt(memory.as_slice())?;
        }
        let (error, allowed) = (
            with_error(measure, total.error()),
            measure.quantity(allowed),
        );
        self.rule(ruling, &format!("{measure} is {number}{error}"), &allowed)
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
        let grew = measure.quantity(total.difference());
        let allowed = measure.quantity(self.limit.allows(total.before));
        self.rule(
            self.limit.of_growth(total, unseen),
            &format!("{measure} grew by {grew}{}", with_error(measure, error)),
            &format!("{allowed}{of_before}"),
        )
    }

    fn doubt(self, doubts: &[String]) -> Result<(), Failure> {
        match doubts {
            [] => Ok(()),
            doubts => self.cannot_judge(&doubts.join("; ")),
        }
    }

    fn rule(self, ruling: Ruling, what: &str, limit: &str) -> Result<(), Failure> {
        match ruling {
            Ruling::Within => Ok(()),
            Ruling::Exceeded => Err(Failure::Exceeded(format!(
                "{what}, above the limit of {limit}"
            ))),
            Ruling::Unsure => self.cannot_judge(&format!(
                "{what}, and the limit of {limit} is nearer than {REAL} standard errors: a smaller sampling interval tells"
            )),
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
