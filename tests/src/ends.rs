//! Ends: the last moments of programs, and the delay of their end.

use crate::{Finished, Log, Run, Running, now_ns};

/// Returns a run of `exits` with that many blocks in use, stacks, and threads that go on
/// allocating.
pub fn exits(blocks: u32, stacks: u32, threads: u32) -> Run {
    Run::fixture("exits")
        .default_exit_wait()
        .args([blocks, stacks, threads].map(|number| number.to_string()))
        .prefix("t")
        .env("HEAP_PROFILE_ALLOCATION_INTERVAL", "0")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
}

/// Returns the number behind the last line that begins with this word.
pub fn last(ran: &Finished, word: &str) -> u64 {
    let rest = |line: &str| {
        let numbers = line.strip_prefix(word)?;
        numbers.split_whitespace().next_back()?.parse().ok()
    };
    let found = ran.stdout.lines().filter_map(rest).next_back();
    found.unwrap_or_else(|| panic!("no {word} in {}", ran.stdout))
}

/// Returns the last tick that a program has printed.
pub fn tick_of(running: &Running) -> Option<u64> {
    let text = running.stdout_so_far();
    let mut ticks = text.lines().filter_map(|line| line.strip_prefix("tick "));
    ticks.next_back()?.parse().ok()
}

/// Returns the last tick in a log: its block is that many bytes larger than `first`.
pub fn last_tick(log: &Log, first: u64) -> u64 {
    let sizes = log.blocks().into_iter().map(|block| block.size);
    let recorded = sizes.filter(|size| (first..first + 10_000).contains(size));
    recorded.max().unwrap_or(first) - first
}

/// Returns the milliseconds from a program's last action to now, right after its end.
pub fn ended_after(ran: &Finished) -> u64 {
    now_ns().saturating_sub(last(ran, "leaving ")) / 1_000_000
}

/// Returns the third best of up to nine runs, as soon as three are good enough.
pub fn best(limit: u64, mut measure: impl FnMut() -> u64) -> u64 {
    let mut best = [u64::MAX; 3];
    for _ in 0..9 {
        let worst = &mut best[2];
        *worst = measure().min(*worst);
        best.sort_unstable();
        if best[2] <= limit {
            break;
        }
    }
    best[2]
}
