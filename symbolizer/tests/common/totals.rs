//! Readers of all our formats, as far as totals go: what each would say is the whole.

use std::io::Read;

use flate2::read::GzDecoder;
use heapprof_format::Dump;
use heapprof_symbolizer::export::otlp::proto::ProfilesData;
use heapprof_symbolizer::export::pprof::proto;
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::{Metric, Profile, Symbols};
use prost::Message;

pub(crate) fn export(
    format: Format,
    profile: &Profile,
    symbols: &Symbols,
    metric: Metric,
) -> Vec<u8> {
    let options = Options {
        metric: metric.into(),
        ..Options::default()
    };
    let mut out = Vec::new();
    format
        .write(profile, symbols, &options, &mut out)
        .expect("a Vec takes everything");
    out
}

pub(crate) fn text(format: Format, profile: &Profile, symbols: &Symbols, metric: Metric) -> String {
    String::from_utf8(export(format, profile, symbols, metric)).expect("UTF-8")
}

pub(crate) fn pprof(profile: &Profile, symbols: &Symbols) -> proto::Profile {
    let gzip = export(Format::Pprof, profile, symbols, Metric::InUseBytes);
    let mut bytes = Vec::new();
    GzDecoder::new(&gzip[..])
        .read_to_end(&mut bytes)
        .expect("gzip");
    proto::Profile::decode(&bytes[..]).expect("protobuf")
}

pub(crate) fn otlp(profile: &Profile, symbols: &Symbols, metric: Metric) -> ProfilesData {
    let bytes = export(Format::Otlp, profile, symbols, metric);
    ProfilesData::decode(&bytes[..]).expect("protobuf")
}

/// Returns the total of a metric as a reader of the format computes it. `None`: the format lacks
/// it.
pub(crate) fn total(
    format: Format,
    profile: &Profile,
    symbols: &Symbols,
    metric: Metric,
) -> Option<u64> {
    let index = Metric::ALL
        .iter()
        .position(|&m| m == metric)
        .expect("one of all");
    match format {
        Format::Gperftools | Format::Symbolized => {
            let dump = Dump::parse(&export(format, profile, symbols, metric)).expect("a dump");
            assert_eq!(dump.remarks, Vec::<String>::new());
            Some(
                dump.lines
                    .iter()
                    .map(|line| match metric {
                        Metric::InUseBytes => line.in_use_bytes,
                        Metric::InUseObjects => line.in_use_objects,
                        Metric::AllocatedBytes => line.allocated_bytes,
                        Metric::AllocatedObjects => line.allocated_objects,
                    })
                    .sum(),
            )
        }
        Format::Pprof => {
            let sum: i64 = pprof(profile, symbols)
                .sample
                .iter()
                .map(|sample| sample.value[index])
                .sum();
            Some(sum as u64)
        }
        Format::Folded => Some(
            text(format, profile, symbols, metric)
                .lines()
                .filter(|line| !line.starts_with('#'))
                .map(|line| {
                    line.rsplit_once(' ')
                        .expect("a number")
                        .1
                        .parse::<u64>()
                        .expect("a number")
                })
                .sum(),
        ),
        Format::Flamegraph => {
            // The frame that spans all: `<title>all (8,390,736 bytes, 100%)</title>`
            let svg = text(format, profile, symbols, metric);
            let all = svg.split("<title>all (").nth(1).expect("a root frame");
            let number = all.split(' ').next().expect("a number").replace(',', "");
            Some(number.parse().expect("a number"))
        }
        Format::Json => {
            let json: serde_json::Value =
                serde_json::from_str(&text(format, profile, symbols, metric)).expect("JSON");
            let rows = json["rows"].as_array().expect("rows");
            let sum = rows
                .iter()
                .map(|row| row[metric.name()].as_u64().expect("a number"))
                .sum();
            assert_eq!(json["totals"][metric.name()].as_u64(), Some(sum));
            Some(sum)
        }
        Format::Csv => {
            let csv = text(format, profile, symbols, metric);
            let mut lines = csv.lines().map(cells);
            let column = lines
                .next()
                .expect("a header")
                .iter()
                .position(|name| name == metric.name())
                .expect("a column");
            Some(
                lines
                    .map(|cells| cells[column].parse::<u64>().expect("a number"))
                    .sum(),
            )
        }
        Format::Speedscope => {
            let json: serde_json::Value =
                serde_json::from_str(&text(format, profile, symbols, metric)).expect("JSON");
            assert_eq!(json["profiles"][0]["name"], metric.name());
            let weights = json["profiles"][0]["weights"].as_array().expect("weights");
            let sum = weights
                .iter()
                .map(|weight| weight.as_u64().expect("a number"))
                .sum();
            assert_eq!(json["profiles"][0]["endValue"].as_u64(), Some(sum));
            Some(sum)
        }
        Format::Jemalloc => {
            let text = text(format, profile, symbols, metric);
            Some(jemalloc_total(&text, "t*", metric).round() as u64)
        }
        Format::Dhat => {
            let json: serde_json::Value =
                serde_json::from_str(&text(format, profile, symbols, metric)).expect("JSON");
            let key = match metric {
                Metric::AllocatedBytes => "tb",
                Metric::AllocatedObjects => "tbk",
                Metric::InUseBytes => "eb",
                Metric::InUseObjects => "ebk",
            };
            let points = json["pps"].as_array().expect("program points");
            let sum = points.iter().map(|p| p[key].as_u64().expect("a number"));
            Some(sum.sum())
        }
        Format::Callgrind => {
            let text = text(format, profile, symbols, metric);
            let totals = text.lines().last().and_then(|l| l.strip_prefix("totals: "));
            let (bytes, objects) = totals.and_then(|l| l.split_once(' ')).expect("two totals");
            let own = callgrind_own(&text);
            assert_eq!(
                (own[0], own[1]),
                (bytes.parse().unwrap(), objects.parse().unwrap())
            );
            Some(own[usize::from(!metric.is_bytes())])
        }
        Format::Otlp => {
            let data = otlp(profile, symbols, metric);
            let profiles = &data.resource_profiles[0].scope_profiles[0].profiles;
            let values = profiles[index]
                .samples
                .iter()
                .map(|sample| sample.values[0]);
            Some(values.sum::<i64>() as u64)
        }
        Format::Firefox => {
            let (came, went) = firefox_bytes(&text(format, profile, symbols, metric));
            match metric {
                Metric::AllocatedBytes => Some(came),
                Metric::InUseBytes => Some(came - went),
                _ => None,
            }
        }
    }
}

/// Returns a thread's total as `jeprof` computes it: each line unsampled by its average size.
pub(crate) fn jemalloc_total(text: &str, thread: &str, metric: Metric) -> f64 {
    let mut lines = text.lines();
    let first = lines.next().expect("a first line");
    let interval = first.strip_prefix("heap_v2/").expect("heap_v2");
    let interval: f64 = interval.parse().expect("an interval");
    let mut sum = 0.0;
    // The first of each is the sum, which no reader uses.
    for line in lines.skip_while(|line| !line.starts_with('@')) {
        let Some(rest) = line.strip_prefix(&format!("  {thread}: ")) else {
            continue;
        };
        let numbers: Vec<f64> = rest
            .split([':', ' ', '[', ']'])
            .filter(|word| !word.is_empty())
            .map(|word| word.parse().expect("a number"))
            .collect();
        let [a, b, c, d] = numbers[..] else {
            panic!("four numbers in {line}")
        };
        let (objects, bytes) = if metric.is_in_use() { (a, b) } else { (c, d) };
        if objects > 0.0 {
            let factor = 1.0 / (1.0 - (-(bytes / objects) / interval).exp());
            sum += factor * if metric.is_bytes() { bytes } else { objects };
        }
    }
    sum
}

/// Sums of the own costs: lines of three numbers that do not follow `calls=`.
fn callgrind_own(text: &str) -> [u64; 2] {
    let (mut sums, mut after_calls) = ([0; 2], false);
    for line in text.lines() {
        let words: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        if let (Some(&[_, bytes, objects]), false) = (words.as_deref(), after_calls) {
            sums[0] += bytes;
            sums[1] += objects;
        }
        after_calls = line.starts_with("calls=");
    }
    sums
}

/// Bytes that came and that went again; each free is of an allocation, with its size.
pub(crate) fn firefox_bytes(text: &str) -> (u64, u64) {
    let json: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let allocations = &json["threads"][0]["nativeAllocations"];
    let numbers = |key: &str| -> Vec<i64> {
        let list = allocations[key].as_array().cloned().unwrap_or_default();
        list.iter().map(|n| n.as_i64().expect("a number")).collect()
    };
    let (mut came, mut went) = (0, 0);
    let mut live = std::collections::HashMap::new();
    for (address, weight) in numbers("memoryAddress").into_iter().zip(numbers("weight")) {
        if weight >= 0 {
            came += weight as u64;
            live.insert(address, weight);
        } else {
            assert_eq!(live.remove(&address), Some(-weight));
            went += weight.unsigned_abs();
        }
    }
    (came, went)
}

/// How far a reader's total may be off: nothing, but for the forms that cannot hold estimates
/// whole.
fn tolerance(format: Format, profile: &Profile, metric: Metric) -> f64 {
    // Nothing up to 2^50, whatever the sum's order.
    let in_doubles = (profile.numbers().get(metric) as f64 / (1u64 << 51) as f64).floor();
    match format {
        // Counts are whole samples; one line's rounding is at most half a sample of the interval's
        // bytes, and rows of one size have none.
        Format::Jemalloc => 0.001 * profile.numbers().get(metric) as f64,
        // Events are rounded one by one, rows as a whole; and both count in doubles.
        Format::Firefox => profile.rows.len() as f64 + in_doubles,
        Format::Flamegraph => in_doubles,
        _ => 0.0,
    }
}

pub(crate) fn agrees(format: Format, profile: &Profile, symbols: &Symbols, metric: Metric) {
    let expected = profile.numbers().get(metric);
    match total(format, profile, symbols, metric) {
        Some(found) => assert!(
            found.abs_diff(expected) as f64 <= tolerance(format, profile, metric),
            "{} {metric}: {found}, not {expected}",
            format.name()
        ),
        None => assert!(format == Format::Firefox && !metric.is_bytes()),
    }
}

/// The cells of a line of CSV, by RFC 4180; no cell of ours holds a newline.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                cell.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    assert!(!quoted, "an open quote in {line}");
    cells.push(cell);
    cells
}
