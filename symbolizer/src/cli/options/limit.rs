//! Limit option: `--fail-above`, and the message when the limit is exceeded.

use heapprof_symbolizer::{Amount, Change, Limit, Measure, REAL, Ruling};

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

/// Returns true if all that is shown is within its limit.
pub(crate) fn check(limit: Limit, measure: Measure, total: &Amount) -> Result<(), Failure> {
    let number = measure.quantity(total.value);
    let error = total.variance.max(0.0).sqrt();
    rule(
        limit.of_number(total),
        &format!(
            "{measure} is {number}{}, above the limit of {}",
            with_error(measure, error),
            measure.quantity(limit.allows(0.0))
        ),
    )
}

/// Returns true if all that it grew by is.
pub(crate) fn check_growth(limit: Limit, measure: Measure, total: &Change) -> Result<(), Failure> {
    let before = measure.quantity(total.before);
    let of_before = match limit {
        Limit::Amount(_) => String::new(),
        Limit::Share(share) => format!(", {} % of {before}", share * 100.0),
    };
    let error = match total.is_unsure {
        true => 0.0,
        false => total.error(),
    };
    rule(
        limit.of_growth(total),
        &format!(
            "{measure} grew by {}{}, above the limit of {}{of_before}",
            measure.quantity(total.difference()),
            with_error(measure, error),
            measure.quantity(limit.allows(total.before))
        ),
    )
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

fn rule(ruling: Ruling, words: &str) -> Result<(), Failure> {
    match ruling {
        Ruling::Within => Ok(()),
        Ruling::Exceeded => Err(Failure::Exceeded(words.into())),
        Ruling::Noise => {
            say::note(&format_args!(
                "note: {words}, but by less than {REAL} standard errors: noise may have made that; a smaller sampling interval tells"
            ));
            Ok(())
        }
    }
}
