//! The harness itself: a program that hangs is shown, and not waited for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use heapprof_tests::{Pattern, Run};

/// Two threads that do not end, and a child that does not end either.
const HANGS: &str = r#"
#include <pthread.h>
#include <unistd.h>
void *hangs_in_a_thread(void *unused) { for (;;) pause(); return unused; }
void hangs_in_main(void) { for (;;) pause(); }
void hangs_in_a_child(void) { for (;;) pause(); }
int main(void)
{
    pthread_t thread;
    if (fork() == 0) hangs_in_a_child();
    pthread_create(&thread, NULL, hangs_in_a_thread, NULL);
    hangs_in_main();
}
"#;

#[test]
fn a_hang_is_shown_with_the_stacks_of_all_threads() {
    let run = Run::compiled("hangs", HANGS, &["-pthread", "-O0"]).limit(Duration::from_secs(2));
    let shown = catch_unwind(AssertUnwindSafe(|| run.run())).expect_err("it does not end");
    let shown = shown.downcast_ref::<String>().expect("words");
    for frame in ["hangs_in_a_thread", "hangs_in_main", "hangs_in_a_child"] {
        assert!(shown.contains(frame), "{frame}: {shown}");
    }
}

#[test]
fn patterns_mean_what_the_fixtures_readme_says() {
    let fits = |pattern: &str, stack: &str| {
        let names: Vec<&str> = stack.split(' ').collect();
        Pattern::parse(pattern.split(' ')).fits(&names)
    };
    assert!(fits("a b main", "a b main __libc_start_main _start"));
    assert!(fits("a ... main", "a main"));
    assert!(fits("a ... main", "a x y main z"));
    assert!(fits("a ...", "a"));
    assert!(fits("a b*3 c main", "a b b b c main"));

    assert!(!fits("a b main", "a x b main"));
    assert!(!fits("a b main", "x a b main"));
    assert!(!fits("a b main", "a b"));
    assert!(!fits("a b*3 c main", "a b b c main"));
    assert!(!fits("a b*3 c main", "a b b b b c main"));
}
