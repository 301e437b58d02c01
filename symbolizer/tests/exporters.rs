//! The same tests for every exporter: what goes in comes out, whatever the names, and it looks as
//! it did before.
//!
//! `UPDATE_GOLDEN=1 cargo test -p heapprof-symbolizer --test all exporters::` writes the golden
//! files anew; look at the difference before you commit it.

use std::path::PathBuf;

use crate::common::totals::{agrees, cells, export, jemalloc_total, otlp, pprof, text};
use crate::common::{LogBuilder, SERVER_TRUTH, named, server_profile, server_symbols};
use heapprof_format::{Alloc, Dump, Record, Start};
use heapprof_symbolizer::export::Format;
use heapprof_symbolizer::export::pprof::proto;
use heapprof_symbolizer::{
    Metric, Precision, Profile, ReadRequest, Symbols, View, WantedExtras, merged, profile_of_dump,
    profile_of_jemalloc, profile_of_log, profile_of_log_with, profile_of_view,
};

#[test]
fn totals_in_are_totals_out() {
    for interval in [1, 4096, 524_288] {
        let profile = server_profile(interval);
        let symbols = server_symbols(&profile);
        for format in Format::ALL {
            for metric in Metric::ALL {
                agrees(format, &profile, &symbols, metric);
            }
        }
    }
    assert_eq!(server_profile(1).numbers().in_use_bytes, SERVER_TRUTH[1]);
}

#[test]
fn a_profile_without_anything_is_written_too() {
    let profile = Profile::default();
    let symbols = Symbols::none(&profile);
    for format in Format::ALL {
        assert!(
            !export(format, &profile, &symbols, Metric::InUseBytes).is_empty()
                || format == Format::Folded,
            "{}",
            format.name()
        );
    }
}

#[test]
fn hostile_names_do_no_harm() {
    let long = "x".repeat(100_000);
    let names: [&str; 14] = [
        "a;b",
        "line\nbreak",
        "<script>alert(1)</script>",
        "operator--(int)",
        "---",
        "\"quoted\", 'twice'",
        "nul\0byte",
        "\u{1b}[2J\u{202e}",
        "=cmd()|'/c calc'!A1",
        "@ 0x123",
        "ends in a number 77",
        " ",
        "]]>&amp;",
        &long,
    ];
    let (profile, symbols) = named(&names);
    for format in Format::ALL {
        let name = format.name();
        for metric in Metric::ALL {
            agrees(format, &profile, &symbols, metric);
        }
        if format == Format::Pprof {
            // Names are length-delimited there; they come through as they are.
            let strings = pprof(&profile, &symbols).string_table;
            let is_there = |name: &&str| match name.len() {
                ..5000 => strings.iter().any(|s| s == name),
                _ => (strings.iter()).any(|s| s.starts_with("xxx") && s.ends_with("x…")),
            };
            assert!(names.iter().all(is_there));
            continue;
        }
        if format == Format::Otlp {
            let data = otlp(&profile, &symbols, Metric::InUseBytes);
            let strings = data.dictionary.expect("a dictionary").string_table;
            assert!(
                names[..13]
                    .iter()
                    .all(|name| strings.iter().any(|s| s == name))
            );
            continue;
        }
        let text = text(format, &profile, &symbols, Metric::InUseBytes);
        let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        assert!(!text.contains(is_control), "{name}");
        // JSON is for programs, and pprof's own names are not ours to change beyond their line.
        if !matches!(format, Format::Json | Format::Symbolized | Format::Dhat) {
            assert!(!text.contains('\u{202e}'), "{name}");
        }
        match format {
            Format::Folded => assert_eq!(text.lines().count(), 1, "{text}"),
            Format::Flamegraph => assert!(!text.contains("<script>alert")),
            Format::Csv => {
                assert!(text.lines().all(|line| cells(line).len() == 11), "{text}");
                assert!(
                    !text
                        .lines()
                        .any(|line| line.starts_with(['=', '@', '+', '-']))
                );
            }
            Format::Symbolized => {
                assert_eq!(text.lines().filter(|line| *line == "---").count(), 1);
                let symbols = Dump::parse(text.as_bytes())
                    .expect("a dump")
                    .symbols
                    .expect("symbols");
                assert!(
                    symbols.names.iter().all(|(_, names)| names.len() == 1),
                    "{:?}",
                    symbols.names
                );
            }
            _ => {}
        }
    }
}

/// The rules that Parca's server checks before it accepts a profile, and pprof's own `CheckValid`.
#[test]
fn pprof_passes_the_strictest_reader() {
    let profile = server_profile(4096);
    let message = pprof(&profile, &server_symbols(&profile));
    let string = |index: i64| message.string_table[index as usize].as_str();
    assert_eq!(string(0), "");
    let types: Vec<_> = message
        .sample_type
        .iter()
        .map(|t| (string(t.r#type), string(t.unit)))
        .collect();
    assert_eq!(
        types,
        [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes")
        ]
    );
    assert_eq!(string(message.default_sample_type), "inuse_space");
    let period = message.period_type.expect("a period");
    assert_eq!(
        (string(period.r#type), string(period.unit), message.period),
        ("space", "bytes", 4096)
    );

    assert!(
        message
            .mapping
            .iter()
            .zip(1..)
            .all(|(mapping, id)| mapping.id == id)
    );
    assert!(
        message
            .location
            .iter()
            .zip(1..)
            .all(|(location, id)| location.id == id)
    );
    assert!(
        message
            .function
            .iter()
            .zip(1..)
            .all(|(function, id)| function.id == id)
    );
    assert_eq!(string(message.mapping[0].filename), "/bin/server");
    assert_eq!(string(message.mapping[0].build_id), "ab00");
    for location in &message.location {
        assert!(location.mapping_id <= message.mapping.len() as u64);
        let mapping = &message.mapping[location.mapping_id as usize - 1];
        assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        assert!(
            location
                .line
                .iter()
                .all(|line| (1..=message.function.len() as u64).contains(&line.function_id))
        );
    }
    for sample in &message.sample {
        assert_eq!(sample.value.len(), 4);
        assert!(
            sample
                .location_id
                .iter()
                .all(|&id| (1..=message.location.len() as u64).contains(&id))
        );
        assert!(
            sample
                .label
                .iter()
                .all(|label| label.key != 0 && string(label.key) == "bytes")
        );
    }
    // All functions of the program have names, libc's has none: pprof may look for the latter.
    assert!(message.mapping[0].has_functions && message.mapping[0].has_line_numbers);
    assert!(message.mapping[0].has_inline_frames);
    let libc = message
        .mapping
        .iter()
        .find(|m| string(m.filename) == "/lib/libc.so.6")
        .expect("libc");
    assert!(!libc.has_functions);
}

/// pprof drops a frame that matches, and all below it: what a program's own code runs below must
/// not match.
#[test]
fn pprof_drops_allocation_functions_and_no_constructor() {
    let profile = server_profile(4096);
    let message = pprof(&profile, &server_symbols(&profile));
    let drop = &message.string_table[message.drop_frames as usize];
    let drop = regex::Regex::new(&format!("^(?:{drop})$")).expect("a pattern");
    // Names as pprof cuts them, before the first bracket that is not `(anonymous`.
    for name in [
        "malloc",
        "operator new[]",
        "alloc::alloc::exchange_malloc",
        "std::allocator<char>::allocate",
        "std::__new_allocator<std::pair<int const, Item> >::allocate",
        "std::allocator_traits<std::allocator<Item> >::allocate",
        "__gnu_cxx::new_allocator<(anonymous namespace)::Item>::allocate",
    ] {
        assert!(drop.is_match(name), "{name}");
    }
    for name in [
        "allocate",
        // As debug information of gcc has them, whose constructors allocate.
        "std::allocator_traits<std::allocator<(anonymous namespace)::Item> >::construct<(anonymous namespace)::Item, int>",
        "std::__new_allocator<(anonymous namespace)::Item>::construct<(anonymous namespace)::Item, int>",
        "__gnu_cxx::new_allocator<(anonymous namespace)::Item>::construct<(anonymous namespace)::Item, int>",
        // The program's own allocator.
        "std::allocator_traits<Pool<Item> >::allocate",
        // A function template: its return type comes first.
        "std::allocator<Item> make_items<Item>",
    ] {
        assert!(!drop.is_match(name), "{name}");
    }
}

#[test]
fn pprof_addresses_are_those_of_the_calls_and_inlined_lines_come_first() {
    let profile = server_profile(1);
    let message = pprof(&profile, &server_symbols(&profile));
    let string = |index: i64| message.string_table[index as usize].as_str();
    let addresses = |sample: &proto::Sample| -> Vec<u64> {
        sample
            .location_id
            .iter()
            .map(|&id| message.location[id as usize - 1].address)
            .collect()
    };
    // The handler's stack: frame 0 as it is, the interrupted frame as it is, others minus one.
    assert!(
        message
            .sample
            .iter()
            .any(|sample| addresses(sample) == [0x9010, 0x1500, 0x1208, 0x1300, 0x5100])
    );
    let inlined = message
        .location
        .iter()
        .find(|l| l.address == 0x1110)
        .expect("the buffer's place");
    let functions: Vec<_> = inlined
        .line
        .iter()
        .map(|line| {
            (
                string(message.function[line.function_id as usize - 1].name),
                line.line,
            )
        })
        .collect();
    assert_eq!(functions, [("grow_buffer", 5), ("read_request", 12)]);
    // Sizes as tags.
    let sizes: Vec<i64> = message
        .sample
        .iter()
        .map(|sample| sample.label[0].num)
        .collect();
    assert_eq!(sizes, [8 << 20, 1000, 24, 64]);
}

#[test]
fn gperftools_frames_survive_readers_that_take_one_away() {
    let profile = server_profile(1);
    let dump = Dump::parse(&export(
        Format::Gperftools,
        &profile,
        &server_symbols(&profile),
        Metric::InUseBytes,
    ))
    .unwrap();
    let handler = dump
        .lines
        .iter()
        .find(|line| line.in_use_bytes == 128)
        .expect("the handler's line");
    // The interrupted address plus one: a reader takes one from all but the first.
    assert_eq!(handler.frames, [0x9010, 0x1501, 0x1209, 0x1301, 0x5101]);
}

#[test]
fn symbolized_dumps_name_each_address_and_the_one_before_it() {
    let profile = server_profile(1);
    let dump = Dump::parse(&export(
        Format::Symbolized,
        &profile,
        &server_symbols(&profile),
        Metric::InUseBytes,
    ))
    .unwrap();
    let symbols = dump.symbols.expect("symbols");
    let names = |address: u64| {
        let found = symbols.names.iter().find(|(a, _)| *a == address);
        found.map(|(_, names)| names.join("<"))
    };
    for address in [0x1110, 0x1111] {
        assert_eq!(names(address).as_deref(), Some("read_request<grow_buffer"));
    }
    assert_eq!(names(0x9010).as_deref(), Some("malloc"));
    assert_eq!(names(0x900f), None);
    assert_eq!(names(0x1401).as_deref(), Some("demo::init(int)"));
}

/// Two threads, one stack: 1000 bytes of the first, 3 × 1000 of the second, one of them freed.
fn threaded_log(interval: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(interval);
    log.module("/bin/server", 0x1000, 0x1000);
    log.thread(1, "worker");
    let stack = log.stack(&[0x1010, 0x1101]);
    log.alloc(stack, 1000);
    let first = log.alloc_by(1, stack, 1000);
    log.alloc_by(1, stack, 1000);
    log.alloc_by(1, stack, 1000);
    log.free(first);
    log.end()
}

#[test]
fn jemallocs_form_has_numbers_by_thread() {
    for interval in [1, 64, 524_288] {
        let log = threaded_log(interval);
        let profile = profile_of_log_with(&log, WantedExtras::ALL, |_| {}).expect("a good log");
        let text = text(
            Format::Jemalloc,
            &profile,
            &Symbols::none(&profile),
            Metric::InUseBytes,
        );
        let whole = |thread: &str, metric: Metric| jemalloc_total(&text, thread, metric);
        for metric in Metric::ALL {
            let (all, one, two) = (
                whole("t*", metric),
                whole("t0", metric),
                whole("t1", metric),
            );
            let share = if metric.is_in_use() { 3.0 } else { 4.0 };
            assert!(
                (one - all / share).abs() <= 0.01 * all,
                "{metric}: {one} of {all}"
            );
            assert!(
                (one + two - all).abs() <= 0.01 * all,
                "{metric}: {one} + {two}, not {all}"
            );
        }
        assert!(text.contains("  t1: 2: 2000 [3: 3000] worker\n"), "{text}");
    }
    // Without extras: the whole alone, and no line that claims a thread had nothing.
    let profile = profile_of_log(&threaded_log(1), |_| {}).expect("a good log");
    let symbols = Symbols::none(&profile);
    let text = text(Format::Jemalloc, &profile, &symbols, Metric::InUseBytes);
    assert!(
        !text.contains("t0:") && text.contains("t*: 3: 3000"),
        "{text}"
    );
}

/// A log at 512 KiB of which blocks of 64 KiB and more were all recorded: 30 of 100,000 bytes and
/// four of 100, one of each freed.
fn log_over(setting: Option<&str>) -> Vec<u8> {
    let mut log = LogBuilder::new(524_288);
    log.begins(Start {
        program: "/bin/server".into(),
        interval: 524_288,
        settings: setting
            .map(|value| ("HEAPPROF_RECORD_OVER".into(), value.into()))
            .into_iter()
            .collect(),
        ..Start::default()
    });
    log.thread(0, "server");
    let stack = log.stack(&[0x1010, 0x1101]);
    let mut id = 100;
    for (count, size, interval) in [(4, 100, 524_288), (30, 100_000, 1)] {
        for _ in 0..count {
            id += 1;
            log.record(|time_ns| {
                Record::Alloc(Alloc {
                    time_ns,
                    thread: 0,
                    id,
                    size,
                    slack: 0,
                    stack,
                    interval,
                })
            });
        }
        log.free(id);
    }
    log.end()
}

/// A reader of jemalloc's form multiplies by one interval only. Where samples were taken under
/// several (blocks recorded for their size, an interval that changed, several processes), and where
/// nobody knows, it is to take the numbers as they are.
#[test]
fn jemallocs_form_of_several_intervals_is_not_unsampled_again() {
    let with_extras =
        |log: &[u8]| profile_of_log_with(log, WantedExtras::ALL, |_| {}).expect("a log");
    let for_size = with_extras(&log_over(Some("65536")));
    let changed = with_extras(&log_over(None));
    let alone = with_extras(&threaded_log(524_288));
    let both = merged(vec![
        ("a".into(), for_size.clone()),
        ("b".into(), alone.clone()),
    ]);
    let dumped = text(
        Format::Gperftools,
        &for_size,
        &Symbols::none(&for_size),
        Metric::InUseBytes,
    );
    let dumped = profile_of_dump(Dump::parse(dumped.as_bytes()).expect("a dump"));
    for profile in [for_size, changed, both, dumped] {
        let symbols = Symbols::none(&profile);
        let text = text(Format::Jemalloc, &profile, &symbols, Metric::InUseBytes);
        assert!(text.starts_with("heap_v2/0\n"), "{text}");
        let again = profile_of_jemalloc(text.as_bytes()).expect("jemalloc's form");
        assert_eq!(again.numbers(), profile.numbers());
        assert_ne!(again.precision(), Precision::Exact);
        for metric in Metric::ALL {
            agrees(Format::Jemalloc, &profile, &symbols, metric);
        }
    }
    // One interval: counted samples, as before, of one process and of two.
    let twice = merged(vec![("a".into(), alone.clone()), ("b".into(), alone)]);
    let symbols = Symbols::none(&twice);
    let text = text(Format::Jemalloc, &twice, &symbols, Metric::InUseBytes);
    assert!(text.starts_with("heap_v2/524288\n"), "{text}");
}

#[test]
fn dhat_knows_the_peak_and_lifetimes_of_a_log_and_says_so_of_a_dump() {
    // init's 8 MiB, then requests: 3 × 1000, one freed; buffers: 10 × 24, freed; handler: 2 × 64.
    let profile = server_profile(1);
    let symbols = server_symbols(&profile);
    let json = |profile: &Profile| -> serde_json::Value {
        serde_json::from_str(&text(Format::Dhat, profile, &symbols, Metric::InUseBytes)).unwrap()
    };
    let exact = json(&profile);
    let sum = |json: &serde_json::Value, key: &str| -> u64 {
        let points = json["pps"].as_array().unwrap();
        points
            .iter()
            .map(|point| point[key].as_u64().unwrap())
            .sum()
    };
    let peak = profile.peak.expect("a log has a peak");
    assert_eq!(sum(&exact, "gb"), peak.bytes.round());
    assert_eq!(exact["tg"].as_u64(), Some(peak.time_ns / 1000));
    assert!(sum(&exact, "mb") >= sum(&exact, "gb") && sum(&exact, "tl") > 0);
    assert!(!exact["cmd"].as_str().unwrap().contains("not known"));

    let mut without = profile;
    without.extras = Default::default();
    let stated = json(&without);
    assert_eq!(sum(&stated, "gb"), sum(&stated, "eb"));
    assert!(stated["cmd"].as_str().unwrap().contains("not known"));
}

#[test]
fn dhat_ends_where_the_view_ends() {
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10]);
    let block = log.alloc(stack, 1000); // at 1 ms
    log.wait(99_000_000);
    log.free(block); // at 101 ms
    let request = ReadRequest {
        view: View::At("11ms".into()),
        extras: WantedExtras::ALL,
        ..ReadRequest::default()
    };
    let profile = profile_of_view(&log.end(), &request, |_| {}).unwrap();
    let symbols = Symbols::none(&profile);
    let json: serde_json::Value =
        serde_json::from_str(&text(Format::Dhat, &profile, &symbols, Metric::InUseBytes)).unwrap();
    assert_eq!(json["te"].as_u64(), Some(11_000));
    assert_eq!(json["pps"][0]["tl"].as_u64(), Some(10_000));
}

#[test]
fn everything_looks_as_it_did() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (case, interval) in [("exact", 1), ("sampled", 4096)] {
        let profile = server_profile(interval);
        let symbols = server_symbols(&profile);
        for format in Format::ALL {
            let bytes = match format {
                // Compressed bytes are the compressor's business: the message counts.
                Format::Pprof => format!("{:#?}\n", pprof(&profile, &symbols)).into_bytes(),
                Format::Otlp => {
                    let data = otlp(&profile, &symbols, Metric::InUseBytes);
                    let text = format!("{data:#?}\n");
                    // A release changes no golden file.
                    let version = format!("version: {:?}", env!("CARGO_PKG_VERSION"));
                    text.replace(&version, "version: …").into_bytes()
                }
                _ => export(format, &profile, &symbols, Metric::InUseBytes),
            };
            let extension = match format {
                Format::Gperftools | Format::Symbolized => "heap",
                Format::Pprof | Format::Otlp | Format::Folded | Format::Jemalloc => "txt",
                Format::Flamegraph => "svg",
                Format::Json | Format::Speedscope | Format::Dhat | Format::Firefox => "json",
                Format::Callgrind => "out",
                Format::Csv => "csv",
            };
            let path = folder
                .join(format.name())
                .join(format!("{case}.{extension}"));
            if update {
                std::fs::create_dir_all(path.parent().expect("a folder"))
                    .expect("a folder can be made");
                std::fs::write(&path, &bytes).expect("a golden file can be written");
            }
            let golden = std::fs::read(&path).unwrap_or_default();
            assert!(
                golden == bytes,
                "{} differs; UPDATE_GOLDEN=1 writes it anew, if that is right. Now:\n{}",
                path.display(),
                String::from_utf8_lossy(&bytes)
            );
        }
    }
}
