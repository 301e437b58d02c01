//! A log that rotates: totals and live set are the truth, whatever part of the past was thrown
//! away, and the files stay within their bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use heapprof_core::Totals;
use heapprof_format::{Counter, FILE_HEADER, Reader, Record};
use heapprof_symbolizer::{Ending, Input, Moment, Profile, ReadRequest, View};
use heapprof_tests::{Finished, Run, notes};

const BOUND: u64 = 256 << 10;

fn rotating(args: &[&str]) -> Run {
    Run::fixture("rotates")
        .args(args)
        .interval(1)
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .env("HEAPPROF_MAX_LOG", BOUND.to_string())
}

fn read(path: &Path) -> Profile {
    Input::open(path)
        .and_then(|input| input.read(|_| ()))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the files of the log of that base, the newest last.
fn segments(folder: &Path, base: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let middle = name
                .strip_prefix(base)
                .and_then(|rest| rest.strip_suffix("heaplog"));
            middle.is_some_and(|m| m.bytes().all(|b| b == b'.' || b.is_ascii_digit()))
        })
        .collect();
    files.sort_by_key(|path| number(path));
    files
}

/// Returns the number in a segment's own start.
fn number(path: &Path) -> u32 {
    let bytes = fs::read(path).unwrap();
    let mut reader = Reader::new(&bytes).unwrap();
    let first = reader.next_record().unwrap();
    assert!(
        matches!(first, Some(Record::Start(_))),
        "{}",
        path.display()
    );
    match reader.next_record() {
        Ok(Some(Record::Checkpoint(checkpoint))) => checkpoint.segment,
        _ => 1,
    }
}

/// Returns allocated and in use, by requested size.
fn by_size(profile: &Profile) -> BTreeMap<u64, (u64, u64)> {
    let mut sizes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for row in &profile.rows {
        let (all, live) = (&row.totals.allocated, &row.totals.in_use);
        let entry = sizes
            .entry(all.bytes().checked_div(all.objects()).unwrap_or(0))
            .or_default();
        entry.0 += all.objects();
        entry.1 += live.objects();
    }
    sizes
}

/// Returns every row, by its contents and not by its number.
fn by_stack(profile: &Profile) -> BTreeMap<(Vec<u64>, u8), Totals> {
    let rows = profile.rows.iter().map(|row| {
        let frames = profile.stack_of(row).frames.clone();
        assert!(!frames.is_empty());
        ((frames, row.class.0), row.totals)
    });
    let found: BTreeMap<_, _> = rows.collect();
    assert_eq!(found.len(), profile.rows.len());
    found
}

#[track_caller]
fn assert_is_the_truth(ran: &Finished, profile: &Profile) {
    let counts = ran.claims().counts;
    assert_eq!(counts.len(), 8, "{}", ran.stdout);
    let found = by_size(profile);
    for (size, allocated, in_use) in counts {
        assert!(allocated > 100);
        assert_eq!(
            found.get(&size),
            Some(&(allocated, in_use)),
            "blocks of {size}"
        );
    }
    let account = &profile.account;
    assert!(account.is_whole() && account.unknown_frees == 0 && account.unknown_stacks == 0);
    let lost = |(counter, _): &(Counter, u64)| *counter != Counter::LostNotReady;
    assert_eq!(account.losses().filter(lost).count(), 0, "{account:?}");
}

#[track_caller]
fn assert_within(files: &[PathBuf], bound: u64) {
    let bytes: u64 = files.iter().map(|p| fs::metadata(p).unwrap().len()).sum();
    assert!(bytes <= bound, "{bytes} bytes in {files:?}");
    assert!(
        bytes > bound / 4,
        "{bytes} bytes only: little of the past is kept"
    );
}

#[test]
fn totals_and_live_set_are_the_truth_after_many_rotations() {
    let ran = rotating(&["60000"]).run().well();
    assert!(ran.said().is_empty(), "{:?}", ran.said());
    let files = segments(ran.folder(), "t");
    let newest = ran.folder().join("t.heaplog");
    assert_eq!(files.last(), Some(&newest));
    assert!(files.len() >= 2, "{files:?}");
    assert!(number(&newest) > 10, "{}", number(&newest));
    assert_within(&files, BOUND);

    let all = read(&newest);
    assert_is_the_truth(&ran, &all);
    assert_eq!(all.account.segments.len(), files.len());
    let checkpoint = all.run.checkpoint.expect("the first segments are gone");
    assert_eq!(checkpoint.segment, number(&files[0]));
    assert!(matches!(all.run.ending, Ending::Said(_)));

    // Any segment leads to all segments.
    for file in &files {
        assert_eq!(read(file), all, "{}", file.display());
    }
    // The newest alone, and the oldest with the following ones behind it, are equal.
    let elsewhere = tempfile::tempdir().unwrap();
    let alone = elsewhere.path().join("alone.heaplog");
    fs::copy(&newest, &alone).unwrap();
    let alone = read(&alone);
    assert_eq!(by_stack(&alone), by_stack(&all));
    assert_eq!(
        (alone.peak.unwrap().bytes, alone.requested),
        (all.peak.unwrap().bytes, all.requested)
    );
    let together = elsewhere.path().join("together.heaplog");
    let bytes: Vec<Vec<u8>> = files.iter().map(|path| fs::read(path).unwrap()).collect();
    fs::write(&together, bytes.concat()).unwrap();
    assert_eq!(read(&together), all);
}

#[test]
fn what_is_before_the_oldest_segment_is_refused_and_what_is_after_is_exact() {
    let ran = rotating(&["60000"]).run().well();
    let input = Input::open(&ran.folder().join("t.heaplog")).unwrap();
    let whole = input.read(|_| ()).unwrap();
    let begins_ns = whole.run.checkpoint.unwrap().time_ns;
    let part = |view: View| {
        let request = ReadRequest {
            view,
            ..ReadRequest::default()
        };
        input.read_part(&request, |_| ())
    };
    let error = part(View::At(Moment::After(begins_ns - 1000))).unwrap_err();
    assert!(
        error.to_string().contains("before what is kept in detail"),
        "{error}"
    );
    assert!(part(View::Window(Moment::After(0), Moment::End)).is_err());

    let at_end = part(View::At(Moment::End)).unwrap();
    assert_eq!(by_stack(&at_end), by_stack(&whole));
    // From the start of the run is the whole.
    let from_start = part(View::Window(Moment::Start, Moment::End)).unwrap();
    assert_eq!(by_stack(&from_start), by_stack(&whole));

    // A window's allocations are the end's less those of its beginning. It begins in the middle of
    // the kept part, or nearer to that part's beginning if the program waited long for its end.
    let allocated = |profile: &Profile| profile.totals().allocated;
    let kept_ns = whole.run.duration_ns - begins_ns;
    let (middle, window) = (1..10)
        .map(|halvings| Moment::After((begins_ns + (kept_ns >> halvings)) / 1000 * 1000))
        .map(|middle| {
            let window = part(View::Window(middle.clone(), Moment::End)).unwrap();
            (middle, window)
        })
        .find(|(_, window)| allocated(window).samples > 0)
        .expect("something was allocated in what is kept");
    let before = part(View::At(middle)).unwrap();
    assert_eq!(
        allocated(&whole).without(&allocated(&before)),
        allocated(&window)
    );

    // The commands agree.
    let log = ran.folder().join("t.heaplog");
    let info = Run::heapprof().arg("info").arg(&log).run().well().stdout;
    assert!(info.contains("older segments"), "{info}");
    let top = Run::heapprof()
        .args(["top", "--metric", "heaptime"])
        .arg(&log)
        .run()
        .well();
    assert!(top.stderr.contains("detail begins at"), "{}", top.stderr);
    let refused = Run::heapprof()
        .args(["top", "--at", "0.001"])
        .arg(&log)
        .run();
    assert!(!refused.status.success());
    assert!(
        refused.stderr.contains("HEAPPROF_MAX_LOG"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_bundle_holds_all_segments() {
    let ran = rotating(&["60000"]).run().well();
    let log = ran.folder().join("t.heaplog");
    let made = Run::heapprof()
        .args(["bundle", "-o", "t.tar"])
        .arg(&log)
        .run()
        .well();
    let (bundled, all) = (read(&made.folder().join("t.tar")), read(&log));
    assert_eq!(by_stack(&bundled), by_stack(&all));
    assert_eq!(bundled.account.segments, all.account.segments);
    assert!(all.account.segments.len() >= 2);
}

/// Killed after its work, up to the last flush; the last tenth of a second may be missing.
#[test]
fn a_killed_process_leaves_readable_segments() {
    for delay_us in [0, 900, 2_300, 4_100, 7_700, 13_000] {
        let mut running = rotating(&["100000000"]).start();
        running.until("rotations", |running| segments_len(running.folder()) >= 4);
        std::thread::sleep(std::time::Duration::from_micros(delay_us));
        running.signal(9);
        let ran = running.wait();
        let newest = ran.folder().join("t.heaplog");
        let all = read(&newest);
        let account = &all.account;
        assert!(
            account.damage.is_empty() && account.missing_frames == 0,
            "{account:?}"
        );
        assert_eq!((account.unknown_frees, account.unknown_stacks), (0, 0));
        assert_eq!(all.run.ending, Ending::CutOff);
        if all.run.checkpoint.is_some() {
            assert!(account.segments.len() >= 2, "{account:?}");
            // The newest alone has the same account: nothing fell between two segments.
            let elsewhere = tempfile::tempdir().unwrap();
            let alone = elsewhere.path().join("t.heaplog");
            fs::copy(&newest, &alone).unwrap();
            assert_eq!(by_stack(&read(&alone)), by_stack(&all));
        }
    }
}

/// At every step of a rotation, the existing files are the log up to then.
#[test]
fn a_rotation_that_was_cut_off_anywhere_is_read_up_to_there() {
    let ran = rotating(&["60000"]).run().well();
    let files = segments(ran.folder(), "t");
    let [.., before, last] = &files[..] else {
        panic!("{files:?}")
    };
    let (before, last) = (fs::read(before).unwrap(), fs::read(last).unwrap());
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |name: &str| elsewhere.path().join(name);
    fs::write(at("t.heaplog"), &before).unwrap();
    let up_to_then = by_stack(&read(&at("t.heaplog")));
    let whole_at = checkpoint_len(&last);
    assert!(whole_at > 4000);
    // The next segment is being written under its number …
    for len in [0, 3, 8, 20, whole_at / 3, whole_at - 1] {
        fs::write(at("t.0007.heaplog"), &last[..len]).unwrap();
        let profile = read(&at("t.heaplog"));
        assert_eq!(by_stack(&profile), up_to_then, "{len} bytes");
        assert!(
            profile.account.is_whole(),
            "{len} bytes: {:?}",
            profile.account
        );
    }
    // … it is whole …
    fs::write(at("t.0007.heaplog"), &last[..whole_at]).unwrap();
    assert_eq!(by_stack(&read(&at("t.heaplog"))), up_to_then);
    // … both have the newest's name, where that takes two steps …
    fs::rename(at("t.0007.heaplog"), at("t.heaplog")).unwrap();
    fs::write(at("t.0007.heaplog.old"), &before).unwrap();
    assert_eq!(by_stack(&read(&at("t.heaplog"))), up_to_then);
    assert_eq!(read(&at("t.heaplog")).account.segments.len(), 2);
}

/// Returns the bytes of a segment up to the end of its checkpoint.
fn checkpoint_len(bytes: &[u8]) -> usize {
    let mut reader = Reader::new(bytes).unwrap();
    loop {
        match reader.next_record().unwrap().unwrap() {
            Record::CheckpointEnd { .. } => return reader.offset() as usize,
            _ => continue,
        }
    }
}

#[test]
fn a_forked_child_rotates_as_well_and_has_what_it_inherited() {
    let ran = rotating(&["30000", "fork"]).run().well();
    let (_, child) = ran
        .claims()
        .pids
        .into_iter()
        .find(|(kind, _)| kind == "child")
        .unwrap();
    let base = format!("t_{child}");
    let files = segments(ran.folder(), &base);
    assert!(number(files.last().unwrap()) > 5, "{files:?}");
    assert_within(&files, BOUND);
    let profile = read(&ran.folder().join(format!("{base}.heaplog")));
    assert!(profile.run.checkpoint.is_some());
    let counts = ran.claims().counts;
    let found = by_size(&profile);
    for (size, allocated, in_use) in counts {
        assert_eq!(
            found.get(&size),
            Some(&(allocated, in_use)),
            "blocks of {size}"
        );
    }
    assert_eq!(profile.account.unknown_frees, 0);
}

#[test]
fn a_segment_that_is_no_longer_ours_is_left_alone() {
    // The newest becomes a link to a foreign file: the log ends, and that file stays unchanged.
    let mut running = rotating(&["100000000"]).start();
    let newest = running.folder().join("t.heaplog");
    let theirs = running.folder().join("theirs");
    fs::write(&theirs, "theirs").unwrap();
    // An older one becomes a link: it is not deleted in its turn. It is neither the oldest, which
    // may be deleted at this moment, nor the latest, which may be half written.
    let older = loop {
        running.until("segments", |running| segments_len(running.folder()) >= 4);
        running.signal(libc::SIGSTOP);
        let stat = format!("/proc/{}/stat", running.pid());
        running.until("its stop", |_| {
            fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
        let mut numbered: Vec<PathBuf> = fs::read_dir(running.folder())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                heapprof_symbolizer::newest_of(&name).is_some()
            })
            .collect();
        numbered.sort();
        if let [_, older, _, ..] = &numbered[..] {
            break older.clone();
        }
        running.signal(libc::SIGCONT);
    };
    let link = running.folder().join("link");
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    fs::rename(&link, &older).unwrap();
    running.signal(libc::SIGCONT);
    running.until("its time", |_| {
        let mut notes = notes(&newest).into_iter();
        notes.any(|it| it.contains("is no longer ours")) || fs::symlink_metadata(&older).is_err()
    });
    assert_eq!(fs::read_link(&older).unwrap(), theirs);
    let link = running.folder().join("link");
    std::os::unix::fs::symlink(&theirs, &link).unwrap();
    fs::rename(&link, &newest).unwrap();
    running.until("the line about the newest", |running| {
        running.stderr_so_far().contains("the log ends here")
    });
    running.signal(9);
    let ran = running.wait();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");
    assert_eq!(fs::read_link(&newest).unwrap(), theirs);
    assert_eq!(ran.said().len(), 1, "{:?}", ran.said());
}

fn segments_len(folder: &Path) -> usize {
    fs::read_dir(folder)
        .unwrap()
        .filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with("heaplog")
        })
        .count()
}

#[test]
fn a_bound_too_small_for_the_live_set_is_said_once_and_the_log_goes_on() {
    let ran = rotating(&["20000", "end", "1000"])
        .env("HEAPPROF_MAX_LOG", "1")
        .run()
        .well();
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    ran.assert_said(&["using 65536"]);
    let kept = notes(&ran.folder().join("t.heaplog")); // of a later segment
    assert!(
        kept.iter().any(|it| it.contains("it takes up to")),
        "{kept:?}"
    );
    let profile = read(&ran.folder().join("t.heaplog"));
    assert_is_the_truth(&ran, &profile);
    assert!(profile.run.checkpoint.is_some());
}

/// Ever new stacks: checkpoints would be as large as the log, which has no second segment.
#[test]
fn a_bound_too_small_for_the_stacks_is_said_once_and_the_log_goes_on() {
    // Each bit of the number is a call from one of two places.
    const NEW_STACKS: &str = r#"
        #include <stdlib.h>
        __attribute__((noinline)) int calls(unsigned number, int bits)
        {
            if (bits == 0) {
                free(malloc(20001));
                return 1;
            }
            if (number & 1)
                return calls(number >> 1, bits - 1) + 1;
            return calls(number >> 1, bits - 1) + 2;
        }
        int main(void)
        {
            for (unsigned number = 0; number < 8192; number++)
                calls(number, 13);
            return 0;
        }
    "#;
    let run = Run::compiled("stacks", NEW_STACKS, &["-O1", "-fno-builtin"]).interval(1);
    let ran = run.prefix("t").env("HEAPPROF_MAX_LOG", "64K").run().well();
    assert_eq!(ran.stderr, "");
    let told = notes(&ran.folder().join("t.heaplog"));
    let told = told.iter().filter(|it| it.contains("it takes up to"));
    assert_eq!(told.count(), 1);
    assert_eq!(ran.log().blocks_of(20001).len(), 8192);
}

/// Threads that have ended take no room in checkpoints.
#[test]
fn threads_that_come_and_go_stay_within_the_bound() {
    const SHORT_THREADS: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        void *allocates(void *unused)
        {
            free(malloc(20001));
            return unused;
        }
        int main(void)
        {
            for (int thread = 0; thread < 30000; thread++) {
                pthread_t started;
                if (pthread_create(&started, NULL, allocates, NULL) != 0) return 1;
                pthread_join(started, NULL);
            }
            return 0;
        }
    "#;
    let flags = ["-O1", "-fno-builtin", "-pthread"];
    let run = Run::compiled("threads", SHORT_THREADS, &flags).interval(1);
    let run = run.prefix("t").env("HEAPPROF_MAX_LOG", BOUND.to_string());
    let ran = run.run().well();
    let files = segments(ran.folder(), "t");
    assert!(files.len() > 1);
    assert_within(&files, BOUND);
    let profile = read(files.last().unwrap());
    let allocated = by_size(&profile).get(&20001).map(|counts| counts.0);
    assert_eq!(allocated, Some(30000));
}

#[test]
fn files_of_others_under_our_names_are_passed_over() {
    let run = rotating(&["30000"]);
    let theirs = ["t.0001.heaplog", "t.0003.heaplog"].map(|name| run.folder().join(name));
    for path in &theirs {
        fs::write(path, FILE_HEADER).unwrap();
    }
    let ran = run.run().well();
    for path in &theirs {
        assert_eq!(fs::read(path).unwrap(), FILE_HEADER);
    }
    assert_is_the_truth(&ran, &read(&ran.folder().join("t.heaplog")));
}

/// On a file system of 160 KiB, with a bound beyond it: the oldest segments make room, for frames
/// and for new segments, and the log goes on to its end.
#[test]
fn on_a_full_disk_the_oldest_segments_make_room() {
    let ran = on_a_small_disk("160k", "400k", "60000");
    let log = ran.folder().join("kept").join("t.heaplog");
    let mut profile = read(&log);
    // The last dump finds room beside the log by chance.
    let counters = &mut profile.account.counters;
    counters.retain(|(counter, _)| *counter != Counter::LostDumps);
    assert_is_the_truth(&ran, &profile);
    assert!(profile.run.checkpoint.is_some());
    // With room for them, two or three more would have been kept.
    assert!(segments(&ran.folder().join("kept"), "t").len() <= 2);
    assert!(matches!(profile.run.ending, Ending::Said(_)));
}

/// Not even one segment fits beside another: the log ends with a record of that, its existing part
/// can be read, and the program goes on.
#[test]
fn on_a_disk_too_small_for_two_segments_the_log_ends() {
    let ran = on_a_small_disk("40k", "1M", "60000");
    assert_eq!(ran.claims().counts.len(), 8);
    assert!(
        (ran.library_messages().iter())
            .chain(&notes(&ran.folder().join("kept/t.heaplog")))
            .any(|line| line.contains("the log ends here")),
        "{:?}",
        ran.said()
    );
    let profile = read(&ran.folder().join("kept").join("t.heaplog"));
    // The frame that did not fit is missing, and reported.
    let account = &profile.account;
    assert!(
        account.damage.is_empty() && account.torn.is_none(),
        "{account:?}"
    );
    assert_eq!(account.unknown_frees, 0);
}

/// Runs the fixture with its files on a file system of that size of its own; `kept` has the files
/// that it leaves there.
fn on_a_small_disk(size: &str, bound: &str, operations: &str) -> Finished {
    let build = heapprof_tests::Build::get();
    let script = format!(
        "mkdir disk kept && mount -t tmpfs -o size={size} none disk && \
         LD_PRELOAD={} HEAPPROFILE=$PWD/disk/t {} {operations} && cp disk/* kept/",
        build.library().display(),
        build.fixture("rotates").display()
    );
    Run::tool("/usr/bin/unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .interval(1)
        .env("HEAPPROF_MAX_LOG", bound)
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
        .run()
        .well()
}

/// Stops for a moment at its beginning, and then fills segment after segment.
const STOPS_EARLY: &str = r#"
#include <stdlib.h>
#include <unistd.h>
void HeapProfilerStart(const char *prefix) __attribute__((weak));
void HeapProfilerStop(void) __attribute__((weak));
int main(void)
{
    free(malloc(100));
    HeapProfilerStop();
    for (int i = 0; i < 1000; i++) {
        void *volatile block = malloc(5000);
        free(block);
    }
    usleep(20000);
    HeapProfilerStart(NULL);
    for (int i = 0; i < 300000; i++) {
        void *volatile block = malloc(16 + i % 512);
        free(block);
    }
    return 0;
}
"#;

/// A child frees inherited blocks, forks, and rotates on: its own child uses the times of those
/// frees.
#[test]
fn what_was_freed_before_a_fork_is_not_inherited_from_a_checkpoint() {
    const SOURCE: &str = r#"
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static void *of_parent[200], *live[2000];
        int main(void)
        {
            for (int i = 0; i < 200; i++) of_parent[i] = malloc(10000 + i);
            if (fork() > 0) return wait(NULL) < 0;
            void *volatile mine = malloc(77);
            for (int i = 0; i < 200; i++) free(of_parent[i]);
            usleep(300000);
            if (fork() == 0) {
                mine = malloc(55);
                return 0;
            }
            wait(NULL);
            for (int round = 0; round < 60; round++) {
                for (int i = 0; i < 2000; i++) {
                    free(live[i]);
                    live[i] = malloc(100 + i % 50);
                }
                usleep(20000);
            }
            return 0;
        }
    "#;
    let ran = Run::compiled("freed_before", SOURCE, &["-w"])
        .interval(1)
        .env("HEAPPROF_MAX_LOG", BOUND.to_string())
        .run()
        .well();
    let logs = ran.files_ending(".heaplog");
    let profiles = logs.iter().map(|log| read(&ran.folder().join(log)));
    let youngest = profiles.map(|profile| by_size(&profile));
    let youngest = youngest.into_iter().find(|sizes| sizes.contains_key(&55));
    let in_use = youngest.expect("the youngest process's log").into_iter();
    let in_use: Vec<u64> = in_use
        .filter(|(_, (_, in_use))| *in_use > 0)
        .map(|(size, _)| size)
        .collect();
    assert_eq!(in_use, [55, 77]);
}

/// An unrecorded time stays known for as long as there is a log.
#[test]
fn a_stop_is_remembered_when_its_segment_is_gone() {
    let ran = Run::compiled("stops", STOPS_EARLY, &[])
        .interval(1)
        .prefix("t")
        .env("HEAPPROF_MAX_LOG", BOUND.to_string())
        .run()
        .well();
    assert!(number(&ran.folder().join("t.heaplog")) > 3);
    let profile = read(&ran.folder().join("t.heaplog"));
    assert!(
        profile.run.checkpoint.is_some(),
        "the first segments are gone"
    );
    let intervals = profile.run.regimes.iter().map(|regime| regime.interval);
    assert_eq!(intervals.collect::<Vec<_>>(), [0, 1]);
    let log = ran.folder().join("t.heaplog");
    let top = Run::heapprof().arg("top").arg(log).run().well().stdout;
    assert!(top.contains("recording was stopped"), "{top}");
}
