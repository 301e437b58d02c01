//! What a forked process had from its parent was in use when its log begins, and was not allocated then.

mod common;

use std::path::{Path, PathBuf};

use common::history::{MS, S, folder, own};
use heapprof_core::Temporary;
use heapprof_format::{
    Alloc, Encoder, EndReason, FILE_HEADER, FORKED_AT, Free, PARENT_LOG, Record, Stack, Start,
    WalkEnd,
};
use heapprof_symbolizer::{
    Input, Measure, Moment, Occasions, Profile, Reading, View, contrast_of_log, dumps_of_log,
    timeline_of_log,
};

const MB: u64 = 1_000_000;
/// Blocks of one MB that the child has from its parent, by ids 1 and up.
const INHERITED: u64 = 100;

fn start(encoder: &mut Encoder, pid: u32, monotonic_ns: u64, settings: Vec<(String, String)>) {
    encoder.record(&Record::Start(Start {
        program: "/bin/server".into(),
        pid,
        forked_from: 30 * u32::from(!settings.is_empty()),
        monotonic_ns,
        interval: 1,
        settings,
        ..Start::default()
    }));
}

fn stack(encoder: &mut Encoder) {
    encoder.record(&Record::Stack(Stack {
        number: 0,
        end: WalkEnd::Root,
        frames: vec![0x10, 0x1001],
        interrupted: vec![],
    }));
}

fn alloc(encoder: &mut Encoder, time_ns: u64, id: u64, size: u64) {
    encoder.alloc(&Alloc {
        time_ns,
        thread: 0,
        id,
        size,
        slack: 0,
        stack: 0,
        interval: 1,
    });
}

fn free(encoder: &mut Encoder, time_ns: u64, id: u64) {
    encoder.free(&Free {
        time_ns,
        thread: 0,
        id,
    });
}

/// The log of a child, beside its parent's; it was forked a second after the parent's start.
fn child(folder: &Path, story: impl FnOnce(&mut Encoder)) -> PathBuf {
    let mut parent = Encoder::new();
    start(&mut parent, 30, 30 * S, vec![]);
    stack(&mut parent);
    for id in 1..=INHERITED {
        alloc(&mut parent, MS, id, MB);
    }
    let bytes = [&FILE_HEADER[..], parent.finish()].concat();
    let parent = common::write(folder, "parent.heaplog", &bytes);

    let mut child = Encoder::new();
    let settings = vec![
        (FORKED_AT.into(), (31 * S).to_string()),
        (PARENT_LOG.into(), parent.to_str().unwrap().into()),
    ];
    start(&mut child, 31, 31 * S, settings);
    let mut bytes = [&FILE_HEADER[..], child.finish()].concat();
    story(&mut child);
    child.record(&Record::End {
        time_ns: 10 * S,
        reason: EndReason::Exit,
    });
    bytes.extend_from_slice(child.finish());
    common::write(folder, "child.heaplog", &bytes)
}

/// ```text
///    1 ms   frees all that it inherited
///   20 ms   allocates 10 × 1000      21 ms   frees five of these
///   30 ms   allocates 30 MB          50 ms   frees it
/// ```
fn frees_what_it_inherited(child: &mut Encoder) {
    stack(child);
    for id in 1..=INHERITED {
        free(child, MS, id);
    }
    for id in 1001..=1010 {
        alloc(child, 20 * MS, id, 1000);
    }
    for id in 1001..=1005 {
        free(child, 21 * MS, id);
    }
    alloc(child, 30 * MS, 1011, 30 * MB);
    free(child, 50 * MS, 1011);
}

fn past(input: &Input, temporary: Temporary) -> Profile {
    let reading = Reading {
        pasts: Some(temporary),
        ..Reading::default()
    };
    input.read_part(&reading, |_| {}).unwrap()
}

#[test]
fn it_is_not_temporary_and_its_lifetime_is_not_known() {
    let folder = folder();
    let path = child(folder.path(), frees_what_it_inherited);
    let input = Input::open(&path).unwrap();
    let within = Temporary::within(10 * MS);
    let by_allocations = Temporary {
        within_ns: None,
        before_allocations: Some(10),
    };
    // By allocations, the 30 MB as well: nothing came after them.
    for (temporary, expected) in [(within, 5000), (by_allocations, 30 * MB + 5000)] {
        let profile = past(&input, temporary);
        let temporary: u64 = profile.pasts.iter().map(|p| p.temporary.bytes()).sum();
        assert_eq!(temporary, expected);
        let died: u64 = profile.lifetimes.iter().map(|l| l.died_samples()).sum();
        assert_eq!(died, 6);
        let peak: u64 = profile.pasts.iter().map(|p| p.peak.bytes()).sum();
        assert_eq!(peak, INHERITED * MB);
    }
    assert_eq!(own(path.to_str().unwrap(), "temporary"), [5000.0]);

    let views = [&View::At(Moment::Start), &View::Whole];
    let (profile, _) = contrast_of_log(
        input.log().unwrap(),
        views,
        Measure::TemporaryBytes,
        within,
        |_| {},
    )
    .unwrap();
    let after: f64 = profile.changes.iter().map(|change| change.after).sum();
    assert_eq!(after, 5000.0);
}

#[test]
fn a_timeline_begins_with_it_and_shows_no_allocation() {
    let folder = folder();
    let input = Input::open(&child(folder.path(), frees_what_it_inherited)).unwrap();
    let whole = input.read(|_| {}).unwrap();
    let timeline = timeline_of_log(input.log().unwrap(), &whole, 10, 0, |_| None).unwrap();
    let first = &timeline.steps[0];
    assert_eq!(first.highest, (INHERITED * MB) as f64);
    assert_eq!(first.allocated, (30 * MB + 10_000) as f64);
    assert_eq!(first.allocated_objects, 11.0);
    assert_eq!(first.in_use, 5000.0);
}

#[test]
fn it_is_no_occasion_for_a_dump() {
    let folder = folder();
    let input = Input::open(&child(folder.path(), frees_what_it_inherited)).unwrap();
    let in_use = |occasions: Occasions| {
        let mut in_use = Vec::new();
        dumps_of_log::<heapprof_format::ReadError>(input.log().unwrap(), occasions, |profile| {
            in_use.push(profile.numbers().in_use_bytes);
            Ok(())
        })
        .unwrap();
        in_use
    };
    let allocated = Occasions {
        every_allocated: 20 * MB,
        ..Occasions::default()
    };
    assert_eq!(in_use(allocated), [30 * MB + 5000]);
    let high = Occasions {
        every_in_use: 20 * MB,
        ..Occasions::default()
    };
    assert_eq!(in_use(high), [0; 0]);
    let freed = Occasions {
        every_freed: 100 * MB,
        ..Occasions::default()
    };
    assert_eq!(in_use(freed), [0]);
    let timed = Occasions {
        every_ns: 35 * MS,
        ..Occasions::default()
    };
    assert_eq!(in_use(timed)[..2], [30 * MB + 5000, 5000]);
}
