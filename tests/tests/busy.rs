//! A busy machine: the program has little priority, and others keep its processor busy.

use std::process::{Child, Command, Stdio};

use heapprof_format::EndReason;
use heapprof_tests::{Finished, Run};

/// Processes that keep a processor busy until this is dropped.
struct Busy(Vec<Child>);

impl Busy {
    /// On the processor of this thread, at the usual priority, also if the tests have less.
    fn start(count: usize) -> Busy {
        let start = |_| {
            let mut command = Command::new("sh");
            command
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null());
            let child = command.spawn().expect("a shell");
            set_niceness(child.id(), 0);
            child
        };
        Busy((0..count).map(start).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Keeps this thread, and the processes that it starts, on one processor.
fn keep_to_one_processor() {
    // SAFETY: the set is zeroed, which is valid, and written by the first call.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set),
            0
        );
        let last = (0..libc::CPU_SETSIZE as usize).rfind(|&n| libc::CPU_ISSET(n, &set));
        libc::CPU_ZERO(&mut set);
        libc::CPU_SET(last.expect("a processor"), &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// Sets the niceness of a process, or of this thread (0) and the processes that it starts, as far
/// as this user may.
fn set_niceness(process: u32, niceness: i32) {
    // SAFETY: numbers only.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, process, niceness) };
}

/// Runs that, with little priority, on a processor that so many others keep busy.
fn run_beside(others: usize, run: Run) -> Finished {
    // In a thread of its own: this one goes on as it was.
    let runner = std::thread::spawn(move || {
        keep_to_one_processor();
        let _busy = Busy::start(others);
        set_niceness(0, 10);
        run.interval(1).prefix("t").run().well()
    });
    runner.join().expect("a program that ran")
}

/// Without the mend, the writer misses the end of two in three.
#[test]
fn a_program_that_ends_on_a_busy_processor_has_its_whole_log() {
    for run in 1..=4 {
        let ran = run_beside(4, Run::fixture("ends_when_busy").default_exit_wait());
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::Exit), "run {run}");
        let blocks = log.blocks();
        let kept = blocks.iter().filter(|block| block.in_use);
        let small = kept.filter(|block| block.size < 900).count();
        // libc keeps some for the stacks of threads.
        assert!(
            small < 10,
            "run {run}: {small} blocks that were freed seem to be in use"
        );
        assert_eq!(log.blocks_of(20002).len(), 1, "run {run}");
    }
}

/// The end does not wait at all, and the writer has no time. The log and all its readers say that
/// it is cut.
#[test]
fn a_log_that_is_cut_says_so() {
    let ran = || {
        let run = Run::fixture("ends_when_busy").env("HEAPPROF_EXIT_WAIT_MS", "0");
        run_beside(2, run)
    };
    let is_cut = |ran: &Finished| ran.log().end() == Some(EndReason::Cut);
    let ran = (0..10)
        .map(|_| ran())
        .find(is_cut)
        .expect("a log that is cut");
    ran.assert_said(&["the log ends before the program", "HEAPPROF_EXIT_WAIT_MS"]);
    for command in ["info", "top", "tree"] {
        let read = Run::heapprof().arg(command).arg(ran.log_path()).run();
        let text = read.well().stdout;
        assert!(
            text.contains("before its log was complete"),
            "{command}: {text}"
        );
        assert!(!text.contains("numbers are exact"), "{command}: {text}");
        assert!(!text.contains("nothing was lost\n"), "{command}: {text}");
    }
}
