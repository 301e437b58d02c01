//! `heapprof explain`: the verdicts on sites whose memory does something known.

use std::collections::{BTreeMap, VecDeque};

use heapprof_format::{MemoryField, MemoryReading, Record};
use serde_json::Value;

use crate::common::history::{History, MS, S, json, ok};
use crate::json_documents::are_documented_but;

pub(crate) const KIB: u64 = 1024;

/// Writes a log of a minute. Every 20 ms, `step` adds what happens.
fn log_of(folder: &tempfile::TempDir, step: &mut dyn FnMut(&mut History, u64)) -> String {
    log_at(1, folder, step)
}

/// The same at that interval.
pub(crate) fn log_at(
    interval: u64,
    folder: &tempfile::TempDir,
    step: &mut dyn FnMut(&mut History, u64),
) -> String {
    let mut history = History::new(interval);
    for tick in 0..3000 {
        history.at(tick * 20 * MS + 1);
        step(&mut history, tick);
        if tick % 500 == 499 {
            history.flush();
        }
    }
    history.at(60 * S);
    let path = folder.path().join("server.heaplog");
    std::fs::write(&path, history.end().0).expect("a file");
    path.display().to_string()
}

/// The verdicts by the stack of the site.
pub(crate) fn verdicts(log: &str) -> (BTreeMap<u64, String>, Value) {
    verdicts_with(&[log])
}

fn verdicts_with(args: &[&str]) -> (BTreeMap<u64, String>, Value) {
    let document = json(&[&["explain", "--json"], args].concat());
    let findings = document["findings"].as_array().expect("findings").iter();
    let of = findings.map(|finding| {
        let function = finding["function"].as_str().expect("a name");
        let digits = function.trim_matches(['[', ']']).trim_start_matches("0x");
        let address = u64::from_str_radix(digits, 16).expect("an address");
        let kind = finding["kind"].as_str().expect("a kind").to_owned();
        ((address - 0x1000) / 16, kind)
    });
    (of.collect(), document)
}

pub(crate) fn expected(kinds: &[(u64, &str)]) -> BTreeMap<u64, String> {
    let kinds = kinds.iter();
    kinds
        .map(|&(stack, kind)| (stack, kind.to_owned()))
        .collect()
}

/// A leak, a cache, a backlog and a table, in a process with a limit.
fn growing(folder: &tempfile::TempDir) -> String {
    let (mut cache, mut queue) = (VecDeque::new(), VecDeque::new());
    log_of(folder, &mut |history, tick| {
        history.alloc(0, 4 * KIB, 0); // never freed
        cache.push_back(history.alloc(1, 16 * KIB, 0));
        if cache.len() > 300 {
            history.free(cache.pop_front().unwrap());
        }
        // More comes than goes.
        for _ in 0..3 {
            queue.push_back(history.alloc(2, 2 * KIB, 0));
        }
        for _ in 0..2 {
            history.free(queue.pop_front().unwrap());
        }
        if tick < 100 {
            history.alloc(3, 40 * KIB, 0);
        }
        if tick == 2999 {
            let mut reading = MemoryReading::at(history.now);
            reading.set(MemoryField::CgroupHighEvents, 0); // of version 2
            reading.set(MemoryField::CgroupMax, 100 << 20);
            reading.set(MemoryField::CgroupUsed, 40 << 20);
            history.encoder.record(&Record::Memory(Box::new(reading)));
        }
    })
}

#[test]
fn sites_that_grow_are_told_from_sites_that_are_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = growing(&folder);
    let (kinds, document) = verdicts(&log);
    let all = [(0, "leak"), (1, "cache"), (2, "backlog"), (3, "one-time")];
    assert_eq!(kinds, expected(&all));
    // Those to look into come first, the larger one before.
    let order: Vec<&str> = document["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .map(|it| it["kind"].as_str().expect("a kind"))
        .collect();
    assert_eq!(order, ["leak", "backlog", "cache", "one-time"]);
    let leak = &document["findings"][0];
    // 4 KiB in 20 ms; nothing of it was freed.
    let rate = leak["growth_bytes_per_second"].as_f64().expect("a number");
    assert!((rate / (50.0 * 4096.0) - 1.0).abs() < 0.05, "{rate}");
    assert_eq!(
        (
            &leak["freed_of_old"],
            &leak["growth_error_bytes_per_second"]
        ),
        (&0.0.into(), &0.0.into())
    );
    assert_eq!(document["nothing_is_wrong"], false);

    let text = ok(&["explain", &log, "--width", "60"]);
    // Commands are whole, to be copied.
    let mut lines = text.lines().filter(|line| !line.contains("$ heapprof"));
    let widest = lines
        .by_ref()
        .skip(4)
        .map(|line| line.chars().count())
        .max();
    assert!(widest <= Some(60), "{text}");
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("\n 1. leak: "), "{text}");
    assert!(
        text.contains("grows by 199.9 KiB/s; 11.7 MiB in use"),
        "{text}"
    );
    assert!(text.contains("\nBesides:\n 3. cache: "), "{text}");
    // 60 MiB at 300 KiB a second.
    let limit = "the cgroup's memory.max is 100.0 MiB, of which 40.0 MiB are used: reached in 3 min at this rate";
    assert!(text.contains(limit), "{text}");
    // The command that it names shows more.
    let command = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("$ heapprof "));
    let command = command.expect("a command").replace('\'', "");
    let words: Vec<&str> = command.split(' ').collect();
    assert!(ok(&words).contains("growth"), "{command}");
}

/// A table, beside mappings that may grow by 4 MiB a second, in a process with a limit.
fn mapping(folder: &tempfile::TempDir, grows: bool) -> String {
    log_of(folder, &mut |history, tick| {
        if tick < 100 {
            history.alloc(3, 40 * KIB, 0);
        }
        if tick % 50 == 0 {
            let second = if grows { tick / 50 } else { 60 };
            let mut reading = MemoryReading::at(history.now);
            reading.set(MemoryField::Resident, (20 + 4 * second) << 20);
            reading.set(MemoryField::HeapActive, 10 << 20);
            reading.set(MemoryField::Mapped, second << 22);
            reading.set(MemoryField::MappedUnrecorded, 1 << 20);
            reading.set(MemoryField::Virtual, (100 + 4 * second) << 20);
            reading.set(MemoryField::AddressSpaceMax, 500 << 20);
            history.encoder.record(&Record::Memory(Box::new(reading)));
        }
    })
}

#[test]
fn mappings_that_grow_are_told_and_count_for_the_limit() {
    let folder = tempfile::tempdir().expect("a folder");
    let level = mapping(&folder, false);
    let (_, document) = verdicts(&level);
    assert_eq!(document["mappings"], Value::Null);
    assert_eq!(document["nothing_is_wrong"], true);
    let growing = mapping(&folder, true);
    let (kinds, document) = verdicts(&growing);
    assert_eq!(kinds, expected(&[(3, "one-time")]));
    assert_eq!(document["nothing_is_wrong"], false);
    let rate = document["mappings"]["growth_bytes_per_second"].as_f64();
    let rate = rate.expect("a number") / (4 << 20) as f64;
    assert!((rate - 1.0).abs() < 0.01, "{rate}");
    // (500 - 336) / 4 s.
    let seconds = document["limit"]["seconds"].as_f64().expect("a time");
    assert!((seconds - 41.0).abs() < 1.0, "{seconds}");
    let text = ok(&["explain", &growing, "--width", "200"]);
    let grown =
        " 1. mappings grow: [mappings]\n    memory that malloc never saw grows by 4.0 MiB/s";
    assert!(text.contains(grown), "{text}");
    assert!(text.contains("--by mapping\n"), "{text}");
    assert!(!text.contains("Nothing is wrong"), "{text}");
}

/// A burst, a batch job, an array that grows, and churn.
fn changing(folder: &tempfile::TempDir) -> String {
    let (mut burst, mut batch) = (Vec::new(), Vec::new());
    let mut array = None;
    log_of(folder, &mut |history, tick| {
        match tick {
            1500 => burst.extend((0..200).map(|_| history.alloc(0, 256 * KIB, 0))),
            1600 => burst.drain(..).for_each(|block| history.free(block)),
            _ => {}
        }
        match tick % 500 {
            0 => batch.extend((0..100).map(|_| history.alloc(1, 64 * KIB, 0))),
            200 => batch.drain(..).for_each(|block| history.free(block)),
            _ => {}
        }
        if let Some(block) = array.take() {
            history.free(block);
        }
        array = Some(history.alloc(2, (tick + 1) * 4 * KIB, 0));
        // Freed at once.
        for _ in 0..40 {
            let block = history.alloc(3, 800 * KIB, 0);
            history.free(block);
        }
    })
}

#[test]
fn what_comes_and_goes_is_told_by_its_shape() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = changing(&folder);
    let (kinds, document) = verdicts(&log);
    let all = [(0, "burst"), (1, "periodic"), (2, "growing block")];
    assert_eq!(
        kinds
            .iter()
            .filter(|(stack, _)| **stack != 3)
            .map(|(a, b)| (*a, b.clone()))
            .collect::<BTreeMap<_, _>>(),
        expected(&all)
    );
    let periodic = document["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .find(|it| it["kind"] == "periodic")
        .expect("it is there");
    assert_eq!(periodic["rises"], 6);
    let churn = document["churn"].as_array().expect("churn");
    assert_eq!(churn.len(), 1, "{churn:?}");
    assert!(churn[0]["share"].as_f64().expect("a number") > 0.5);
    assert_eq!(churn[0]["temporary_bytes"], churn[0]["allocated_bytes"]);
}

/// A table that doubles, each time when it is full: a half of the time has a third of the growth.
///
/// ```text
///   bytes │           ┌────   quarters of the time, and the least of each:
///         │     ┌─────┘         2nd       3rd       4th
///         │__┌──┘               1 MiB     2 MiB     4 MiB
/// ```
#[test]
fn the_rate_of_a_block_that_grows_has_an_interval() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut table = None;
    let sizes = BTreeMap::from([(0, 512), (700, 1024), (1450, 2048), (2200, 4096)]);
    let log = log_of(&folder, &mut |history, tick| {
        if let Some(kib) = sizes.get(&tick) {
            if let Some(table) = table.take() {
                history.free(table);
            }
            table = Some(history.alloc(0, kib * KIB, 0));
        }
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "growing block")]));
    let finding = &document["findings"][0];
    let number = |key: &str| finding[key].as_f64().expect("a number");
    let growth = number("growth_bytes_per_second");
    // 3 MiB in 30 s. One half has 1 MiB, the other 2.
    assert!((growth / (102.4 * 1024.0) - 1.0).abs() < 0.05, "{growth}");
    let error = number("growth_error_bytes_per_second");
    assert!((error / growth - 1.0 / 3.0).abs() < 0.01, "{error}");
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("/s ± "), "{text}");
}

/// Churn that costs the program no time to speak of is no finding.
#[test]
fn a_little_churn_is_none() {
    let folder = tempfile::tempdir().expect("a folder");
    for (blocks, findings) in [(1000, 0), (20_000, 1)] {
        let mut log = crate::common::LogBuilder::new(1);
        let stack = log.stack(&[0x7777_0000_3010, 0x7777_0000_1010]);
        for _ in 0..blocks {
            let block = log.alloc(stack, 100);
            log.free(block);
            log.wait(MS);
        }
        let file = crate::common::write(folder.path(), "churn.heaplog", &log.end());
        let document = json(&["explain", "--json", &file.display().to_string()]);
        let churn = document["churn"].as_array().expect("churn");
        assert_eq!(churn.len(), findings, "{churn:?}");
    }
}

/// Two sites with churn: `grow` calls realloc, and `copy` malloc. A perf map has their names.
#[test]
fn churn_by_realloc_says_so() {
    const MAP: &str = "777700001000 100 grow\n777700002000 100 copy\n777700003000 100 realloc\n\
                       777700004000 100 malloc\n";
    let folder = tempfile::tempdir().expect("a folder");
    let map = crate::common::write(folder.path(), "names.map", MAP.as_bytes());
    for interval in [1, 64 * KIB] {
        let mut log = crate::common::LogBuilder::new(interval);
        let [by_realloc, by_malloc] = [
            [0x7777_0000_3010, 0x7777_0000_1010],
            [0x7777_0000_4010, 0x7777_0000_2010],
        ]
        .map(|frames| log.stack(&frames));
        for _ in 0..1000 {
            for stack in [by_realloc, by_malloc] {
                let block = log.alloc(stack, 100_000);
                log.wait(MS);
                log.free(block);
            }
            log.wait(18 * MS);
        }
        let file = crate::common::write(folder.path(), "churn.heaplog", &log.end());
        let file = file.display().to_string();
        let of_map = ["--perf-map", map.to_str().expect("UTF-8"), &file];
        let document = json(&[&["explain", "--json"][..], &of_map].concat());
        let churn = document["churn"].as_array().expect("churn");
        let of = |name: &str| {
            churn
                .iter()
                .find(|it| it["function"] == name)
                .expect("churn")
        };
        let number = |name: &str, key: &str| of(name)[key].as_f64().expect("a number");
        let all = number("grow", "allocated_bytes") / 100_000.0;
        assert!((number("grow", "reallocs") / all - 1.0).abs() < 0.01);
        assert_eq!(number("grow", "reallocs_error") > 0.0, interval > 1);
        assert_eq!(number("copy", "reallocs"), 0.0);
        let text = ok(&[&["explain", "--width", "200"][..], &of_map].concat());
        let lines: Vec<&str> = text.lines().collect();
        let evidence = |name: &str| {
            let head = lines
                .iter()
                .position(|it| it.contains(&format!("churn: {name}")));
            lines[head.expect("a finding") + 1]
        };
        let words = match interval {
            1 => "freed within 10 ms; realloc returned 1,000 of these blocks",
            _ => " ± ",
        };
        assert!(evidence("grow").contains(words), "{text}");
        assert!(evidence("grow").contains("of these blocks"), "{text}");
        assert!(evidence("copy").ends_with("freed within 10 ms"), "{text}");
    }
}

/// A program that frees its memory at its end is judged by what it did before.
#[test]
fn the_end_of_a_program_is_no_part_of_its_conduct() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    let log = log_of(&folder, &mut |history, tick| {
        all.push(history.alloc(0, 4 * KIB, 0));
        if tick == 2999 {
            all.drain(..).for_each(|block| history.free(block));
        }
    });
    assert_eq!(verdicts(&log).0, expected(&[(0, "leak")]));
    let text = ok(&["explain", &log]);
    assert!(text.contains("the program then frees its memory"), "{text}");
    // Without its last record, the log does not say that the program ended.
    let bytes = std::fs::read(&log).expect("a log");
    std::fs::write(&log, &bytes[..bytes.len() - 1]).expect("a file");
    let text = ok(&["explain", &log]);
    assert!(
        !text.contains("the program then frees its memory"),
        "{text}"
    );
}

#[test]
fn a_program_without_trouble_is_well_and_a_short_run_says_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut live = VecDeque::new();
    let log = log_of(&folder, &mut |history, tick| {
        // Between 40 and 60 blocks, of varying sizes.
        live.push_back(history.alloc((tick % 4) as u32, (1 + tick * 7 % 31) * KIB, 0));
        while live.len() > 50 + (tick * 13 % 10) as usize {
            history.free(live.pop_front().unwrap());
        }
    });
    let (kinds, document) = verdicts(&log);
    let is_well = |kind: &String| kind == "cache" || kind == "varies";
    assert!(kinds.values().all(is_well), "{kinds:?}");
    assert_eq!(document["nothing_is_wrong"], true);
    assert!(ok(&["explain", &log]).contains("Nothing is wrong"));

    let mut history = History::new(1);
    history.at(1).alloc(0, KIB, 0);
    history.at(5 * MS);
    let path = folder.path().join("short.heaplog");
    std::fs::write(&path, history.end().0).expect("a file");
    let path = path.display().to_string();
    let document = json(&["explain", "--json", &path]);
    assert_eq!(
        (&document["too_short"], &document["nothing_is_wrong"]),
        (&true.into(), &false.into())
    );
    assert!(ok(&["explain", &path]).contains("too short"));
}

/// A heap of some sixty samples, which a leak of a tenth of it could hide in.
#[test]
fn a_few_samples_do_not_show_that_nothing_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |number: u64| {
        log_at(64 * KIB, &folder, &mut |history, tick| {
            if tick < number {
                history.alloc((tick % 4) as u32, KIB, 0);
            }
        })
    };
    let few = of(60);
    let document = verdicts(&few).1;
    assert_eq!(
        (&document["few_samples"], &document["nothing_is_wrong"]),
        (&true.into(), &false.into())
    );
    let text = ok(&["explain", &few, "--width", "200"]);
    assert!(text.contains("as far as the few samples show"), "{text}");
    let document = verdicts(&of(150)).1;
    assert_eq!(
        (&document["few_samples"], &document["nothing_is_wrong"]),
        (&false.into(), &true.into())
    );
}

#[test]
fn every_key_is_documented() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = changing(&folder);
    let of_changing = verdicts(&log).1;
    let log = growing(&folder);
    let of_growing = verdicts(&log).1;
    let bytes = std::fs::read(&log).expect("the log");
    std::fs::write(&log, &bytes[..bytes.len() - 10]).expect("a file");
    let of_cut = json(&["explain", "--json", &log]);
    assert_eq!(of_cut["complete"], false);
    // The sites of these logs have no source.
    let excused = [
        "findings[].file",
        "findings[].line",
        "churn[].file",
        "churn[].line",
        "mappings.function",
        "mappings.file",
        "mappings.line",
        "mappings.module",
    ];
    let of_rotated = verdicts(&crate::explain_coarse::with_leak(&folder)).1;
    let of_stopped = verdicts(&stopped(&folder, &[(20, 48)])).1;
    let of_mappings = verdicts(&mapping(&folder, true)).1;
    let of_many_sites = verdicts(&crate::explain_conduct::growth_of_many_sites(&folder)).1;
    let of_two_rates = crate::forecast_coarse::with_two_rates();
    let documents = [
        of_changing,
        of_growing,
        of_cut,
        of_rotated,
        of_stopped,
        of_mappings,
        of_many_sites,
        of_two_rates,
    ];
    are_documented_but("heapprof explain --json", &documents, &excused);
}

/// Both sites have 12 of 60 seconds; one of them then has the program's most.
fn bursts(folder: &tempfile::TempDir) -> String {
    let (mut early, mut late, mut base) = (Vec::new(), Vec::new(), VecDeque::new());
    log_of(folder, &mut |history, tick| {
        match tick {
            300 => early.extend((0..200).map(|_| history.alloc(0, 64 * KIB, 0))),
            900 => early.drain(..).for_each(|block| history.free(block)),
            1700 => late.extend((0..300).map(|_| history.alloc(1, 64 * KIB, 0))),
            2300 => late.drain(..).for_each(|block| history.free(block)),
            _ => {}
        }
        // A few blocks are there all the time.
        for stack in [0, 1] {
            base.push_back(history.alloc(stack, 16 * KIB, 0));
            if base.len() > 80 {
                history.free(base.pop_front().unwrap());
            }
        }
    })
}

#[test]
fn the_site_that_made_the_peak_is_a_burst_though_it_takes_a_fifth_of_the_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = bursts(&folder);
    let (kinds, document) = verdicts(&log);
    assert_eq!(
        kinds.get(&1).map(String::as_str),
        Some("burst"),
        "{document}"
    );
    assert_ne!(
        kinds.get(&0).map(String::as_str),
        Some("burst"),
        "{document}"
    );
    let text = ok(&["explain", &log, "--width", "200"]);
    assert!(text.contains("half of the time no more than"), "{text}");
}

/// A site that once had half of the program's most has a line, though it has nothing since.
#[test]
fn a_spike_beside_the_highest_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut spike = Vec::new();
    let log = log_of(&folder, &mut |history, tick| match tick {
        300 => spike.extend((0..200).map(|_| history.alloc(0, 64 * KIB, 0))),
        1700 => spike.extend((0..300).map(|_| history.alloc(1, 64 * KIB, 0))),
        400 | 1800 => spike.drain(..).for_each(|block| history.free(block)),
        _ => {}
    });
    let (kinds, document) = verdicts(&log);
    let expected = [(0, "varies".to_owned()), (1, "burst".to_owned())];
    assert_eq!(kinds, expected.into(), "{document}");
}

/// A command that names a moment leads to the highest of its site, not of the program.
#[test]
fn the_command_of_a_site_that_rises_and_falls_leads_to_its_highest() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut batch, mut other) = (Vec::new(), Vec::new());
    let log = log_of(&folder, &mut |history, tick| {
        match tick % 500 {
            // The third batch is the largest.
            0 => {
                let most = if tick == 1000 { 130 } else { 100 };
                batch.extend((0..most).map(|_| history.alloc(0, 64 * KIB, 0)));
            }
            200 => batch.drain(..).for_each(|block| history.free(block)),
            _ => {}
        }
        match tick {
            2000 => other.extend((0..100).map(|_| history.alloc(1, 256 * KIB, 0))),
            2100 => other.drain(..).for_each(|block| history.free(block)),
            _ => {}
        }
    });
    let (_, document) = verdicts(&log);
    let findings = document["findings"].as_array().expect("findings");
    let batch = findings.iter().find(|it| it["kind"] == "periodic");
    assert_eq!(
        batch.expect("it is there")["highest_ns"],
        20 * S,
        "{document}"
    );
    let text = ok(&["explain", &log, "--width", "200"]);
    let (_, of_periodic) = text.split_once("periodic: ").expect("it is there");
    let mut lines = of_periodic.lines();
    let command = lines.find_map(|line| line.trim().strip_prefix("$ heapprof "));
    let command = command.expect("a command").replace('\'', "");
    let words: Vec<&str> = command.split_whitespace().collect();
    let tree = ok(&words);
    assert!(tree.contains("in use 130 objects"), "{command}: {tree}");
}

/// Behind a burst, a site has nothing in use: it is no cache.
#[test]
fn a_site_with_nothing_in_use_is_no_cache() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut peak, mut burst) = (Vec::new(), Vec::new());
    let log = log_of(&folder, &mut |history, tick| match tick {
        100 => peak.extend((0..200).map(|_| history.alloc(0, 256 * KIB, 0))),
        200 => peak.drain(..).for_each(|block| history.free(block)),
        1200 => burst.extend((0..200).map(|_| history.alloc(1, 64 * KIB, 0))),
        1700 => burst.drain(..).for_each(|block| history.free(block)),
        _ => {}
    });
    let (kinds, document) = verdicts_with(&["--at", "40s", &log]);
    assert_eq!(kinds, expected(&[(0, "burst")]), "{document}");
}

/// A leak, and a cache whose blocks are replaced within two seconds. Recording is stopped from the
/// 20th second to the 48th, and once more for three seconds, or from the 20th second to the end.
fn stopped(folder: &tempfile::TempDir, stops: &'static [(u64, u64)]) -> String {
    let mut cache = VecDeque::new();
    log_of(folder, &mut |history, tick| {
        for (at, interval) in stops.iter().flat_map(|&(from, to)| [(from, 0), (to, 1)]) {
            if tick == at * 50 {
                let time_ns = history.now;
                history.encoder.record(&Record::Regime {
                    time_ns,
                    interval,
                    by_budget: false,
                });
            }
        }
        let is_on = !stops
            .iter()
            .any(|(from, to)| (from * 50..to * 50).contains(&tick));
        if is_on {
            history.alloc(0, 4 * KIB, 0);
        }
        cache.push_back(is_on.then(|| history.alloc(1, 16 * KIB, 0)));
        if cache.len() > 100
            && let Some(block) = cache.pop_front().unwrap()
        {
            history.free(block);
        }
    })
}

#[test]
fn a_leak_is_found_in_the_time_that_was_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = stopped(&folder, &[(20, 48), (50, 53)]);
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "leak"), (1, "cache")]), "{document}");
    let rate = document["findings"][0]["growth_bytes_per_second"].as_f64();
    let rate = rate.expect("a number");
    assert!((rate / (50.0 * 4096.0) - 1.0).abs() < 0.1, "{rate}");
    let text = ok(&["explain", &log, "--width", "200"]);
    assert_eq!(
        text.matches("recording was stopped for 31.000 s").count(),
        1,
        "{text}"
    );
    assert!(
        text.contains("judged by the time in which recording was on"),
        "{text}"
    );
    // The cache is judged up to the first stop.
    let until = document["findings"][1]["judged_until_ns"].as_u64();
    assert!(
        until.is_some_and(|ns| ns.abs_diff(20 * S) < S),
        "{document}"
    );
    let until = "up to 20.0 s, when recording was stopped: 1.6 MiB on average in use, level; ";
    assert!(text.contains(until), "{text}");
    // The blocks that a cache loses in a stop are replaced behind it: it does not rise and fall.
    let log = stopped(&folder, &[(10, 14), (24, 28), (38, 42)]);
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "leak"), (1, "cache")]), "{document}");
    // The blocks that came in place of others are not known: the cache is no cache of 0 bytes.
    let log = stopped(&folder, &[(20, 61)]);
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "leak"), (1, "cache")]), "{document}");
    // Five seconds before the stop are too few.
    let log = stopped(&folder, &[(5, 20), (30, 61)]);
    let (kinds, document) = verdicts(&log);
    assert_eq!(
        kinds.get(&1),
        Some(&"cannot be judged".to_owned()),
        "{document}"
    );
    let text = ok(&["explain", &log, "--width", "200"]);
    let why = "2.9 MiB went while recording was stopped, and what replaced it is not known";
    assert!(text.contains(why), "{text}");
    assert_eq!(document["nothing_is_wrong"], false);
}

/// In the second quarter, most of a cache went while recording was stopped. It comes back into view
/// as its blocks are replaced: it does not grow.
#[test]
fn a_cache_that_comes_back_into_view_does_not_grow() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cache: VecDeque<Option<usize>> = VecDeque::new();
    let log = log_of(&folder, &mut |history, tick| {
        let is_on = !(750..1250).contains(&tick);
        if tick == 750 || tick == 1250 {
            let time_ns = history.now;
            let interval = u64::from(is_on);
            history.encoder.record(&Record::Regime {
                time_ns,
                interval,
                by_budget: false,
            });
        }
        if tick == 0 {
            cache.extend((0..2000).map(|_| Some(history.alloc(0, 4 * KIB, 0))));
        }
        // In the stop it is replaced fast, and slowly behind it.
        for _ in 0..if is_on { 1 } else { 4 } {
            cache.push_back(is_on.then(|| history.alloc(0, 4 * KIB, 0)));
            if let Some(block) = cache.pop_front().unwrap() {
                history.free(block);
            }
        }
    });
    let (kinds, document) = verdicts(&log);
    assert_eq!(kinds, expected(&[(0, "cache")]), "{document}");
}
