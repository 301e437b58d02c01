//! Seats, and the threads that keep them.

use std::os::unix::fs::FileExt;

use heapprof_tests::{Build, Run, Running};
use object::{Object as _, ObjectSymbol as _};

/// Threads that sample so much that they keep their seats, one after another and two at a time;
/// then one that goes on until a file exists.
const KEEPS_SEATS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { THREADS = 40, PAIRS = 2000 };
static void *samples(void *unused)
{
    for (int i = 0; i < PAIRS; i++) {
        void *volatile block = malloc(37001);
        free(block);
    }
    return unused;
}
int main(int argc, char **argv)
{
    pthread_t first, second;
    for (int i = 0; i < THREADS; i += 2) {
        pthread_create(&first, NULL, samples, NULL);
        pthread_create(&second, NULL, samples, NULL);
        pthread_join(first, NULL);
        pthread_join(second, NULL);
    }
    puts("ended");
    fflush(stdout);
    while (access(argv[argc - 1], F_OK) != 0) {
        samples(NULL);
        usleep(1000);
    }
    return 5;
}
"#;

/// Returns the word of the library in that process whose symbol has `part` in its name.
fn word(running: &Running, part: &str) -> u64 {
    let library = Build::get().library();
    let bytes = std::fs::read(library).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let mut symbols = file.symbols();
    let symbol = symbols
        .find(|it| it.name().is_ok_and(|name| name.contains(part)))
        .unwrap_or_else(|| panic!("no {part} in {}", library.display()));
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
    let name = library.file_name().unwrap().to_str().unwrap();
    let first = maps.lines().find(|line| line.ends_with(name)).unwrap();
    let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let memory = std::fs::File::open(format!("/proc/{}/mem", running.pid())).unwrap();
    let mut word = [0; 8];
    memory
        .read_exact_at(&mut word, base + symbol.address())
        .unwrap();
    u64::from_le_bytes(word)
}

/// Only a live thread keeps a seat: even if each of many threads kept one, the last ones still find
/// some to keep. Nothing is lost, whichever thread had a seat before.
#[test]
fn threads_that_end_leave_the_seats_that_they_kept() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let run = Run::compiled("keeps_seats", KEEPS_SEATS, &["-pthread"]);
    let mut running = run.arg(&end).interval(1).prefix("t").start();
    running.until("the threads' end", |it| it.stdout_so_far() == "ended\n");
    let granted = |it: &Running| word(it, "5seats5lease7GRANTED");
    // Ended threads keep some seats for a moment, because the writer asks at most twice a second.
    let most = granted(&running);
    // Under a seccomp filter the writer does not ask which threads live.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    if status.contains("Seccomp:\t0") {
        running.until("one seat that is kept", |it| granted(it) == 1);
    }
    assert!((1..=8).contains(&most), "{most}");
    std::fs::write(&end, "").unwrap();
    let ran = running.wait();
    assert_eq!((ran.code(), &*ran.stderr), (5, ""));
    let log = ran.log().whole();
    assert_eq!(log.losses().values().sum::<u64>(), 0, "{:?}", log.losses());
    let blocks = log.blocks_of(37001);
    assert!(blocks.len() > 80_000 && blocks.len().is_multiple_of(2000));
    assert!(blocks.iter().all(|block| !block.in_use));
}

/// A thread whose walks lead through more functions than a walker has room for gets more room soon.
/// The writer, which makes it, is told at once. It does not need the seat for that, which is hardly
/// ever free in such a program.
#[test]
fn a_walker_has_room_for_the_rules_of_many_functions_soon() {
    const SOURCE: &str = r#"
        #include <stdint.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <time.h>
        enum { ROUNDS = 80, STACKS = 1000, DEPTH = 40 };
        /* 8,192 functions, sixteen bytes each, that call the next one. */
        void functions(int left, uint64_t state);
        __asm__(".text\n.p2align 4\n.globl functions\n.type functions, @function\nfunctions:\n.rept 8192\n.p2align 4\n.cfi_startproc\n"
                "subq $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall next\naddq $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n.endr\n");
        void next(int left, uint64_t state)
        {
            state = state * 6364136223846793005u + 1442695040888963407u;
            void (*function)(int, uint64_t) = (void (*)(int, uint64_t))((char *)functions + 16 * (state >> 51));
            if (left > 0) function(left - 1, state); else free(malloc(64));
            __asm__ volatile("" ::: "memory"); /* no jump in place of a call */
        }
        static double now(void)
        {
            struct timespec time;
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
            return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
        }
        int main(void)
        {
            static double took[ROUNDS];
            double least = 1e9;
            for (int i = 0; i < ROUNDS; i++) {
                double began = now();
                for (uint64_t stack = 0; stack < STACKS; stack++) next(DEPTH, stack * 0x9E3779B97F4A7C15u);
                took[i] = now() - began;
                if (took[i] < least) least = took[i];
            }
            int slow = 0;
            for (int i = 0; i < ROUNDS; i++) slow += took[i] > 3 * least;
            for (int i = 0; i < ROUNDS; i++) printf("%.0f ", took[i]);
            printf("us; %d rounds took more than thrice as long as the fastest\n", slow);
            return slow > 15;
        }
    "#;
    let run = Run::compiled("leads", SOURCE, &["-O1", "-fno-builtin"]);
    let ran = run.interval(1).run();
    assert_eq!(ran.code(), 0, "{}", ran.stdout);
    println!("{}", ran.stdout);
}
