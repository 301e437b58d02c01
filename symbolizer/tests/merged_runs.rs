//! Several runs together: the facts that are true of all, and the places of files that lay at one
//! place.

use heapprof_core::{Estimate, Row, SizeClass, Totals};
use heapprof_format::{EndReason, Segment};
use heapprof_symbolizer::{CallStack, Ending, LoadedModule, Metric, Profile, Run, merged};

fn merge(runs: Vec<Run>) -> Run {
    let with_run = |run| {
        let mut profile = Profile::default();
        profile.run = run;
        ("a.heaplog".to_owned(), profile)
    };
    merged(runs.into_iter().map(with_run).collect()).run
}

fn setting(name: &str, value: &str) -> (String, String) {
    (name.into(), value.into())
}

#[test]
fn a_run_of_several_has_what_they_have_in_common() {
    let said = Ending::Said(EndReason::Exit);
    let first = Run {
        program: "/bin/server".into(),
        args: vec!["-v".into()],
        // It does not say when it began.
        start_wall_ns: 0,
        duration_ns: 30,
        interval: Some(4096),
        ending: said,
        settings: vec![setting("A", "1"), setting("B", "1"), setting("C", "1")],
        ..Run::default()
    };
    let second = Run {
        start_wall_ns: 900,
        duration_ns: 70,
        interval: Some(512),
        settings: vec![setting("C", "1"), setting("B", "2"), setting("A", "1")],
        ..first.clone()
    };
    let third = Run {
        start_wall_ns: 800,
        duration_ns: 50,
        interval: Some(65_536),
        ..second.clone()
    };
    let all = merge(vec![first.clone(), second.clone(), third.clone()]);
    assert_eq!(
        (all.program, all.args),
        (first.program.clone(), first.args.clone())
    );
    assert_eq!((all.start_wall_ns, all.duration_ns), (800, 70));
    assert_eq!((all.interval, all.intervals_seen), (Some(512), None));
    assert_eq!(all.settings, [setting("A", "1"), setting("C", "1")]);
    assert_eq!((all.ending, all.span), (said, None));

    // One of them was called otherwise, was killed, and changed its interval.
    let other = Run {
        args: vec!["-q".into()],
        ending: Ending::CutOff,
        intervals_seen: Some((1024, 131_072)),
        ..third
    };
    let all = merge(vec![first, second, other]);
    assert!(all.args.is_empty());
    assert_eq!(all.ending, Ending::CutOff);
    assert_eq!(all.interval, Some(512));
    assert_eq!(all.intervals_seen, Some((512, 131_072)));
}

/// A process with a file of that build-id, from 0x4800 to 0x6800, that allocates at 0x5010.
fn process(build_id: u8, bytes: u64) -> (String, Profile) {
    let allocated = Estimate::given(1, bytes);
    let module = LoadedModule {
        path: format!("/lib/{build_id}.so"),
        build_id: vec![build_id],
        stamp: None,
        bias: Some(0x4000),
        segments: vec![Segment {
            start: 0x4800,
            len: 0x2000,
            file_offset: 0x800,
            flags: 5,
        }],
        loaded_ns: 0,
        unloaded_ns: None,
        code: None,
    };
    let stack = CallStack {
        frames: vec![0x5010, 0x9000],
        ..CallStack::default()
    };
    let row = Row {
        stack: 0,
        class: SizeClass::of(bytes),
        totals: Totals {
            allocated,
            in_use: allocated,
        },
    };
    let mut profile = Profile::default();
    profile.modules.push(module);
    profile.stacks.push(stack);
    profile.rows.push(row);
    (format!("{build_id}.heaplog"), profile)
}

#[test]
fn files_that_lay_at_one_place_each_have_their_own() {
    let all = merged(vec![
        process(1, 10),
        process(2, 200),
        process(3, 3000),
        process(2, 40_000),
    ]);
    assert_eq!(all.modules.len(), 3);
    assert_eq!(all.numbers().get(Metric::AllocatedBytes), 43_210);
    let mut bytes = Vec::new();
    for row in &all.rows {
        let stack = all.stack_of(row);
        let places: Vec<_> = all.places(stack).collect();
        let module = all.module_of(places[0]).expect("it is in its file");
        // As far from the file's beginning as it was.
        assert_eq!(stack.frames[0] - module.segments[0].start, 0x810);
        assert_eq!(Some(stack.frames[0] - 0x1010), module.bias);
        // Code outside all files is each process's own.
        assert!(all.module_of(places[1]).is_none());
        bytes.push((module.build_id[0], row.totals.allocated.bytes()));
    }
    bytes.sort_unstable();
    assert_eq!(bytes, [(1, 10), (2, 200), (2, 40_000), (3, 3000)]);
    // No two of them on one page.
    let mut pages: Vec<_> = all
        .modules
        .iter()
        .map(|m| {
            (
                m.segments[0].start / 4096,
                (m.segments[0].start + 0x1fff) / 4096,
            )
        })
        .collect();
    pages.sort_unstable();
    assert!(
        pages.windows(2).all(|two| two[0].1 < two[1].0),
        "{pages:x?}"
    );
}

/// They end and begin with whole pages: side by side is room enough.
#[test]
fn a_file_that_fits_beside_another_stays_where_it_was() {
    let (file, mut second) = process(2, 200);
    second.modules[0].segments[0].start = 0x7000;
    second.stacks[0].frames = vec![0x7010];
    let all = merged(vec![process(1, 10), (file, second)]);
    let starts: Vec<u64> = all.modules.iter().map(|m| m.segments[0].start).collect();
    assert_eq!(starts, [0x4800, 0x7000]);
    assert_eq!(all.stacks[1].frames, [0x7010]);
}
