//! Inherited blocks: blocks that a forked process has from its parent are in use when its log
//! begins, and were allocated before.

use std::path::{Path, PathBuf};

use crate::common::encoded::{alloc, free, stack, start};
use crate::common::history::{MS, S, folder, json, ok, own};
use crate::common::{heapprof, stderr};
use heapprof_core::{SizeClass, Totals};
use heapprof_format::{
    Alloc, Checkpoint, Encoder, EndReason, FILE_HEADER, FORKED_AT, Module, PARENT_LOG, Passed,
    Record, Segment, Stack, Start, Sums, WalkEnd,
};
use heapprof_symbolizer::Temporary;
use heapprof_symbolizer::{
    DumpTriggers, Groups, Heights, Input, Looks, Measure, Moment, Profile, ReadRequest, Rows, View,
    dumps_of_log, paired_difference_of_log, timeline_of_log,
};

const MB: u64 = 1_000_000;
/// Blocks of one MB that the child has from its parent, by ids 1 and up.
const INHERITED: u64 = 100;

/// The log of a child, beside its parent's; it was forked a second after the parent's start.
fn child(folder: &Path, story: impl FnOnce(&mut Encoder)) -> PathBuf {
    let mut parent = Encoder::new();
    start(&mut parent, 30, 30 * S, vec![]);
    stack(&mut parent);
    for id in 1..=INHERITED {
        alloc(&mut parent, MS, id, MB);
    }
    let bytes = [&FILE_HEADER[..], parent.finish()].concat();
    let parent = crate::common::write(folder, "parent.heaplog", &bytes);

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
    crate::common::write(folder, "child.heaplog", &bytes)
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
    let request = ReadRequest {
        pasts: Some(temporary),
        ..ReadRequest::default()
    };
    input.read_part(&request, |_| {}).unwrap()
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
    let (profile, _) = paired_difference_of_log(
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
    let log = input.log().unwrap();
    let four = |totals: &Totals| [totals.in_use.bytes(), totals.allocated.bytes()];
    let timeline = timeline_of_log(
        log,
        &whole,
        10,
        Groups {
            rows: Rows::Whole,
            count: 1,
            of: |_| Some(0),
            looks: Looks::default(),
        },
        four,
        |_| {},
    )
    .unwrap();
    // It was there before the first step, which counts what comes from then on.
    let [[in_use, before]] = timeline.at_start[..] else {
        panic!("one group");
    };
    assert_eq!((in_use, before), (INHERITED * MB, INHERITED * MB));
    let first = &timeline.steps[0];
    assert_eq!(first.highest, (INHERITED * MB) as f64);
    assert_eq!(first.allocated, (30 * MB + 10_000) as f64);
    assert_eq!(first.allocated_objects, 11.0);
    assert_eq!(first.in_use, 5000.0);
    assert_eq!(first.groups[0], [5000, before + 30 * MB + 10_000]);
}

#[test]
fn it_is_no_occasion_for_a_dump() {
    let folder = folder();
    let input = Input::open(&child(folder.path(), frees_what_it_inherited)).unwrap();
    let in_use = |occasions: DumpTriggers| {
        let mut in_use = Vec::new();
        dumps_of_log::<heapprof_format::ReadError>(input.log().unwrap(), occasions, |profile| {
            in_use.push(profile.numbers().in_use_bytes);
            Ok(())
        })
        .unwrap();
        in_use
    };
    let allocated = DumpTriggers {
        every_allocated: 20 * MB,
        ..DumpTriggers::default()
    };
    assert_eq!(in_use(allocated), [30 * MB + 5000]);
    let high = DumpTriggers {
        every_in_use: 20 * MB,
        ..DumpTriggers::default()
    };
    assert_eq!(in_use(high), [0; 0]);
    let freed = DumpTriggers {
        every_freed: 100 * MB,
        ..DumpTriggers::default()
    };
    assert_eq!(in_use(freed), [0]);
    let timed = DumpTriggers {
        every_ns: 35 * MS,
        ..DumpTriggers::default()
    };
    assert_eq!(in_use(timed)[..2], [30 * MB + 5000, 5000]);
}

/// A segment that begins at 5 s, of a child that had freed all of its heritage but the first `kept`
/// blocks.
///
/// ```text
///   3 s   50 MB of its own in use, the most there ever was     4 s   7 MB, which are there at 5 s
///   6 s   1 MB more                                            7 s   which is freed
/// ```
fn rotated(child: &mut Encoder, kept: u64) {
    child.record(&Record::Checkpoint(Checkpoint {
        segment: 3,
        time_ns: 5 * S,
        peak_ns: 3 * S,
        peak_bytes: i128::from(50 * MB) << 32,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(child);
    child.record(&Record::Passed(Passed {
        stack: 0,
        class: SizeClass::of(50 * MB).0,
        first_ns: 3 * S,
        sums: Sums {
            samples: 1,
            fixed: [1 << 32, i128::from(50 * MB) << 32, 0, 0],
        },
    }));
    for id in 1001..=1007 {
        alloc(child, 4 * S, id, MB);
    }
    for id in kept + 1..=INHERITED {
        free(child, 2 * S, id);
    }
    child.record(&Record::CheckpointEnd { time_ns: 5 * S });
    alloc(child, 6 * S, 1008, MB);
    free(child, 7 * S, 1008);
}

#[test]
fn what_was_freed_before_a_checkpoint_was_not_in_use_at_it() {
    let folder = folder();
    let input = Input::open(&child(folder.path(), |child| rotated(child, 10))).unwrap();
    let profile = past(&input, Temporary::within(10 * MS));
    let peak: u64 = profile.pasts.iter().map(|p| p.peak.bytes()).sum();
    assert_eq!(peak, 18 * MB);
    let held =
        Heights::of_log(input.log().unwrap(), &profile, 5, Rows::Whole, &[], |_| {}).unwrap();
    assert_eq!(held.rows_at_peak.iter().sum::<f64>(), 18e6);
    let timeline = timeline_of_log(
        input.log().unwrap(),
        &profile,
        5,
        Groups {
            rows: Rows::Whole,
            count: 0,
            of: |_| None,
            looks: Looks::default(),
        },
        |_| (),
        |_| {},
    )
    .unwrap();
    let highest: Vec<f64> = timeline.steps.iter().map(|s| s.highest / 1e6).collect();
    assert_eq!(highest, [18.0, 18.0, 17.0, 17.0, 17.0]);
    let timeline = timeline_of_log(
        input.log().unwrap(),
        &profile,
        50,
        Groups {
            rows: Rows::Whole,
            count: 0,
            of: |_| None,
            looks: Looks::default(),
        },
        |_| (),
        |_| {},
    )
    .unwrap();
    assert_eq!(timeline.steps[0].highest, 17e6);
}

#[test]
fn the_largest_heap_before_a_checkpoint_has_what_was_inherited() {
    let folder = folder();
    let peak = |kept| {
        let input = Input::open(&child(folder.path(), |child| rotated(child, kept))).unwrap();
        let peak = input.read(|_| {}).unwrap().peak.unwrap();
        (peak.bytes.round(), peak.time_ns)
    };
    assert_eq!(peak(10), (100 * MB, 0));
    assert_eq!(peak(60), (110 * MB, 3 * S));
}

#[test]
fn frees_of_what_is_left_out_are_known_in_a_checkpoint_as_well() {
    let folder = folder();
    let input = Input::open(&child(folder.path(), |child| rotated(child, 10))).unwrap();
    let request = ReadRequest {
        without_inherited: true,
        ..ReadRequest::default()
    };
    let account = input.read_part(&request, |_| {}).unwrap().account;
    assert_eq!((account.inherited_elsewhere, account.unknown_frees), (1, 0));
}

#[test]
fn it_may_have_many_deep_stacks() {
    const STACKS: u32 = 45_000;
    let folder = folder();
    let mut parent = Encoder::new();
    start(&mut parent, 30, 30 * S, vec![]);
    let mut bytes = [&FILE_HEADER[..], parent.finish()].concat();
    for number in 0..STACKS {
        // As deep as may be at first, in turn in two files.
        let frames = (0..512u64).map(|n| n % 2 * 0x100_0000 + 0x1000 + n * 64 + u64::from(number));
        parent.record(&Record::Stack(Stack {
            number,
            end: WalkEnd::TooDeep,
            frames: frames.collect(),
            interrupted: vec![],
            labels: Vec::new(),
        }));
        parent.alloc(&Alloc {
            time_ns: MS,
            thread: 0,
            id: u64::from(number) + 1,
            size: 1000,
            slack: 0,
            stack: number,
            interval: 1,
        });
        if number % 100 == 0 {
            bytes.extend_from_slice(parent.finish());
        }
    }
    bytes.extend_from_slice(parent.finish());
    let parent = crate::common::write(folder.path(), "parent.heaplog", &bytes);
    let mut child = Encoder::new();
    let settings = vec![
        (FORKED_AT.into(), (31 * S).to_string()),
        (PARENT_LOG.into(), parent.to_str().unwrap().into()),
    ];
    start(&mut child, 31, 31 * S, settings);
    let mut bytes = [&FILE_HEADER[..], child.finish()].concat();
    child.record(&Record::End {
        time_ns: S,
        reason: EndReason::Exit,
    });
    bytes.extend_from_slice(child.finish());
    let path = crate::common::write(folder.path(), "child.heaplog", &bytes);

    let profile = Input::open(&path).unwrap().read(|_| {}).unwrap();
    assert!(
        profile.account.damage.is_empty(),
        "{:?}",
        profile.account.damage
    );
    assert_eq!(profile.numbers().in_use_objects, u64::from(STACKS));
}

/// Without the parent's log, or with one that has dropped the time of the fork, the numbers lack
/// what the child had from it. That is said wherever they are, and nothing is called exact for
/// that.
#[test]
fn what_is_not_known_of_the_heap_at_the_fork_is_said_beside_the_numbers() {
    const LACK: &str = "forked from pid 30: what was in use then is missing, because ";
    let folder = folder();
    let child = child(folder.path(), frees_what_it_inherited);
    let child = child.to_str().unwrap();
    let out = folder.path().join("out");
    let exported = |format: &str| {
        ok(&["export", "-f", format, "-o", out.to_str().unwrap(), child]);
        std::fs::read_to_string(&out).unwrap()
    };
    let is_said = |is: bool| {
        for command in ["top", "tree", "info"] {
            let text = ok(&[command, child]);
            assert_eq!(text.contains(LACK), is, "{command}: {text}");
            assert_eq!(text.contains("numbers are exact\n"), !is, "{text}");
        }
        for args in [
            &["top"][..],
            &["tree"],
            &["info"],
            &["export", "-f", "json"],
        ] {
            let mut args = [args, &[child]].concat();
            if args[0] != "export" {
                args.push("--json");
            }
            let document = json(&args);
            let caveats = document["caveats"].to_string();
            assert_eq!(caveats.contains(LACK), is, "{args:?}: {caveats}");
        }
        for args in [&[child, child][..], &[child, "--at", "1s", "--at", "2s"]] {
            let document = json(&[&["diff", "--json"], args].concat());
            let remarks = document["caveats"].to_string();
            assert_eq!(remarks.contains(LACK), is, "{args:?}: {remarks}");
        }
        for format in ["gperftools", "folded", "callgrind", "jemalloc"] {
            assert_eq!(exported(format).contains(LACK), is, "{format}");
        }
        for args in [
            &["top", "--csv", child][..],
            &["export", "-f", "csv", child],
        ] {
            let out = heapprof(args);
            assert_eq!(stderr(&out).contains(LACK), is, "{args:?}");
        }
    };
    is_said(false);
    let parent = folder.path().join("parent.heaplog");
    let bytes = std::fs::read(&parent).unwrap();
    std::fs::remove_file(&parent).unwrap();
    is_said(true);

    // If the parent's log begins after the fork, only blocks that lived on are known.
    let mut rotated = Encoder::new();
    start(&mut rotated, 30, 30 * S, vec![]);
    rotated.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 2 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    stack(&mut rotated);
    alloc(&mut rotated, MS, 1, MB);
    rotated.record(&Record::CheckpointEnd { time_ns: 2 * S });
    let late = [&FILE_HEADER[..], rotated.finish()].concat();
    crate::common::write(folder.path(), "parent.heaplog", &late);
    let text = ok(&["top", child]);
    assert!(
        text.contains("forked from pid 30: at least 1 samples in use then"),
        "{text}"
    );
    assert!(!text.contains("numbers are exact\n"), "{text}");

    // Read together with the parent, the child need not have it: it is the parent's.
    let parent = crate::common::write(folder.path(), "elsewhere.heaplog", &bytes);
    std::fs::remove_file(folder.path().join("parent.heaplog")).unwrap();
    let text = ok(&["top", child, parent.to_str().unwrap()]);
    assert!(!text.contains("is missing, because"), "{text}");
}

/// A window's numbers are those at its end less those at its beginning, and at both ways of saying
/// the beginning that is the same.
#[test]
fn it_is_in_use_at_the_start_and_not_allocated_after_it() {
    let folder = folder();
    let child = child(folder.path(), frees_what_it_inherited);
    let child = child.to_str().unwrap();
    let totals = |args: &[&str]| {
        let document = json(&[&["top", "--json", child], args].concat());
        let total = |key: &str| document["totals"][key].as_u64().unwrap();
        (total("in-use-bytes"), total("allocated-bytes"))
    };
    for start in ["start", "0", "0%"] {
        assert_eq!(totals(&["--at", start]).0, INHERITED * MB, "{start}");
        let own = 10 * 1000 + 30 * MB;
        assert_eq!(totals(&["--from", start]), (5000, own), "{start}");
        let diff = json(&["diff", "--json", child, "--at", start, "--at", "end"]);
        assert_eq!(diff["total"]["before"], (INHERITED * MB) as f64, "{start}");
    }
    assert_eq!(totals(&["--to", "end"]), totals(&["--from", "0"]));
}

/// A plug-in allocated, was unloaded, and another one was loaded at its place before the fork.
#[test]
fn blocks_of_a_plug_in_that_was_unloaded_before_the_fork_are_still_its_own() {
    let folder = folder();
    let plug_in = |number, time_ns, path: &str| {
        Record::Module(Module {
            number,
            time_ns,
            path: path.into(),
            build_id: vec![number as u8; 20],
            stamp: None,
            bias: 0x7000_0000,
            segments: vec![Segment {
                start: 0x7000_0000,
                len: 0x1000,
                file_offset: 0,
                flags: 5,
            }],
        })
    };
    let from = |encoder: &mut Encoder, number, frame| {
        encoder.record(&Record::Stack(Stack {
            number,
            end: WalkEnd::Root,
            frames: vec![0x10, frame],
            interrupted: vec![],
            labels: Vec::new(),
        }));
    };
    let block = |encoder: &mut Encoder, time_ns, id, stack| {
        encoder.alloc(&Alloc {
            time_ns,
            thread: 0,
            id,
            size: MB,
            slack: 0,
            stack,
            interval: 1,
        });
    };
    let mut parent = Encoder::new();
    start(&mut parent, 30, 30 * S, vec![]);
    parent.record(&plug_in(0, MS, "/lib/first.so"));
    from(&mut parent, 0, 0x7000_0100);
    block(&mut parent, 2 * MS, 1, 0);
    parent.record(&Record::ModuleGone {
        module: 0,
        time_ns: 3 * MS,
    });
    parent.record(&plug_in(1, 4 * MS, "/lib/second.so"));
    from(&mut parent, 1, 0x7000_0200);
    block(&mut parent, 5 * MS, 2, 1);
    let bytes = [&FILE_HEADER[..], parent.finish()].concat();
    let parent = crate::common::write(folder.path(), "parent.heaplog", &bytes);

    let mut child = Encoder::new();
    let settings = vec![
        (FORKED_AT.into(), (31 * S).to_string()),
        (PARENT_LOG.into(), parent.to_str().unwrap().into()),
    ];
    start(&mut child, 31, 31 * S, settings);
    let mut bytes = [&FILE_HEADER[..], child.finish()].concat();
    child.record(&plug_in(0, 0, "/lib/second.so"));
    from(&mut child, 0, 0x7000_0300);
    block(&mut child, MS, 3, 0);
    bytes.extend_from_slice(child.finish());
    let path = crate::common::write(folder.path(), "child.heaplog", &bytes);

    let profile = Input::open(&path).unwrap().read(|_| ()).unwrap();
    let mut modules: Vec<&str> = profile
        .rows
        .iter()
        .map(|row| {
            let stack = profile.stack_of(row);
            let place = profile.places(stack).last().unwrap();
            profile.module_of(place).map_or("", |m| m.path.as_str())
        })
        .collect();
    modules.sort_unstable();
    assert_eq!(
        modules,
        ["/lib/first.so", "/lib/second.so", "/lib/second.so"]
    );
}

/// In use at the child's end, and what is said of the blocks from before the fork.
fn in_use_and_remark(log: &Path) -> (u64, String) {
    let profile = Input::open(log).unwrap().read(|_| {}).unwrap();
    let remark = profile.run.markers[0].name.clone();
    (profile.numbers().in_use_bytes, remark)
}

/// Another user's file, or another run's, that stands where the parent's log was.
#[test]
fn a_parents_log_is_known_by_its_number_and_by_its_owner() {
    let folder = folder();
    let log = child(folder.path(), |_| {});
    let parent = folder.path().join("parent.heaplog");
    let (in_use, remark) = in_use_and_remark(&log);
    assert_eq!(in_use, INHERITED * MB, "{remark}");

    // Only root can give a file away. Root is then the user who asks, and believes its own files.
    let right = std::fs::read(&parent).unwrap();
    if std::os::unix::fs::chown(&parent, Some(12_345), None).is_ok() {
        let (in_use, remark) = in_use_and_remark(&log);
        assert_eq!(in_use, 0, "{remark}");
        assert!(
            remark.contains("missing") && remark.contains("another user's"),
            "{remark}"
        );
        // To the same user's child it belongs.
        std::os::unix::fs::chown(&log, Some(12_345), None).unwrap();
        assert_eq!(in_use_and_remark(&log).0, INHERITED * MB);
        std::os::unix::fs::chown(&log, Some(0), None).unwrap();
    }
    std::fs::remove_file(&parent).unwrap();

    // Process, clock and program are those of the parent: all of that can be seen from outside.
    for number in [0, 29] {
        let mut planted = Encoder::new();
        planted.record(&Record::Start(heapprof_format::Start {
            program: "/bin/server".into(),
            pid: 30,
            monotonic_ns: 30 * S,
            interval: 1,
            log_number: number,
            ..Default::default()
        }));
        stack(&mut planted);
        alloc(&mut planted, MS, 1, 1_000_000 * MB);
        let bytes = [&FILE_HEADER[..], planted.finish()].concat();
        std::fs::write(&parent, bytes).unwrap();
        let (in_use, remark) = in_use_and_remark(&log);
        assert_eq!(in_use, 0, "{remark}");
        assert!(remark.contains("is another log"), "{remark}");
        let text = ok(&["top", log.to_str().unwrap()]);
        assert!(
            !text.contains("numbers are exact") || text.contains("missing"),
            "{text}"
        );
    }
    std::fs::write(&parent, right).unwrap();
    assert_eq!(in_use_and_remark(&log).0, INHERITED * MB);
}

/// A log of a process with one block of its own, of a stack in a module at that place.
fn generation(
    folder: &Path,
    number: u32,
    module: &str,
    more: impl FnOnce(&mut Encoder),
) -> PathBuf {
    let mut log = Encoder::new();
    let began = u64::from(number) * S;
    let settings = match number {
        0 => vec![],
        number => vec![
            (FORKED_AT.into(), (began - MS).to_string()),
            (
                PARENT_LOG.into(),
                folder
                    .join(format!("{}.heaplog", number - 1))
                    .display()
                    .to_string(),
            ),
        ],
    };
    log.record(&Record::Start(Start {
        program: "/bin/server".into(),
        pid: 30 + number,
        forked_from: if number == 0 { 0 } else { 29 + number },
        monotonic_ns: began,
        interval: 1,
        settings,
        log_number: 100 + u64::from(number),
        parent_log_number: if number == 0 {
            0
        } else {
            99 + u64::from(number)
        },
        ..Start::default()
    }));
    let mut bytes = [&FILE_HEADER[..], log.finish()].concat();
    if !module.is_empty() {
        log.record(&Record::Module(Module {
            number: 0,
            time_ns: 0,
            path: module.into(),
            build_id: vec![],
            stamp: None,
            bias: 0x7000_0000,
            segments: vec![Segment {
                start: 0x7000_0000,
                len: 0x1000,
                file_offset: 0,
                flags: 5,
            }],
        }));
    }
    stack(&mut log);
    log.record(&Record::Stack(Stack {
        number: 1,
        end: WalkEnd::Root,
        frames: vec![0x10, 0x7000_0100],
        interrupted: vec![],
        labels: Vec::new(),
    }));
    log.alloc(&Alloc {
        time_ns: MS,
        thread: 0,
        id: u64::from(number) + 1,
        size: MB,
        slack: 0,
        stack: 1,
        interval: 1,
    });
    more(&mut log);
    bytes.extend_from_slice(log.finish());
    crate::common::write(folder, &format!("{number}.heaplog"), &bytes)
}

/// ```text
///   0  a block of first.so       still has it
///   1  a block of first.so       unloads it, and frees the block of 0
///   2  a block of second.so      which lies where first.so did
///   3  the child
/// ```
#[test]
fn blocks_of_all_ancestors_keep_their_modules() {
    let folder = folder();
    let folder = folder.path();
    generation(folder, 0, "/lib/first.so", |_| {});
    generation(folder, 1, "/lib/first.so", |log| {
        free(log, 2 * MS, 1);
        log.record(&Record::ModuleGone {
            module: 0,
            time_ns: 3 * MS,
        });
    });
    generation(folder, 2, "/lib/second.so", |_| {});
    let child = generation(folder, 3, "/lib/second.so", |_| {});
    let profile = Input::open(&child).unwrap().read(|_| ()).unwrap();
    let mut modules: Vec<&str> = profile
        .rows
        .iter()
        .map(|row| {
            let place = profile.places(profile.stack_of(row)).last().unwrap();
            profile.module_of(place).map_or("", |m| m.path.as_str())
        })
        .collect();
    modules.sort_unstable();
    assert_eq!(
        modules,
        ["/lib/first.so", "/lib/second.so", "/lib/second.so"]
    );
    assert_eq!(profile.numbers().in_use_bytes, 3 * MB);
}

/// Each log is read once, and none is read from within the reading of another.
#[test]
fn a_process_may_have_thousands_of_ancestors() {
    const GENERATIONS: u32 = 6000;
    let folder = folder();
    let mut last = PathBuf::new();
    for number in 0..GENERATIONS {
        last = generation(folder.path(), number, "", |_| {});
    }
    let text = ok(&["top", last.to_str().unwrap()]);
    let blocks = format!("in use {GENERATIONS} objects");
    assert!(text.contains(&blocks), "{text}");
}
