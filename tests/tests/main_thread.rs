//! A main thread that ends alone, without a `/proc` that tells which thread is the last: the
//! library's thread keeps no process alive.

use heapprof_format::EndReason;
use heapprof_tests::{Build, Finished, Run, may_mount};

/// Runs a program under the library, with nothing below `/proc`.
fn without_proc(run: Run, program: &std::path::Path, argument: &str) -> Finished {
    let script = "mount -t tmpfs none /proc && LD_PRELOAD=$1 exec \"$0\" $2";
    run.args(["-rm", "sh", "-c", script])
        .arg(program)
        .arg(Build::get().library())
        .arg(argument)
        .prefix("t")
        .run()
        .well()
}

/// The first sample comes before the main thread leaves, after it, or never.
#[test]
fn a_main_thread_that_leaves_others() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdlib.h>
        #include <unistd.h>
        void *kept;
        static char which;
        static void *goes_on(void *unused)
        {
            usleep(100000);
            if (which == 'l') kept = malloc(20002);
            usleep(100000);
            return unused;
        }
        int main(int argc, char **argv)
        {
            pthread_attr_t attributes;
            pthread_t thread;
            static char stack[1 << 20] __attribute__((aligned(64)));
            which = argv[argc - 1][0];
            alarm(50);
            if (which == 'e') kept = malloc(20001);
            pthread_attr_init(&attributes);
            pthread_attr_setstack(&attributes, stack, sizeof stack);
            if (pthread_create(&thread, &attributes, goes_on, NULL)) return 2;
            pthread_exit(NULL);
        }
    "#;
    if !may_mount() {
        return;
    }
    for (when, blocks) in [("earlier", 1), ("later", 0), ("never", 0)] {
        let made = Run::compiled("leaves", SOURCE, &["-pthread", "-fno-builtin"]);
        let program = made.folder().join("bin/leaves");
        // Blocks that libc allocates for a thread are samples, too, and come earlier: blocks of
        // other sizes are left out.
        let ran = without_proc(
            Run::tool("unshare").env("HEAPPROF_RECORD_OVER", "20001"),
            &program,
            when,
        );
        ran.assert_noted(&["the main thread ends", "/proc"]);
        let log = ran.log().whole();
        assert_eq!(log.end(), Some(EndReason::GaveUp), "{when}");
        assert_eq!(log.blocks_of(20001).len(), blocks, "{when}");
    }
}

/// In a forked child the thread that forked is the main thread.
#[test]
fn a_child_whose_function_returns() {
    if !may_mount() {
        return;
    }
    let program = Build::get().fixture("fork_in_thread");
    let ran = without_proc(Run::tool("unshare").interval(1), &program, "");
    assert_eq!(ran.claims().ok, ["buffered", "child"], "{}", ran.stdout);
    let child = ran.claims().pid_of("child");
    let log = &ran.logs()[&format!("t_{child}.heaplog")];
    assert_eq!(log.end(), Some(EndReason::GaveUp));
    assert_eq!(log.blocks_of(35001).len(), 1);
}
