//! Threads: many and short ones, threads that end in the middle of something, and threads that
//! allocate while they end.

use std::collections::BTreeSet;

use gimli::UnwindSection as _;
use heapprof_format::Counter;
use heapprof_tests::{Build, Finished, Log, Run, assert_claims};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

/// Returns two numbers of a line of the fixture.
fn numbers(ran: &Finished, word: &str) -> (u64, u64) {
    let line = ran
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(word)?.trim().split_once(' '));
    let (a, b) = line.unwrap_or_else(|| panic!("no {word} in {}", ran.stdout));
    (a.parse().unwrap(), b.parse().unwrap())
}

/// Every one of 10,240 threads is in the log. Between 20,480 and 163,840 threads the process does
/// not grow, whether everything is recorded or a sample, with dumps or without. 32 bytes kept of
/// each thread would be 4480 KiB. The memory in use at a moment, of the program's blocks and stacks
/// and of the library, varies by up to 1.8 MiB on a busy machine, for any number of threads.
#[test]
fn short_threads() {
    let ran = Run::fixture("short_threads").interval(1).prefix("t");
    let log = assert_claims(&ran.run().well());
    let blocks = log.blocks_of(34001).into_iter();
    let threads: BTreeSet<u32> = blocks.map(|block| block.thread).collect();
    assert_eq!(threads.len(), 10_240);

    for (interval, dumps) in [(1, true), (4096, false)] {
        let mut run = Run::fixture("short_threads").arg("163840");
        if dumps {
            run = run.prefix("t");
        }
        let ran = run.interval(interval).run().well();
        let (before, after) = numbers(&ran, "anonymous_kib");
        println!("interval {interval}: {before} KiB after 20,480 threads, {after} after 163,840");
        assert!(after < before + 3072, "{interval}: {before} {after}");
    }
}

/// Threads of one block each, of as many bytes as the mean distance of two marks.
const ONE_BLOCK_EACH: &str = r#"
#include <pthread.h>
#include <stdlib.h>
enum { THREADS = 10000 };
static void *allocates(void *unused)
{
    void *volatile block = malloc(4096);
    free(block);
    return unused;
}
int main(void)
{
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, allocates, NULL);
        pthread_join(thread, NULL);
    }
    return 5;
}
"#;

/// Each thread has marks of its own: one thread's samples tell nothing of the next. Each of 10,000
/// blocks is a sample with probability 1 - 1/e, and as many are samples as that predicts.
#[test]
fn threads_draw_marks_of_their_own() {
    const BLOCKS: f64 = 10_000.0;
    let run = Run::compiled("one_block_each", ONE_BLOCK_EACH, &["-pthread"]);
    let ran = run.interval(4096).prefix("t").run();
    assert_eq!((ran.code(), &*ran.stderr), (5, ""));
    let log = ran.log().whole();
    let sampled = log.blocks_of(4096).len() as f64;
    let p = 1.0 - (-1.0f64).exp();
    let error = (BLOCKS * p * (1.0 - p)).sqrt();
    assert!((sampled - BLOCKS * p).abs() < 5.0 * error, "{sampled}");
}

/// Destructors of C++ and of pthread keys, before and after the allocator's own.
#[test]
fn thread_end() {
    let ran = Run::fixture("thread_end").interval(1).prefix("t");
    assert_claims(&ran.run().well());
}

/// After every cancellation threads are still sampled, and none ends inside the allocator.
#[test]
fn cancel_storm() {
    // A fault depends on the layout of the library's code, and then shows in one run of four.
    for interval in [1, 4096].repeat(10) {
        let ran = Run::fixture("cancel_storm").interval(interval).prefix("t");
        let ran = ran.run().well();
        assert_eq!(ran.claims().ok, ["cancelled"]);
        assert_eq!(ran.stderr, "");
        let log = ran.log().whole();
        if interval == 1 {
            assert_eq!(log.blocks_of(36002).len(), 10_000);
            assert_eq!(log.blocks_of(36003).len(), 100);
            assert!(log.blocks_of(36002).iter().all(|block| !block.in_use));
        }
        assert_eq!(log.losses().values().sum::<u64>(), 0, "{:?}", log.losses());
    }
}

/// Returns the library's functions with a language-specific data area, which tells an unwinder what
/// to do.
fn functions_with_a_say() -> BTreeSet<String> {
    let library = std::fs::read(Build::get().library()).unwrap();
    let file = object::File::parse(&*library).unwrap();
    let section = file.section_by_name(".eh_frame").unwrap();
    let bytes = section.uncompressed_data().unwrap();
    let eh_frame = gimli::EhFrame::new(&bytes, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut with_a_say = BTreeSet::new();
    let mut entries = eh_frame.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        if let gimli::CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(gimli::EhFrame::cie_from_offset).unwrap();
            if fde.lsda().is_some() {
                with_a_say.insert(fde.initial_address());
            }
        }
    }
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let functions = symbols.filter(|it| with_a_say.contains(&it.address()));
    functions
        .filter_map(|it| Some(it.name().ok()?.to_owned()))
        .collect()
}

/// A thread that is cancelled asynchronously is unwound from any instruction of a hook before or
/// after the deferral. If a function with a data area does not expect that, libc ends the program
/// ("exception not rethrown"). `cancel_storm` meets that by chance.
#[test]
fn a_thread_may_be_unwound_from_anywhere_around_a_hook() {
    const AROUND: [&str; 3] = ["8heapprof7exports", "8heapprof9operators", "8heapprof4fast"];
    let with_a_say = functions_with_a_say();
    // Functions that catch their own panics have a data area, and run with cancellation deferred.
    for hook in ["15sample_deferred", "19end_sample_deferred"] {
        assert!(with_a_say.iter().any(|name| name.contains(hook)), "{hook}");
    }
    let is_around = |name: &&String| {
        AROUND.iter().any(|module| name.contains(module))
            || [
                "malloc",
                "calloc",
                "realloc",
                "reallocarray",
                "free",
                "memalign",
                "_Znwm",
                "_ZdlPv",
            ]
            .contains(&name.as_str())
    };
    let wrong: Vec<&String> = with_a_say.iter().filter(is_around).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A thread that was cancelled, and has not reached a cancellation point. Its first block begins a
/// profiler's work, if that samples hardly anything but blocks of 1 GiB. The second is allocated by
/// code that was just loaded. The many after it fill every queue to a profiler.
const IS_CANCELLED_BEFORE: &str = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { GIB = 1 << 30, MANY = 300000 };
void *kept[2];
static void *(*plugin_entry)(void);
static volatile int is_ready, is_cancelled, has_returned;
static void *allocates(void *unused)
{
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    is_ready = 1;
    while (!is_cancelled) {}
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    kept[0] = malloc(GIB);
    kept[1] = plugin_entry();
    for (int i = 0; i < MANY; i++) {
        void *volatile block = malloc(1000);
        free(block);
    }
    has_returned = 1;
    for (;;) pthread_testcancel();
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t thread;
    void *result;
    void *plugin = dlopen(argv[argc - 1], RTLD_NOW);
    if (plugin == NULL) return 2;
    *(void **)&plugin_entry = dlsym(plugin, "plugin_b_entry");
    pthread_create(&thread, NULL, allocates, NULL);
    while (!is_ready) {}
    pthread_cancel(thread);
    is_cancelled = 1;
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED && has_returned ? 5 : 1;
}
"#;

/// No call of the library is a cancellation point: not where a session begins, not where a module
/// is learned, not where a hook waits.
#[test]
fn a_thread_that_is_cancelled_goes_on_to_its_next_cancellation_point() {
    for interval in [1, 64 << 20] {
        let run = Run::compiled("is_cancelled", IS_CANCELLED_BEFORE, &["-pthread", "-ldl"]);
        let plugin = Build::get().fixture("plugin_b.so");
        let ran = run.arg(&plugin).interval(interval).prefix("t").run();
        assert_eq!((ran.code(), &*ran.stderr), (5, ""), "{interval}");
        let log = ran.log().whole();
        assert_eq!(log.blocks_of(1 << 30).len(), 1, "{interval}");
        assert!(interval > 1 || log.blocks_of(1000).len() == 300_000);
    }
}

/// A forked child, one of whose threads is stopped by its parent while the child's session begins,
/// as soon as its log exists (`<prefix>_<pid>.heaplog`). Another thread goes on allocating. Each
/// block of 1 GiB is sampled, and hardly any other.
const STOPPED_AT_ITS_BEGINNING: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { GIB = 1 << 30, TIMES = 10 };
struct both { volatile int thread, has_begun, is_stopped, may_go; } *both;
void *kept[3];
static void *begins(void *unused)
{
    both->thread = gettid();
    kept[0] = malloc(GIB + 1);
    both->has_begun = 1;
    return unused;
}
static double allocates(int times)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < times; i++) {
        void *volatile block = malloc(GIB + 2);
        free(block);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1e3 + (end.tv_nsec - begin.tv_nsec) / 1e6;
}
static int is_child(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, begins, NULL);
    while (!both->is_stopped && !both->has_begun) usleep(100);
    if (both->is_stopped) {
        double first = allocates(1);
        double then = allocates(TIMES);
        printf("stopped %d first %.0f then %.0f\n", (int)getpid(), first, then);
        fflush(stdout);
    }
    both->may_go = 1;
    pthread_join(thread, NULL);
    kept[1] = malloc(GIB + 3);
    return 3;
}
int main(int argc, char **argv)
{
    char log_path[4096];
    int status = 1;
    both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    if (child == 0) exit(is_child());
    snprintf(log_path, sizeof log_path, "%s_%d.heaplog", argc > 1 ? argv[1] : "none", (int)child);
    while (access(log_path, F_OK) != 0 && !both->has_begun) {}
    if (ptrace(PTRACE_SEIZE, both->thread, 0, 0) == 0) {
        ptrace(PTRACE_INTERRUPT, both->thread, 0, 0);
        waitpid(both->thread, &status, __WALL);
        both->is_stopped = !both->has_begun;
        while (both->is_stopped && !both->may_go) usleep(1000);
        ptrace(PTRACE_DETACH, both->thread, 0, 0);
    } else {
        printf("skip: no ptrace\n");
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}
"#;

/// A thread that waits for a session that another thread begins waits once, and the events
/// unrecorded meanwhile are counted.
#[test]
fn a_thread_that_is_stopped_while_it_begins_a_session_does_not_hold_up_the_others() {
    for _ in 0..200 {
        let run = Run::compiled("stopped", STOPPED_AT_ITS_BEGINNING, &["-pthread"]);
        let ran = run.arg("t").interval(64 << 20).prefix("t").run();
        assert_eq!((ran.code(), ran.stderr.as_str()), (3, ""));
        if ran.stdout.starts_with("skip") {
            return println!("{}", ran.stdout);
        }
        let words: Vec<&str> = ran.stdout.split_whitespace().collect();
        let ["stopped", pid, "first", first, "then", then] = words[..] else {
            continue; // it was stopped too late
        };
        let [first, then]: [u32; 2] = [first, then].map(|ms| ms.parse().expect("a number"));
        if first < 50 {
            continue; // there was a session already
        }
        assert!(then < 500, "ten times {then} ms after {first} ms");
        let log = Log::read(&ran.folder().join(format!("t_{pid}.heaplog"))).whole();
        let blocks = |more: u64| log.blocks_of((1 << 30) + more).len();
        assert_eq!([blocks(1), blocks(2), blocks(3)], [1, 0, 1]);
        assert_eq!(log.losses().get(&Counter::LostNotReady), Some(&11));
        return;
    }
    panic!("no session was ever stopped while it began");
}

/// Thread-local memory of the program is on every thread's stack, also on that of the library's
/// thread: more than the usual size of that stack, and nearly as much.
#[test]
fn much_thread_local_memory() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        static __thread volatile char much[BYTES];
        static void *run(void *unused)
        {
            much[BYTES / 2] = 1;
            for (int i = 0; i < 1000; i++) free(malloc(34003));
            return unused;
        }
        int main(void)
        {
            pthread_t thread;
            run(NULL);
            return pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL);
        }
    "#;
    for bytes in [400 << 10, 490 << 10, 2 << 20] {
        let flags = format!("-DBYTES={bytes}");
        let ran = Run::compiled("local", SOURCE, &["-w", "-pthread", &flags])
            .interval(1)
            .prefix("t")
            .run()
            .well();
        assert_eq!(ran.stderr, "", "{bytes}");
        let log = ran.log().whole();
        assert_eq!(log.blocks_of(34003).len(), 2000, "{bytes}");
    }
}

/// The library's thread begins with the first sample, and would inherit that thread's one processor
/// and policy. It gets those that the program was started with.
#[test]
fn whoever_takes_the_first_sample_does_not_bind_our_thread() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dirent.h>
        #include <pthread.h>
        #include <sched.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        static void *first(void *unused)
        {
            cpu_set_t one, all;
            struct sched_param none = {0};
            sched_getaffinity(0, sizeof all, &all);
            CPU_ZERO(&one);
            for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++)
                if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
            sched_setscheduler(0, SCHED_BATCH, &none);
            free(malloc(64 << 20));
            return unused;
        }
        int main(void)
        {
            pthread_t thread;
            int ours = 0;
            cpu_set_t all, its;
            pthread_create(&thread, NULL, first, NULL);
            pthread_join(thread, NULL);
            sched_getaffinity(0, sizeof all, &all);
            DIR *tasks = opendir("/proc/self/task");
            for (struct dirent *task; (task = readdir(tasks));) {
                char path[300], name[32] = "";
                snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
                FILE *comm = fopen(path, "r");
                if (comm == NULL) continue;
                if (fgets(name, sizeof name, comm) && strcmp(name, "heapprof\n") == 0) {
                    ours++;
                    int tid = atoi(task->d_name);
                    if (sched_getscheduler(tid) != SCHED_OTHER) return 2;
                    if (sched_getaffinity(tid, sizeof its, &its) || !CPU_EQUAL(&its, &all)) return 3;
                }
                fclose(comm);
            }
            return ours == 1 ? 0 : 4;
        }
    "#;
    let run = Run::compiled("binds", SOURCE, &["-pthread"]);
    assert_eq!(run.interval(1 << 20).run().code(), 0);
}

/// Chromium's zygotes, from which it forks its other processes, abort if they have two threads.
#[test]
fn a_zygote_keeps_its_only_thread() {
    const SOURCE: &str = r#"
        #include <dirent.h>
        #include <stdlib.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static int threads(void)
        {
            int count = -2; /* . and .. */
            DIR *tasks = opendir("/proc/self/task");
            while (readdir(tasks)) count++;
            closedir(tasks);
            return count;
        }
        static int has_one_thread(void)
        {
            for (int i = 0; i < 100; i++) free(malloc(1 << 20));
            return threads() == 1;
        }
        int main(void)
        {
            if (!has_one_thread()) return 3;
            pid_t child = fork();
            if (child == 0) _exit(has_one_thread() ? 0 : 4);
            int status;
            waitpid(child, &status, 0);
            return WEXITSTATUS(status);
        }
    "#;
    let run = |argument: &str| {
        let run = Run::compiled("forks_others", SOURCE, &[]).arg(argument);
        run.interval(4096).run()
    };
    let zygote = run("--type=zygote");
    assert_eq!(zygote.code(), 0);
    assert_eq!(zygote.files_ending(".heaplog").len(), 0);
    assert_eq!(run("--type=browser").code(), 3);
}
