//! Taps: functions of an allocator that the user names.

/// The form of a value.
pub(crate) const SYNTAX: &str = "MODULE:KIND=FUNCTION,…";

/// Parses a value. The library reads the kinds.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let is_pair = |pair: &str| {
        let pair = pair.split_once('=');
        pair.is_some_and(|(kind, function)| !kind.is_empty() && !function.is_empty())
    };
    let parts = text.rsplit_once(':');
    let is_whole =
        |(module, functions): (&str, &str)| !module.is_empty() && functions.split(',').all(is_pair);
    match parts.is_some_and(is_whole) {
        true => Ok(text.to_owned()),
        false => Err("wanted is MODULE:malloc=FUNCTION,free=FUNCTION".into()),
    }
}

/// Returns the value of `HEAPPROF_TAP` for these values; `None`: there are none.
pub(crate) fn joined(taps: &[String]) -> Option<String> {
    (!taps.is_empty()).then(|| taps.join(";"))
}
