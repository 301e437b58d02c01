//! Every form of stack: with and without frame pointers, through signals, the vDSO, PLT stubs,
//! exceptions, plug-ins that come and go, coroutines, functions without unwind tables. Each fixture
//! prints which functions are on the stack of which block.

use heapprof_format::WalkEnd;
use heapprof_tests::{Block, Finished, Log, Pattern, Run, assert_claims};

fn record(fixture: &str) -> Finished {
    Run::fixture(fixture).interval(1).prefix("t").run().well()
}

/// Asserts that the dump has the same numbers, and the same stacks as far as its format reaches.
#[track_caller]
fn assert_same_in_dump(ran: &Finished, log: &Log) {
    const LONGEST_IN_DUMP: usize = heapprof_format::MAX_FRAMES;
    let dump = ran.named("t.0001.heap");
    assert_eq!(dump.profile.numbers(), log.profile.numbers());
    for (size, pattern) in &ran.claims().stacks {
        let whole = |block: &Block| log.named().is_whole(block.stack);
        if log.blocks_of(*size).iter().all(whole) {
            let is_it = |stack: usize| {
                let functions = &dump.stacks[stack];
                pattern.matches(functions)
                    || dump.profile.stacks[stack].frames.len() == LONGEST_IN_DUMP
                        && pattern.begins_with(functions)
            };
            let found = (0..dump.stacks.len()).any(is_it);
            assert!(found, "{size}: {pattern:?} is not in the dump");
        }
    }
}

/// Records the fixture, and checks its claims in the log and in the dump.
#[track_caller]
fn check(fixture: &str) -> Log {
    let ran = record(fixture);
    let log = assert_claims(&ran);
    assert_same_in_dump(&ran, &log);
    log
}

/// Returns the reasons why the walks of the blocks of that size ended.
fn ends_of(log: &Log, size: u64) -> Vec<WalkEnd> {
    let end = |stack: usize| log.profile.stacks[stack].end.expect("a log says why");
    let mut ends: Vec<_> = log.blocks_of(size).iter().map(|b| end(b.stack)).collect();
    ends.sort();
    ends.dedup();
    ends
}

#[track_caller]
fn assert_all_whole(log: &Log) {
    for stack in 0..log.named().stacks.len() {
        assert!(log.named().is_whole(stack), "{}", log.named().shown(stack));
    }
}

#[test]
fn nofp_chain() {
    assert_all_whole(&check("nofp_chain"));
}

#[test]
fn fp_chain() {
    assert_all_whole(&check("fp_chain"));
}

#[test]
fn signal_frame() {
    assert_all_whole(&check("signal_frame"));
}

#[test]
fn plt_and_vdso() {
    assert_all_whole(&check("plt_and_vdso"));
}

/// Also if libc has no unwind tables (musl).
#[test]
fn through_libc() {
    assert_all_whole(&check("through_libc"));
}

#[test]
fn exception_unwind() {
    assert_all_whole(&check("exception_unwind"));
}

/// Also over a glibc without `_dl_find_object`.
#[test]
fn dlopen_cycle() {
    for libraries in [&[""][..], &["", "old_loader.so"]] {
        let run = Run::fixture("dlopen_cycle").preloading(libraries);
        // Not in the dump: it has the mappings of its own moment, when both plug-ins are gone.
        let ran = run.interval(1).prefix("t").run().well();
        assert_all_whole(&assert_claims(&ran));
    }
}

#[test]
fn threads_basic() {
    assert_all_whole(&check("threads_basic"));
}

#[test]
fn rbp_general() {
    assert_all_whole(&check("rbp_general"));
}

#[test]
fn coroutine() {
    let log = check("coroutine");
    // Stacks on the thread's own stack are whole; a coroutine's may end where it began.
    assert_eq!(ends_of(&log, 13004), [WalkEnd::Root]);
}

#[test]
fn altstack_small() {
    assert_all_whole(&check("altstack_small"));
}

#[test]
fn no_unwind_tables() {
    let log = check("no_unwind_tables");
    // Without a table the walk is tried by the frame pointer, which has main's value of that
    // register. The kernel, the loader and the compiler decide how far it leads.
    for size in [11001, 11002] {
        let ends = ends_of(&log, size);
        let are_said = matches!(ends[..], [WalkEnd::NoRule | WalkEnd::StackUnreadable]);
        assert!(are_said, "{size}: {ends:?}");
    }
    assert_eq!(ends_of(&log, 11003), [WalkEnd::Root]);
}

#[test]
fn deep_recursion_is_cut_at_the_limit_and_says_so() {
    for (setting, limit) in [(None, 512), (Some("64"), 64)] {
        let mut run = Run::fixture("deep_recursion").interval(1).prefix("t");
        if let Some(depth) = setting {
            run = run.env("HEAPPROF_STACK_DEPTH", depth);
        }
        let ran = run.run().well();
        let log = ran.log().whole();
        let claims = ran.claims();
        let [(size, pattern)]: &[(u64, Pattern)] = &claims.stacks else {
            panic!("one stack expected: {claims:?}")
        };
        let blocks = log.blocks_of(*size);
        assert_eq!(blocks.len(), 1);
        let stack = blocks[0].stack;
        assert_eq!(ends_of(&log, *size), [WalkEnd::TooDeep]);
        // malloc itself, and that many frames of the program.
        assert_eq!(log.profile.stacks[stack].frames.len(), limit + 1);
        assert!(pattern.begins_with(&log.named().stacks[stack]));
        let info = Run::heapprof()
            .in_folder_of(&ran)
            .args(["info", "t.heaplog"]);
        assert!(
            info.run().well().stdout.contains("limit"),
            "info does not say that a stack was cut"
        );
    }
}

#[test]
fn deep_recursion_is_whole_under_a_higher_limit() {
    let ran = Run::fixture("deep_recursion")
        .interval(1)
        .prefix("t")
        .env("HEAPPROF_STACK_DEPTH", "2048")
        .run()
        .well();
    let log = assert_claims(&ran);
    assert_all_whole(&log);
    assert_same_in_dump(&ran, &log);
}

/// An unwind from any instruction of an exported function reaches `main`: by a profiler's handler,
/// or by one that allocates.
#[test]
fn from_any_instruction_of_what_is_exported() {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <link.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <ucontext.h>
        #include <unwind.h>
        /* C++'s operators. */
        void *new_of(size_t) __asm__("_Znwm"), *new_aligned(size_t, size_t) __asm__("_ZnwmSt11align_val_t");
        void delete_of(void *) __asm__("_ZdlPv"), delete_aligned(void *, size_t) __asm__("_ZdlPvSt11align_val_t");
        static int steps, lost, found;
        int main(void);
        static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *data)
        {
            found |= _Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(context) - 1)) == (void *)main;
            return _URC_NO_REASON;
        }
        static void on_step(int signal, siginfo_t *about, void *context)
        {
            found = 0;
            _Unwind_Backtrace(frame, NULL);
            Dl_info info;
            ElfW(Sym) *function = NULL;
            char *pc = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
            if (!dladdr1(pc, &info, (void **)&function, RTLD_DL_SYMENT) || !function || pc >= (char *)info.dli_saddr + function->st_size)
                return; /* not of a function that has a name for others */
            steps++;
            if (!found && !lost++)
                printf("lost in %s\n", info.dli_sname);
        }
        #define STEP(on) __asm__ volatile("pushfq\n" on "\npopfq" ::: "memory", "cc")
        int main(void)
        {
            struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
            free(malloc(100)); /* what begins, begins now */
            _Unwind_Backtrace(frame, NULL);
            sigaction(SIGTRAP, &action, NULL);
            for (size_t size = 0; size < 200; size += 100) {
                STEP("orq $0x100, (%%rsp)");
                void *block = malloc(size);
                free(block);
                block = calloc(1, size);
                block = realloc(block, size + 200);
                free(block);
                block = new_of(size);
                delete_of(block);
                block = new_aligned(size, 64);
                delete_aligned(block, 64);
                STEP("andq $~0x100, (%%rsp)");
            }
            printf("%d lost\n", lost);
            return steps < 100;
        }
    "#;
    let flags = [
        "-w",
        "-O1",
        "-fno-builtin",
        "-mno-red-zone",
        "-lstdc++",
        "-ldl",
    ];
    for interval in [1, 1 << 40] {
        let run = Run::compiled("steps", SOURCE, &flags);
        let ran = run.interval(interval).run().well();
        assert_eq!(ran.stdout, "0 lost\n", "{interval}");
    }
}
