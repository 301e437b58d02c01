//! Confidence option: the value parser of `--confidence`.

use heapprof_symbolizer::Confidence;

pub(crate) fn parse(text: &str) -> Result<Confidence, String> {
    let number = text.trim_end_matches('%').trim().parse().ok();
    number
        .and_then(Confidence::of_percent)
        .ok_or_else(|| "a percentage between 0 and 100, such as 95".into())
}
