//! A log that begins with a checkpoint: what each view of it counts.
//!
//! ```text
//!              before 5 s             6 s      7 s       8 s       9 s    10 s, the end
//!   passed     5 blocks, 5000 bytes
//!   1          100 bytes, from 2 s ───────────── freed
//!   2          30 bytes, from 4 s ─────────────────────────────────────────
//!   3                                 7 bytes ─────────────────────────────
//!   4                                             1000 ──── freed
//! ```

use heapprof_core::SizeClass;
use heapprof_format::{
    Alloc, Checkpoint, Encoder, EndReason, FILE_HEADER, Free, Passed, Record, Stack, Start, Sums,
    WalkEnd,
};
use heapprof_symbolizer::Temporary;
use heapprof_symbolizer::{
    Measure, Metric, Moment, Profile, ReadRequest, View, ViewError, WantedExtras,
    paired_difference_of_log, profile_of_view,
};

const S: u64 = 1_000_000_000;

fn whole_bytes(samples: u64, bytes: u64) -> Sums {
    Sums {
        samples,
        fixed: [i128::from(samples) << 32, i128::from(bytes) << 32, 0, 0],
    }
}

fn alloc(id: u64, size: u64, time_ns: u64) -> Record {
    Record::Alloc(Alloc {
        time_ns,
        thread: 1,
        id,
        size,
        slack: 1,
        stack: 0,
        interval: 1,
    })
}

fn free(id: u64, time_ns: u64) -> Record {
    Record::Free(Free {
        time_ns,
        thread: 1,
        id,
    })
}

fn log(records: &[Record]) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.record(&Record::Start(Start {
        interval: 1,
        ..Start::default()
    }));
    for record in records {
        encoder.record(record);
    }
    [&FILE_HEADER[..], encoder.finish()].concat()
}

fn checkpoint() -> Vec<Record> {
    vec![
        Record::Checkpoint(Checkpoint {
            segment: 2,
            time_ns: 5 * S,
            peak_ns: 3 * S,
            peak_bytes: 50_000 << 32,
            intervals: (1, 4096),
            requested: whole_bytes(7, 6000),
            ..Checkpoint::default()
        }),
        Record::Stack(Stack {
            number: 0,
            end: WalkEnd::Root,
            frames: vec![0x10, 0x1001],
            interrupted: vec![],
            labels: Vec::new(),
        }),
        Record::Passed(Passed {
            stack: 0,
            class: SizeClass::of(1000).0,
            first_ns: S,
            sums: whole_bytes(5, 5000),
        }),
        alloc(1, 100, 2 * S),
        alloc(2, 30, 4 * S),
    ]
}

fn events() -> Vec<Record> {
    vec![
        alloc(3, 7, 6 * S),
        free(1, 7 * S),
        alloc(4, 1000, 8 * S),
        free(4, 9 * S),
        Record::End {
            time_ns: 10 * S,
            reason: EndReason::Exit,
        },
    ]
}

fn rotated() -> Vec<u8> {
    let end = Record::CheckpointEnd { time_ns: 5 * S };
    log(&[checkpoint(), vec![end], events()].concat())
}

fn at(tenths: u64) -> View {
    View::At(after(tenths))
}

fn window(from_tenths: u64, to_tenths: u64) -> View {
    View::Window(after(from_tenths), after(to_tenths))
}

fn after(tenths: u64) -> Moment {
    Moment::After(tenths * S / 10)
}

fn read(log: &[u8], view: View, pasts: bool) -> Profile {
    let request = ReadRequest {
        view,
        pasts: pasts.then(|| Temporary::within(S)),
        extras: WantedExtras {
            threads: true,
            ..WantedExtras::default()
        },
        ..ReadRequest::default()
    };
    profile_of_view(log, &request, |_| {}).unwrap()
}

fn sums(profile: &Profile) -> [u64; 4] {
    let numbers = profile.numbers();
    [
        numbers.in_use_objects,
        numbers.in_use_bytes,
        numbers.allocated_objects,
        numbers.allocated_bytes,
    ]
}

#[test]
fn each_view_counts_what_it_says() {
    let log = rotated();
    for (view, expected) in [
        (View::Whole, [2, 37, 9, 6137]),
        (View::Window(Moment::Start, Moment::End), [2, 37, 9, 6137]),
        (at(50), [2, 130, 7, 5130]),
        (at(60), [3, 137, 8, 5137]),
        (at(85), [3, 1037, 9, 6137]),
        (window(50, 100), [1, 7, 2, 1007]),
        (window(60, 100), [0, 0, 1, 1000]),
        (window(75, 85), [1, 1000, 1, 1000]),
    ] {
        for pasts in [false, true] {
            let profile = read(&log, view.clone(), pasts);
            assert_eq!(sums(&profile), expected, "{view:?}");
            assert_eq!(profile.account.unknown_frees, 0, "{view:?}");
            // The threads' parts are the whole.
            let threads = profile.extras.threads.iter().flatten();
            let by_thread: u64 = threads.map(|t| t.row.totals.allocated.bytes()).sum();
            assert_eq!(by_thread, expected[3], "{view:?}");
        }
    }
    let request = ReadRequest {
        view: at(49),
        ..ReadRequest::default()
    };
    let error = profile_of_view(&log, &request, |_| {}).unwrap_err();
    assert!(matches!(error, ViewError::Moment(_)), "{error}");
}

#[test]
fn the_past_is_that_since_the_checkpoint() {
    let log = rotated();
    let heaptime = |view| {
        let profile = read(&log, view, true);
        Measure::HeaptimeBytes.of_all(&profile).value
    };
    // From 5 s: 2 s of 100, 5 s of 30, 4 s of 7, 1 s of 1000.
    assert_eq!(heaptime(View::Whole), 200.0 + 150.0 + 28.0 + 1000.0);
    assert_eq!(heaptime(at(60)), 100.0 + 30.0);
    assert_eq!(heaptime(window(50, 100)), 28.0 + 1000.0);
    let profile = read(&log, View::Whole, true);
    let lifetimes = &profile.lifetimes[0];
    assert_eq!((lifetimes.died_samples(), lifetimes.live_samples()), (1, 1));
    let temporary = Measure::TemporaryBytes.of_all(&profile).value;
    assert_eq!(temporary, 1000.0);
    let slack = Measure::Slack.of_all(&profile).value;
    assert_eq!(slack, 2.0);
}

#[test]
fn what_the_checkpoint_says_of_the_run_is_known() {
    let profile = read(&rotated(), View::Whole, false);
    let peak = profile.peak.unwrap();
    assert_eq!((peak.bytes.round(), peak.time_ns), (50_000, 3 * S));
    assert_eq!(profile.run.intervals_seen, Some((1, 4096)));
    assert_eq!(profile.stacks[0].time_ns, S);
    assert_eq!(
        (profile.requested.samples, profile.requested.bytes()),
        (9, 7007)
    );
    assert_eq!(profile.run.duration_ns, 10 * S);
    assert!(profile.account.remarks.is_empty());
}

#[test]
fn without_its_end_it_is_over_at_the_first_later_event() {
    let damaged = log(&[checkpoint(), events()].concat());
    for (view, expected) in [
        (View::Whole, [2, 37, 9, 6137]),
        (window(50, 100), [1, 7, 2, 1007]),
    ] {
        let profile = read(&damaged, view.clone(), true);
        assert_eq!(sums(&profile), expected, "{view:?}");
        let remarks = profile.account.remarks.join("\n");
        assert!(remarks.contains("is damaged"), "{remarks}");
    }
    // And where nothing else comes, more may be missing.
    let profile = read(&log(&checkpoint()), View::Whole, false);
    assert_eq!(sums(&profile), [2, 130, 7, 5130]);
    let remarks = profile.account.remarks.join("\n");
    assert!(remarks.contains("is not complete"), "{remarks}");
}

#[test]
fn two_views_differ_by_what_each_of_them_counts() {
    let log = rotated();
    let between = |measure: Measure, views: [View; 2]| {
        let views = [&views[0], &views[1]];
        let temporary = Temporary::within(S);
        let (profile, _) =
            paired_difference_of_log(&log, views, measure, temporary, |_| {}).unwrap();
        let sum = |part: fn(&heapprof_symbolizer::Change) -> f64| {
            profile.changes.iter().map(part).sum::<f64>()
        };
        [
            sum(|c| c.before),
            sum(|c| c.after),
            sum(|c| c.plus.value),
            sum(|c| c.minus.value),
        ]
    };
    let allocated = Measure::from(Metric::AllocatedBytes);
    assert_eq!(
        between(allocated, [window(60, 100), View::Whole]),
        [1000.0, 6137.0, 5137.0, 0.0]
    );
    let in_use = Measure::from(Metric::InUseBytes);
    assert_eq!(
        between(in_use, [at(60), at(100)]),
        [137.0, 37.0, 0.0, 100.0]
    );
    assert_eq!(
        between(Measure::HeaptimeBytes, [at(60), at(100)]),
        [130.0, 1378.0, 1248.0, 0.0]
    );
}
