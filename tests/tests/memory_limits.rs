//! Limits of the memory: markers before the end, and what a log says after it.

use std::fs;
use std::path::Path;

use heapprof_tests::{Finished, Json, Log, MemoryCgroup, Run, Running};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 160 * MIB;

/// Grows to shares of its limit, waits for a file at each, and grows on until it is killed.
const GROWS: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *kept[100000];
    static int count;
    static size_t used(const char *path) {
        size_t bytes = 0;
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%zu", &bytes) != 1) exit(2);
        fclose(file);
        return bytes;
    }
    static __attribute__((noipa)) void keeps_for_ever(void) {
        memset(kept[count++] = malloc(500000), 1, 500000);
    }
    int main(int argc, char **argv) {
        size_t limit = strtoul(argv[2], 0, 0);
        int percent[] = {82, 92, 97};
        if (argc < 3) return 1;
        for (int i = 0; i < 3; i++) {
            char step[16];
            while (used(argv[1]) < limit / 100 * percent[i]) keeps_for_ever();
            snprintf(step, sizeof step, "step-%d", i);
            while (access(step, F_OK)) {
                free(malloc(1000));
                usleep(10000);
            }
        }
        for (;;) keeps_for_ever();
    }
"#;

/// The markers of the log so far that are about memory.
fn markers(folder: &Path) -> Vec<String> {
    let log = Log::current(folder);
    let names = log.iter().flat_map(Log::markers);
    names
        .filter(|name| name.contains("memory at "))
        .map(str::to_owned)
        .collect()
}

/// Runs the program in a cgroup until the kernel kills it. At each share of the limit, the program
/// waits for what is written then: a marker, and a dump if dumps are wanted.
fn killed(run: Run, cgroup: &MemoryCgroup, dumps: bool) -> Finished {
    let run = run
        .interval(1)
        .env("HEAPPROF_MEMORY_INTERVAL_MS", "50")
        .arg(cgroup.usage())
        .arg(LIMIT.to_string())
        .in_cgroup(cgroup);
    let mut running: Running = run.start();
    for step in 0..3 {
        running.until("a marker", |running| {
            let folder = running.folder();
            markers(folder).len() > step && (!dumps || dumps_in(folder) > step)
        });
        fs::write(running.folder().join(format!("step-{step}")), "").unwrap();
    }
    let ran = running.wait();
    assert_eq!(ran.code(), 128 + libc::SIGKILL, "{ran:?}");
    ran
}

/// Returns the number of dumps that are complete.
fn dumps_in(folder: &Path) -> usize {
    let files = fs::read_dir(folder).unwrap();
    let names = files.map(|file| file.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|it| it == "heap"))
        .count()
}

fn shown(log: &Path, words: &[&str]) -> String {
    Run::heapprof().args(words).arg(log).run().well().stdout
}

/// Checks what the commands say of the process that was killed.
fn assert_explains(log: &Path, name_of_95: &str) {
    let Json(top) = Json::parse(&shown(log, &["top", "--json", "--at", "end"]));
    let first = &top["sites"][0];
    assert_eq!(first["function"], "keeps_for_ever", "{top:#}");
    let in_use = first["self"]["in-use-bytes"].as_f64().unwrap();
    assert!(in_use > 0.8 * LIMIT as f64, "{in_use}");

    for at in ["end", name_of_95] {
        let Json(rss) = Json::parse(&shown(log, &["rss", "--json", "--at", at]));
        let bytes = |field: &str| rss["reading"][field].as_f64().unwrap_or(0.0);
        assert_eq!(bytes("cgroup_max"), LIMIT as f64, "{at}");
        assert!(bytes("cgroup_used") > 0.95 * LIMIT as f64, "{at}: {rss:#}");
        assert!(rss["resident_bytes"].as_f64().unwrap() > 0.8 * LIMIT as f64);
    }
    let text = shown(log, &["rss"]);
    assert!(text.contains("the cgroup's limit: "), "{text}");
}

#[test]
fn a_cgroup_that_fills_up_is_told_before_and_after_the_end() {
    let Some(cgroup) = MemoryCgroup::with_limit(LIMIT) else {
        return;
    };
    let ran = killed(
        Run::compiled("fills_its_cgroup", GROWS, &[]),
        &cgroup,
        false,
    );
    let markers = markers(ran.folder());
    let shares: Vec<_> = markers.iter().map(|name| &name[..14]).collect();
    assert_eq!(
        shares,
        ["memory at 80 %", "memory at 90 %", "memory at 95 %"]
    );
    assert!(markers[0].contains("the cgroup's memory."), "{markers:?}");
    assert_explains(&ran.log_path(), "memory at 95");
}

/// Where dumps are wanted, one is written at each share.
#[test]
fn a_cgroup_that_fills_up_is_dumped_before_the_end() {
    let Some(cgroup) = MemoryCgroup::with_limit(LIMIT) else {
        return;
    };
    let run = Run::compiled("fills_its_cgroup", GROWS, &[]).prefix("t");
    let ran = killed(run.env("HEAP_PROFILE_INUSE_INTERVAL", "0"), &cgroup, true);
    assert_eq!(ran.files_ending(".heap").len(), 3);
    let markers = markers(ran.folder());
    assert_eq!(markers.len(), 3, "{markers:?}");
    assert_explains(&ran.folder().join("t.heaplog"), &markers[2]);
}

/// Writes a file of 40 MiB, which stays in the page cache. Then it grows by ten mebibytes a second
/// until it is killed.
const GROWS_STEADILY: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(void) {
        static char page[1 << 20];
        int file = open("cached", O_CREAT | O_RDWR, 0600);
        for (int i = 0; i < 40; i++) write(file, page, sizeof page);
        fsync(file);
        for (;;) {
            size_t bytes = 100 << 10;
            memset(malloc(bytes), 1, bytes);
            usleep(10000);
        }
    }
"#;

/// Regular readings come once a second. This process needs a third of that for a twentieth of its
/// limit. Pages of files are taken back before it is killed.
#[test]
fn a_limit_that_comes_nearer_is_looked_at_more_often() {
    const LIMIT: u64 = 64 * MIB;
    let Some(cgroup) = MemoryCgroup::with_limit(LIMIT) else {
        return;
    };
    let run = Run::compiled("grows_steadily", GROWS_STEADILY, &[]).interval(1);
    let ran = run.in_cgroup(&cgroup).start().wait();
    assert_eq!(ran.code(), 128 + libc::SIGKILL, "{ran:?}");
    let markers = markers(ran.folder());
    assert_eq!(markers.len(), 3, "{markers:?}");
    for (percent, name) in [80, 90, 95].into_iter().zip(&markers) {
        assert!(
            name.starts_with(&format!("memory at {percent} %")),
            "{name}"
        );
        let rss = shown(&ran.log_path(), &["rss", "--json", "--at", name]);
        let Json(rss) = Json::parse(&rss);
        let read = |field: &str| rss["reading"][field].as_u64().unwrap();
        let used = read("cgroup_used") - read("cgroup_files");
        let least = LIMIT / 100 * percent;
        assert!((least..least + 3 * MIB).contains(&used), "{name}: {used}");
    }
}
