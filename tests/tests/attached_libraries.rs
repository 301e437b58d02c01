//! Libraries that a process opens and closes while heapprof is attached to it: their allocators are
//! recorded from the first instruction on, and their code is as before when heapprof has gone.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use heapprof_tests::{AttachedServer, Log, blocks_in_use};

/// An allocator. A constructor allocates, and starts a thread that does.
const TOY: &str = r#"
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
static char memory[4 << 20];
static atomic_size_t used;
static atomic_int freed;
static pthread_t thread;
#ifndef OTHER
#define OTHER 0
#endif
__attribute__((noinline)) void *toy_mallocx(size_t size, int flags)
{
    size_t at = atomic_fetch_add(&used, (size + 15 + OTHER + (size_t)flags) & ~(size_t)15);
    return at + size <= sizeof memory ? memory + at : NULL;
}
#ifdef LOOP
__asm__(".globl toy_dallocx\n.type toy_dallocx, @function\n"
        "toy_dallocx: dec %esi\njns toy_dallocx\nret\n.size toy_dallocx, . - toy_dallocx");
void toy_dallocx(void *block, int flags);
#else
__attribute__((noinline)) void toy_dallocx(void *block, int flags)
{
    if (block)
        freed += 1 + flags;
}
#endif
void *get(size_t size) { return toy_mallocx(size, 0); }
void put(void *block) { toy_dallocx(block, 0); }
static void *run(void *unused)
{
    for (int i = 0; i < 200; i++)
        put(get(2901));
    return unused;
}
__attribute__((constructor)) static void begin(void)
{
    for (int i = 0; i < 3; i++)
        get(23800);
    pthread_create(&thread, NULL, run, NULL);
}
__attribute__((destructor)) static void end(void) { pthread_join(thread, NULL); }
"#;

/// Compiles the allocator into the server's folder, with these flags. Returns its path.
fn toy(server: &AttachedServer, name: &str, flags: &[&str]) -> PathBuf {
    let source = server.folder().join("toy.c");
    fs::write(&source, TOY).expect("a folder");
    let library = server.folder().join(name);
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-shared", "-fPIC", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&library)
        .arg(&source);
    assert!(gcc.status().expect("gcc").success());
    library
}

/// Returns true if the code of a loaded library is that of its file. `None`: it is not loaded.
fn is_as_its_file(server: &AttachedServer, library: &Path) -> Option<bool> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it lives");
    let memory = fs::File::open(format!("/proc/{}/mem", server.pid())).expect("it lives");
    let file = fs::read(library).expect("a library");
    let name = library.to_str().expect("a path of ours");
    let code = maps
        .lines()
        .find(|it| it.contains(" r-xp ") && it.ends_with(name))?;
    let words: Vec<_> = code.split_ascii_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let (start, end) = words[0].split_once('-').expect("a range");
    let mut bytes = vec![0; (hex(end) - hex(start)) as usize];
    memory.read_exact_at(&mut bytes, hex(start)).expect("code");
    let there = &file[hex(words[2]) as usize..];
    let both = bytes.len().min(there.len());
    Some(bytes[..both] == there[..both])
}

/// Returns the number of mappings of executable memory that are of no file.
fn generated_mappings(server: &AttachedServer) -> usize {
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).expect("it lives");
    let is_generated = |line: &&str| line.contains("r-xp") && !line.contains(['/', '[']);
    maps.lines().filter(is_generated).count()
}

fn last_log(server: &AttachedServer) -> Log {
    Log::read(&server.logs().pop().expect("a log")).whole()
}

fn info(server: &AttachedServer) -> String {
    let log = server.logs().pop().expect("a log");
    let log = log.to_str().expect("a path").to_owned();
    server.heapprof(&["info", &log]).well().stdout
}

/// From the constructor on, each block is recorded: those of a thread that the constructor starts,
/// too. The library is closed and opened again. The code is restored in the end.
#[test]
fn an_allocator_that_comes_later_is_recorded_from_its_first_instruction_on() {
    let mut server = AttachedServer::start(4);
    let toy = toy(&server, "libtoy.so", &[]);
    let open = format!("open {}", toy.display());
    server.attached(&["-i", "1"]);
    for _ in 0..3 {
        assert_eq!(server.tell(&open), 10);
        assert_eq!(is_as_its_file(&server, &toy), Some(false));
        server.tell("close");
        assert_eq!(is_as_its_file(&server, &toy), None);
    }
    assert_eq!(server.tell(&open), 10);
    server.detached();
    assert_eq!(is_as_its_file(&server, &toy), Some(true));
    server.tell("cycles 1"); // not recorded
    let info = info(&server);
    let line = info
        .lines()
        .find(|line| line.contains("jemalloc in") && line.contains("libtoy"));
    assert!(line.is_some_and(|line| line.contains("s on")), "{info}");
    assert!(!info.contains("not recorded"), "{info}");
    let log = last_log(&server);
    assert_eq!(blocks_in_use(&log, 23700), (40, 10));
    assert_eq!(blocks_in_use(&log, 23800), (12, 12), "the constructor's");
    // Closing the library waits for its thread. The last one may run on behind the recording.
    let of_threads = blocks_in_use(&log, 2901).0;
    assert!((600..=800).contains(&of_threads), "{of_threads}");
    assert_eq!(log.unknown_frees(), 0);

    // The library is still open, and another recording has it from the start.
    server.attached(&["-i", "1"]);
    server.tell("cycles 1");
    server.detached();
    assert_eq!(blocks_in_use(&last_log(&server), 23700), (10, 0));
    assert_eq!(is_as_its_file(&server, &toy), Some(true));
    assert_eq!(server.tell("errors"), 0);
    server.end();
}

/// Functions that nobody knows are recorded if the user names them: of a library that is opened
/// later, and of one that is open. Each recording has the functions that were named for it.
#[test]
fn the_user_names_functions_for_each_recording() {
    let mut server = AttachedServer::start(2);
    let names = ["-Dtoy_mallocx=toy_take", "-Dtoy_dallocx=toy_put"];
    let toy = toy(&server, "libtoy.so", &names);
    let tap = ["--tap", "libtoy.so:malloc=toy_take,free=toy_put"];
    server.attached(&[&["-i", "1"], &tap[..]].concat());
    assert_eq!(server.tell(&format!("open {}", toy.display())), 10);
    server.detached();
    let log = last_log(&server);
    assert_eq!(blocks_in_use(&log, 23700), (10, 10));
    assert_eq!(blocks_in_use(&log, 23800), (3, 3), "the constructor's");
    let words = "HEAPPROF_TAP names libtoy.so, which is not loaded at the start";
    assert!(info(&server).contains(words));

    // The library is open. Functions of an earlier recording do not count.
    for (tap, blocks) in [(&[][..], 0), (&tap[..], 10), (&[], 0)] {
        server.attached(&[&["-i", "1"], tap].concat());
        assert_eq!(is_as_its_file(&server, &toy), Some(tap.is_empty()));
        server.tell("cycles 1");
        server.detached();
        assert_eq!(is_as_its_file(&server, &toy), Some(true));
        assert_eq!(blocks_in_use(&last_log(&server), 23700), (blocks, 0));
    }

    // A wrong name is told, and the process goes on as before.
    for (tap, why) in [
        (
            "libtoy.so:get=toy_take,free=toy_put",
            "\"get\" is none of malloc",
        ),
        ("libtoy.so:malloc=toy_take", "names no function that frees"),
        ("libtoy.so", "wanted is MODULE:malloc=FUNCTION"),
    ] {
        let ran = server.heapprof(&["attach", &server.pid().to_string(), "--tap", tap]);
        assert!(
            ran.code() != 0 && ran.stderr.contains(why),
            "{}",
            ran.stderr
        );
    }
    let lacking = [
        "-i",
        "1",
        "--tap",
        "libtoy.so:malloc=toy_take,free=toy_gone",
    ];
    server.attached(&lacking);
    server.detached();
    assert!(info(&server).contains("it has no function toy_gone"));
    assert_eq!(server.tell("errors"), 0);
    server.end();
}

/// A library that is opened again and again has its taps each time, and leaves no memory behind.
#[test]
fn a_library_that_comes_and_goes_leaves_nothing_behind() {
    const CYCLES: usize = 60;
    let mut server = AttachedServer::start(2);
    let toy = toy(&server, "libtoy.so", &[]);
    server.attached(&["-i", "1"]);
    let before = generated_mappings(&server);
    assert_eq!(server.tell(&format!("open {}", toy.display())), 10);
    server.tell("close");
    server.tell(&format!("cycles {CYCLES}"));
    assert_eq!(generated_mappings(&server), before);
    server.detached();
    let log = last_log(&server);
    assert_eq!(blocks_in_use(&log, 23700), ((CYCLES + 1) * 10, 0));
    assert_eq!(log.unknown_frees(), 0);
    assert_eq!(server.tell("errors"), 0);
    server.end();
}

/// A library whose functions cannot be changed exactly is left as it is. The log has the reason.
#[test]
fn an_allocator_that_cannot_be_tapped_is_left_alone() {
    let mut server = AttachedServer::start(2);
    let toy = toy(&server, "libtoy.so", &["-DLOOP"]);
    server.attached(&["-i", "1"]);
    let generated = generated_mappings(&server);
    assert_eq!(server.tell(&format!("open {}", toy.display())), 10);
    assert_eq!(is_as_its_file(&server, &toy), Some(true));
    assert_eq!(generated_mappings(&server), generated);
    server.detached();
    assert_eq!(blocks_in_use(&last_log(&server), 23700), (0, 0));
    let info = info(&server);
    let line = info
        .lines()
        .find(|line| line.contains("libtoy.so: toy_dallocx: "));
    assert!(
        line.is_some_and(|line| line.contains("not recorded")),
        "{info}"
    );
    server.end();
}

/// heapprof attaches and detaches at any moment of a thread that opens and closes a library all the
/// time.
#[test]
fn a_recording_begins_and_ends_while_libraries_come_and_go() {
    let mut server = AttachedServer::start(2);
    let code = server.code();
    let toy = toy(&server, "libtoy.so", &[]);
    let open = format!("open {}", toy.display());
    assert_eq!(server.tell(&open), 10);
    server.tell("close");
    server.tell("storm 2000");
    for round in 0..12 {
        server.attached(&["-i", "1"]);
        std::thread::sleep(Duration::from_millis(7 * round));
        server.detached();
        let log = last_log(&server);
        assert_eq!(log.unknown_frees(), 0, "round {round}");
        let (all, in_use) = blocks_in_use(&log, 23700);
        // A block whose library was opened before heapprof was attached, or closed afterwards.
        assert!(in_use <= 10, "round {round}: {in_use} of {all}");
    }
    server.tell("calm");
    assert_eq!(server.tell(&open), 10);
    assert_eq!(is_as_its_file(&server, &toy), Some(true));
    server.tell("close");
    server.attached(&["-i", "1"]);
    server.tell("cycles 3");
    server.detached();
    assert_eq!(blocks_in_use(&last_log(&server), 23700), (30, 0));
    let now = server.code();
    let changed = code
        .iter()
        .filter(|(module, bytes)| now.get(*module) != Some(bytes));
    assert_eq!(changed.count(), 0);
    assert_eq!(server.tell("errors"), 0);
    server.end();
}

/// Between two recordings, a library is closed, and another one comes to its place.
#[test]
fn another_library_at_the_same_place_is_another_one() {
    let mut server = AttachedServer::start(1);
    let first = toy(&server, "libfirst.so", &[]);
    let other = toy(&server, "libother.so", &["-DOTHER=16"]);
    server.attached(&["-i", "1"]);
    assert_eq!(server.tell(&format!("open {}", first.display())), 10);
    server.detached();
    server.tell("close");
    assert_eq!(server.tell(&format!("open {}", other.display())), 10);
    server.attached(&["-i", "1"]);
    server.tell("cycles 1"); // of the library that is open
    server.detached();
    let log = last_log(&server);
    assert_eq!(blocks_in_use(&log, 23700), (10, 0));
    let info = info(&server);
    assert!(info.contains("libother.so ("), "{info}");
    assert!(!info.contains("libfirst.so"), "{info}");
    assert_eq!(is_as_its_file(&server, &other), Some(true));
    server.end();
}
