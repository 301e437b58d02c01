//! The coarse history of a log that rotates: what was in use at moments whose segments are gone is
//! what the program knows of those moments.

use std::fs;
use std::path::Path;

use heapprof_format::{CoarseMoment, Reader, Record};
use heapprof_symbolizer::{Ending, Input, Moment, Profile, ReadRequest, View, profile_of_view};
use heapprof_tests::{Finished, Json, Run};

const BOUND: u64 = 64 << 10;
/// Bytes of the fixture's cache, of a block of its churn, and of its spike.
const CACHE: u64 = 100 * 500;
const CHURNED: u64 = 48;
const SPIKE: u64 = 5 << 20;
/// The clocks of the program and the log may be apart by so much.
const SLACK_NS: u64 = 200_000;

/// A leak in a log with a bound. Between two moments of its history are 60 ms.
fn leaking(rounds: &str) -> Run {
    Run::fixture("leaks_for_long")
        .arg(rounds)
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MAX_LOG", BOUND.to_string())
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "1")
}

fn read(path: &Path) -> Profile {
    Input::open(path)
        .and_then(|input| input.read(|_| ()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A round of the program, by the times of the log.
#[derive(Debug, Clone, Copy)]
struct Round {
    begun_ns: u64,
    leaked_ns: u64,
    churned_ns: u64,
    in_use: u64,
    leaked: u64,
}

fn rounds(stdout: &str, profile: &Profile) -> Vec<Round> {
    let start_ns = profile.run.start_monotonic_ns;
    let lines = stdout
        .lines()
        .filter_map(|line| line.strip_prefix("round "));
    // The last line of a killed program may be cut.
    let numbers = |line: &str| -> Option<[u64; 5]> {
        let numbers = line.split(' ').map(|word| word.parse().ok());
        numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()
    };
    let round = |[begun, leaked, churned, in_use, of_leak]: [u64; 5]| Round {
        begun_ns: begun.saturating_sub(start_ns),
        leaked_ns: leaked.saturating_sub(start_ns),
        churned_ns: churned.saturating_sub(start_ns),
        in_use,
        leaked: of_leak,
    };
    lines.filter_map(numbers).map(round).collect()
}

/// Checks a moment against the program's rounds. `others` are the bytes that libc had in use all
/// the time. Returns true if the moment is behind a round's leak, where all is exact.
#[track_caller]
fn assert_is_true(profile: &Profile, moment: &CoarseMoment, rounds: &[Round], others: u64) -> bool {
    let behind = rounds.partition_point(|round| round.begun_ns <= moment.time_ns + SLACK_NS);
    let Some(last) = behind.checked_sub(1) else {
        return false; // before the program's first round
    };
    let round = rounds[last];
    let is_last = rounds.len() == behind;
    let before = last
        .checked_sub(1)
        .map_or(0, |before| rounds[before].in_use);
    let is_settled = moment.time_ns > round.leaked_ns + SLACK_NS
        && rounds
            .get(behind)
            .is_none_or(|next| moment.time_ns + SLACK_NS < next.begun_ns)
        && (!is_last || moment.time_ns < round.churned_ns);
    let bytes = moment.bytes.saturating_sub(others);
    if !is_settled {
        // The next round may not be told yet.
        let most = round.in_use + SPIKE + if is_last { 1 << 20 } else { 0 };
        assert!((before..=most).contains(&bytes), "{moment:?} {round:?}");
        return false;
    }
    let churning = bytes - round.in_use;
    assert!([0, CHURNED].contains(&churning), "{moment:?} {round:?}");
    // A site may have several stacks. Each has blocks of one size.
    let size_of = |stack: u32| {
        let rows = profile.rows.iter().filter(|row| row.stack == stack);
        let all = rows.map(|row| row.totals.allocated);
        let (bytes, blocks) = all.fold((0, 0), |(bytes, blocks), all| {
            (bytes + all.bytes(), blocks + all.objects())
        });
        bytes.checked_div(blocks)
    };
    let in_use_of = |size: u64| -> u64 {
        let stacks = moment.largest.iter().copied();
        let of_size = stacks.filter(|&(stack, _)| size_of(stack) == Some(size));
        of_size.map(|(_, bytes)| bytes).sum()
    };
    assert_eq!(
        (in_use_of(3000), in_use_of(500)),
        (round.leaked, CACHE),
        "{round:?}"
    );
    assert!(moment.highest >= moment.bytes);
    true
}

/// Checks all moments of a log. Returns the number of exact ones.
#[track_caller]
fn assert_history_is_true(profile: &Profile, stdout: &str, others: u64) -> usize {
    let checkpoint = profile.run.checkpoint.expect("the log rotated");
    let moments = &profile.coarse;
    assert!(moments.windows(2).all(|it| it[0].time_ns < it[1].time_ns));
    assert_eq!(
        moments.last().map(|it| it.time_ns),
        Some(checkpoint.time_ns)
    );
    // The history covers all the time before.
    let peak = heapprof_core::Fixed::from_bits(checkpoint.peak_bytes).round();
    let highest = moments.iter().map(|it| it.highest).max();
    assert_eq!(highest, Some(peak));
    // Resident are the blocks and the rest of a small program.
    let resident = moments.iter().filter(|it| it.resident > 0);
    let is_likely =
        |it: &CoarseMoment| it.resident > it.bytes / 2 && it.resident < it.bytes + (80 << 20);
    assert!(resident.clone().all(is_likely), "{moments:?}");
    assert!(resident.count() > 5, "{moments:?}");
    let rounds = rounds(stdout, profile);
    assert!(rounds.len() > 30, "{stdout}");
    let exact = |it: &&CoarseMoment| assert_is_true(profile, it, &rounds, others);
    moments.iter().filter(exact).count()
}

/// The bytes in use that are not the fixture's.
fn of_others(ran: &Finished, profile: &Profile) -> u64 {
    let last = *rounds(&ran.stdout, profile).last().expect("rounds");
    profile.totals().in_use.bytes() - last.in_use
}

fn segments(folder: &Path) -> Vec<std::path::PathBuf> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|it| it == "heaplog"))
        .collect()
}

#[test]
fn moments_whose_segments_are_gone_are_what_the_program_had_then() {
    let ran = leaking("500").run().well();
    let newest = ran.folder().join("t.heaplog");
    let profile = read(&newest);
    let checkpoint = profile.run.checkpoint.expect("the log rotated");
    assert!(checkpoint.segment > 10, "{checkpoint:?}");
    let others = of_others(&ran, &profile);
    let exact = assert_history_is_true(&profile, &ran.stdout, others);
    assert!(exact >= 10, "{exact} of {}", profile.coarse.len());
    // The oldest moments are one, whose maximum is the spike. The newest are 60 ms apart and more.
    let (first, recent) = profile.coarse.split_first().expect("moments");
    assert!(
        first.time_ns > 1_000_000_000 && first.highest > SPIKE,
        "{first:?}"
    );
    assert!(recent.iter().all(|it| it.highest < SPIKE));
    let apart = recent.windows(2).map(|it| it[1].time_ns - it[0].time_ns);
    // The last one is of the checkpoint.
    assert!(
        apart.take(recent.len() - 2).all(|ns| ns >= 60_000_000),
        "{recent:?}"
    );
    assert!(recent.len() > 25, "{}", recent.len());
    let bytes: u64 = (segments(ran.folder()).iter())
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(bytes <= BOUND, "{bytes}");
    // Within a tenth of the bound.
    let newest = fs::read(&newest).unwrap();
    let mut reader = Reader::new(&newest).unwrap();
    let mut taken = 0;
    let mut before = reader.offset();
    while let Ok(Some(record)) = reader.next_record() {
        if matches!(record, Record::CoarseMoment(_)) {
            taken += reader.offset() - before;
        }
        before = reader.offset();
    }
    assert!((1..=BOUND / 10).contains(&taken), "{taken}");
}

#[test]
fn timeline_and_growth_show_the_time_before_detail() {
    let ran = leaking("150").run().well();
    let newest = ran.folder().join("t.heaplog");
    let profile = read(&newest);
    let until_ns = profile.run.checkpoint.expect("the log rotated").time_ns;

    let shown = Run::heapprof().arg("timeline").arg(&newest).run().well();
    assert!(
        shown.stdout.contains("coarse, from before"),
        "{}",
        shown.stdout
    );
    let detail = shown
        .stdout
        .find("in detail, since then:")
        .expect("the rest");
    assert!(
        shown.stdout[..detail].contains("at least: leak"),
        "{}",
        shown.stdout
    );

    let shown = Run::heapprof()
        .args(["timeline", "--json"])
        .arg(&newest)
        .run()
        .well();
    let coarse = &Json::parse(&shown.stdout).0["coarse"];
    assert_eq!(coarse["until_ns"], until_ns);
    assert_eq!(coarse["without_inherited"], false);
    let moments = coarse["moments"].as_array().expect("moments");
    assert_eq!(moments.len(), profile.coarse.len());
    let last = moments.last().expect("a moment");
    let expected = profile.coarse.last().expect("a moment");
    assert_eq!(last["in_use_bytes"], expected.bytes as f64);
    assert_eq!(last["highest_in_use_bytes"], expected.highest as f64);
    assert_eq!(last["in_use_objects"], expected.objects as f64);
    let leak = &last["largest"][0];
    let name = leak["name"].as_str().expect("a name");
    assert!(name.starts_with("leak"), "{last}");
    let of_leak = leak["least_in_use_bytes"].as_f64().expect("bytes") as u64;
    assert!(of_leak > 400_000 && of_leak.is_multiple_of(3000), "{last}");

    let grown = Run::heapprof()
        .args(["top", "-m", "growth"])
        .arg(&newest)
        .run()
        .well();
    assert!(
        grown.stdout.contains("since before the oldest segment"),
        "{}",
        grown.stdout
    );
    assert!(grown.stdout.contains("leak: at least"), "{}", grown.stdout);
    let grown = Run::heapprof()
        .args(["top", "-m", "growth", "--json"])
        .arg(&newest)
        .run()
        .well();
    let coarse = &Json::parse(&grown.stdout).0["coarse"];
    let first = &profile.coarse[0];
    assert_eq!(coarse["since_ns"], first.time_ns);
    assert_eq!(coarse["before_bytes"], first.bytes as f64);
    let after = profile.totals().in_use.bytes_f64();
    let seconds = (profile.run.duration_ns - first.time_ns) as f64 / 1e9;
    let rate = coarse["bytes_per_second"].as_f64().expect("a rate");
    assert!(
        (rate - (after - first.bytes as f64) / seconds).abs() < 1.0,
        "{coarse}"
    );

    // A part of a run, and a part of its stacks, have none.
    let window = format!("{}s", until_ns as f64 / 1e9 + 0.001);
    for part in [["--from", &window], ["--focus", "leak"]] {
        let grown = Run::heapprof()
            .args(["top", "-m", "growth"])
            .args(part)
            .arg(&newest)
            .run();
        let grown = grown.well();
        assert!(!grown.stdout.contains("since before"), "{}", grown.stdout);
    }
}

/// Two processes at a time: each moment of the joined log has what the two logs say of it.
#[test]
fn joined_logs_have_what_each_process_had() {
    let running = [leaking("150").start(), leaking("250").start()];
    let ran = running.map(|running| running.wait().well());
    let logs = ran.each_ref().map(|ran| ran.folder().join("t.heaplog"));
    let file = ran[0].folder().join("joined.heaplog");
    let join = Run::heapprof().arg("join").arg("-o").arg(&file);
    let _ = join.args(&logs).run().well();
    let joined = read(&file);
    let inputs = logs.each_ref().map(|log| Input::open(log).expect("a log"));
    let alone = logs.each_ref().map(|log| read(log));
    let starts = alone.each_ref().map(|it| it.run.start_wall_ns);
    let bytes_at = |process: usize, joined_ns: u64| -> Option<u64> {
        let profile = &alone[process];
        // Times in a log are whole microseconds.
        let wall_ns = starts.iter().min()? + joined_ns + 999;
        let own_ns = wall_ns.checked_sub(starts[process])?;
        if own_ns < profile.run.checkpoint?.time_ns {
            let before = profile.coarse.iter().rfind(|it| it.time_ns <= own_ns);
            return before.map(|it| it.bytes);
        }
        let view = View::At(Moment::After(own_ns.min(profile.run.duration_ns)));
        let request = ReadRequest {
            view,
            ..ReadRequest::default()
        };
        let log = inputs[process].log().expect("a log");
        let then = profile_of_view(log, &request, |_| ()).expect("a profile");
        (own_ns < profile.run.duration_ns).then(|| then.totals().in_use.bytes())
    };
    let until_ns = joined.run.checkpoint.expect("both rotated").time_ns;
    assert_eq!(joined.coarse.last().map(|it| it.time_ns), Some(until_ns));
    assert!(joined.coarse.len() > 20, "{}", joined.coarse.len());
    let mut both = 0;
    for moment in &joined.coarse {
        let known = [0, 1].map(|process| bytes_at(process, moment.time_ns));
        both += usize::from(known.iter().all(Option::is_some));
        assert_eq!(
            moment.bytes,
            known.iter().flatten().sum::<u64>(),
            "{known:?}"
        );
        assert!(moment.highest >= moment.bytes);
    }
    assert!(both > 10, "{both} of {}", joined.coarse.len());
    let most = |profile: &Profile| profile.coarse.iter().map(|it| it.highest).max();
    for alone in &alone {
        assert!(most(&joined) >= most(alone));
    }
}

#[test]
fn a_kill_between_two_rotations_loses_nothing() {
    for delay_us in [0, 3_100, 17_700] {
        let mut running = leaking("1000000").start();
        let is_there = |folder: &Path| {
            let log = folder.join("t.heaplog");
            log.exists() && Input::open(&log).is_ok()
        };
        running.until("many rounds", |running| {
            running.stdout_so_far().lines().count() > 60 && is_there(running.folder())
        });
        std::thread::sleep(std::time::Duration::from_micros(delay_us));
        running.signal(9);
        let ran = running.wait();
        let all = read(&ran.folder().join("t.heaplog"));
        assert_eq!(all.run.ending, Ending::CutOff);
        // Other blocks were there before the fixture's first round.
        let others = all.rows.iter().filter(|row| {
            let all = &row.totals.allocated;
            ![3000, 500, 48, SPIKE].contains(&all.bytes().checked_div(all.objects()).unwrap_or(0))
        });
        let others = others.map(|row| row.totals.in_use.bytes()).sum();
        assert!(assert_history_is_true(&all, &ran.stdout, others) > 5);
        // Each kept segment alone has the history up to its own beginning.
        let elsewhere = tempfile::tempdir().unwrap();
        for (number, file) in segments(ran.folder()).iter().enumerate() {
            let alone = elsewhere.path().join(format!("alone{number}.heaplog"));
            fs::copy(file, &alone).unwrap();
            let alone = read(&alone);
            assert!(assert_history_is_true(&alone, &ran.stdout, others) > 5);
        }
    }
}

#[test]
fn a_forked_child_begins_its_history_anew() {
    let ran = Run::fixture("rotates")
        .args(["60000", "fork"])
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MAX_LOG", BOUND.to_string())
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "1")
        .run()
        .well();
    let child = ran.claims().pid_of("child");
    let log = ran.folder().join(format!("t_{child}.heaplog"));
    let profile = read(&log);
    let checkpoint = profile.run.checkpoint.expect("the child's log rotated");
    let last = profile.coarse.last().expect("moments");
    assert_eq!(last.time_ns, checkpoint.time_ns);
    // Its own blocks, without those of its parent.
    let peak = heapprof_core::Fixed::from_bits(checkpoint.peak_bytes).round();
    let highest = profile.coarse.iter().map(|it| it.highest).max();
    assert_eq!(highest, Some(peak));
    let shown = Run::heapprof().arg("timeline").arg(&log).run().well();
    assert!(
        shown
            .stdout
            .contains("without what the process has from its"),
        "{}",
        shown.stdout
    );
    let grown = Run::heapprof()
        .args(["top", "-m", "growth"])
        .arg(&log)
        .run()
        .well();
    assert!(!grown.stdout.contains("since before"), "{}", grown.stdout);
}

#[test]
fn a_log_that_does_not_rotate_has_no_history() {
    let ran = leaking("5").env("HEAPPROF_MAX_LOG", "0").run().well();
    let profile = read(&ran.folder().join("t.heaplog"));
    assert!(profile.coarse.is_empty() && profile.run.checkpoint.is_none());
    let log = ran.folder().join("t.heaplog");
    let shown = Run::heapprof()
        .args(["timeline", "--json"])
        .arg(&log)
        .run()
        .well();
    assert!(Json::parse(&shown.stdout).0.get("coarse").is_none());
}
