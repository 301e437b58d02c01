//! Tests of the fold.

use heapprof_core::SizeClass;

use super::*;
use crate::history::over_time::OverTime;

const MS: u64 = 1_000_000;

/// A block of the stack, and of the row, of that number.
fn allocation(id: u64, stack: u32, size: u64, slack: u64, time_ns: u64) -> Allocation {
    Allocation {
        id,
        stack,
        thread: 0,
        size,
        slack,
        interval: 1,
        time_ns,
        inherited: false,
    }
}

/// A history with its ledger, whose rows are the stacks.
struct LedgerHistory {
    history: History,
    ledger: Ledger,
}

impl LedgerHistory {
    fn new(temporary: Temporary) -> LedgerHistory {
        LedgerHistory::since(0, temporary)
    }

    fn since(from_ns: u64, temporary: Temporary) -> LedgerHistory {
        let mut ledger = Ledger::new();
        for stack in 0..4 {
            ledger.row(stack, SizeClass(0));
        }
        LedgerHistory {
            history: History::since(from_ns, temporary),
            ledger,
        }
    }

    fn alloc(&mut self, allocation: &Allocation) {
        let live = self
            .ledger
            .sample(allocation.stack, allocation.size, allocation.interval);
        self.history.alloc(&mut self.ledger, allocation, live);
    }

    fn alloc_before(&mut self, allocation: &Allocation) {
        let live = self
            .ledger
            .sample(allocation.stack, allocation.size, allocation.interval);
        self.history.alloc_before(allocation, live);
    }

    fn free(&mut self, id: u64, time_ns: u64) {
        self.history
            .block_ended(&mut self.ledger, id, time_ns, End::Freed);
    }

    fn finish(self, time_ns: u64) -> (Vec<Past>, Vec<Lifetimes>) {
        self.history.finish(&self.ledger, time_ns)
    }
}

/// Row 0: 100 from 0 to 4 ms. Row 1: 50 from 1 to 2 ms, 60 from 3 ms on.
fn story() -> (Vec<Past>, Vec<Lifetimes>) {
    let mut history = LedgerHistory::new(Temporary::within(MS));
    history.alloc(&allocation(1, 0, 100, 12, 0));
    history.alloc(&allocation(2, 1, 50, 14, MS));
    history.free(2, 2 * MS);
    history.alloc(&allocation(3, 1, 60, 4, 3 * MS));
    history.free(1, 4 * MS);
    history.finish(10 * MS)
}

#[test]
fn every_row_is_as_it_was_at_the_global_maximum() {
    let (pasts, _) = story();
    let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
    assert_eq!(peak, [100, 60]);
}

#[test]
fn memory_is_held_for_as_long_as_blocks_live() {
    let (pasts, _) = story();
    let held: Vec<f64> = pasts.iter().map(|p| p.heaptime.byte_seconds()).collect();
    assert_eq!(held, [0.4, 0.05 + 0.42]);
    assert_eq!(pasts[1].heaptime.object_seconds(), 0.008);
}

#[test]
fn what_is_freed_soon_is_temporary_and_what_lives_has_slack() {
    let (pasts, _) = story();
    assert_eq!(
        (
            pasts[0].temporary.objects(),
            pasts[1].temporary.bytes(),
            pasts[0].slack.bytes(),
            pasts[1].slack.bytes()
        ),
        (0, 50, 0, 4)
    );
}

#[test]
fn the_first_of_equal_maxima_counts() {
    let mut history = LedgerHistory::new(Temporary::default());
    history.alloc(&allocation(1, 0, 100, 0, 0));
    history.free(1, 1);
    history.alloc(&allocation(2, 1, 100, 0, 2));
    let (pasts, _) = history.finish(3);
    assert_eq!((pasts[0].peak.bytes(), pasts[1].peak.bytes()), (100, 0));
}

#[test]
fn temporary_counts_the_allocations_of_its_own_thread() {
    let temporary = |n| {
        let mut history = LedgerHistory::new(Temporary {
            within_ns: None,
            before_allocations: Some(n),
        });
        // Blocks 1, 2, 3, 4 of thread 0. Between them one of thread 1, which does not count.
        history.alloc(&allocation(1, 0, 1, 0, 0));
        history.alloc(&Allocation {
            thread: 1,
            ..allocation(9, 0, 1000, 0, 1)
        });
        history.free(1, MS); // none since
        history.alloc(&allocation(2, 0, 2, 0, MS));
        history.alloc(&allocation(3, 0, 4, 0, MS));
        history.free(2, MS); // one since
        history.alloc(&allocation(4, 0, 8, 0, MS));
        history.free(3, 2 * MS); // one since
        history.free(9, 2 * MS); // none, of thread 1
        history.finish(3 * MS).0[0].temporary.bytes()
    };
    assert_eq!((temporary(0), temporary(1), temporary(2)), (0, 1001, 1007));
}

#[test]
fn what_was_inherited_is_held_and_not_temporary_and_has_no_lifetime() {
    let mut history = LedgerHistory::new(Temporary {
        within_ns: Some(MS),
        before_allocations: Some(10),
    });
    for id in 1..=2 {
        history.alloc(&Allocation {
            inherited: true,
            ..allocation(id, 0, 100, 0, 0)
        });
    }
    history.free(1, MS);
    let (pasts, lifetimes) = history.finish(2 * MS);
    assert_eq!(
        (pasts[0].temporary.bytes(), pasts[0].peak.bytes()),
        (0, 200)
    );
    assert_eq!(pasts[0].heaptime.object_seconds(), 0.003);
    assert!(lifetimes.is_empty());
}

#[test]
fn what_went_before_what_is_known_begins_is_in_no_peak() {
    let mut history = LedgerHistory::new(Temporary::default());
    history.alloc(&allocation(1, 0, 100, 0, 0));
    history.alloc(&allocation(2, 1, 30, 0, 0));
    history.history.begin_at(5 * MS);
    history.alloc(&allocation(3, 2, 50, 0, 2 * MS));
    history.free(1, MS);
    history.history.begun(&history.ledger);
    history.alloc(&allocation(4, 2, 7, 0, 6 * MS));
    history.free(2, 7 * MS);
    let (pasts, _) = history.finish(8 * MS);
    let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
    assert_eq!(peak, [0, 30, 57]);
}

#[test]
fn growth_knows_what_was_there_before_the_window() {
    let mut history = LedgerHistory::since(2 * MS, Temporary::default());
    history.alloc_before(&allocation(1, 0, 100, 0, 0));
    history.alloc_before(&allocation(2, 1, 50, 0, MS));
    history.alloc_before(&allocation(3, 1, 70, 0, MS));
    history.alloc_before(&allocation(4, 2, 70, 0, MS));
    history.free(3, MS);
    history.free(1, 3 * MS);
    history.alloc(&allocation(5, 3, 100, 0, 3 * MS));
    let (pasts, _) = history.finish(4 * MS);
    // Half the window each: 6 · 100 (1 - 2) / 8 of a millisecond's reciprocal, and the same up.
    let slopes: Vec<f64> = pasts.iter().map(|p| p.growth.bytes_per_second).collect();
    let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.abs() + 1e-9;
    assert!(
        close(slopes[0], -75_000.0) && slopes[1..3] == [0.0, 0.0] && close(slopes[3], 75_000.0),
        "{slopes:?}"
    );
    let samples: Vec<u64> = pasts.iter().map(|p| p.growth.samples).collect();
    assert_eq!(samples, [1, 0, 0, 1]);
    assert_eq!(pasts[0].heaptime.samples, 0);
}

/// A log that begins at 5 ms, with a block from 2 ms that goes at 7 ms; one comes at 5 ms and
/// goes at 9 ms, one comes at 6 ms and stays.
#[test]
fn what_was_before_is_known_begins_is_held_since_then_and_has_no_lifetime() {
    let mut history = LedgerHistory::new(Temporary::within(10 * MS));
    history.history.begin_at(5 * MS);
    history.alloc(&allocation(1, 0, 100, 0, 2 * MS));
    history.history.begun(&history.ledger);
    history.alloc(&allocation(2, 1, 100, 0, 5 * MS));
    history.alloc(&allocation(3, 2, 100, 0, 6 * MS));
    history.free(1, 7 * MS);
    history.free(2, 9 * MS);
    let (pasts, lifetimes) = history.finish(10 * MS);
    let held: Vec<f64> = pasts.iter().map(|p| p.heaptime.object_seconds()).collect();
    assert_eq!(held, [0.002, 0.004, 0.004]);
    let known: Vec<(u64, u64)> = lifetimes
        .iter()
        .map(|l| (l.died_samples(), l.live_samples()))
        .collect();
    assert_eq!(known, [(0, 0), (1, 0), (0, 1)]);
    assert_eq!(lifetimes[1].mean(), Some(0.004));
    // In five milliseconds, -2 · 3 there and gone, 4 · 1 at the beginning and 4 · 1 at the end:
    // 6 (d² - b² - T (d - b)) / T³.
    let slopes: Vec<f64> = pasts.iter().map(|p| p.growth.bytes_per_second).collect();
    let per_ms = |c: f64| 6.0 * c / 125.0 * 100.0 * 1000.0;
    for (is, expected) in slopes.iter().zip([per_ms(-6.0), per_ms(-4.0), per_ms(4.0)]) {
        assert!((is / expected - 1.0).abs() < 1e-9, "{slopes:?}");
    }
}

/// Rows whose blocks were in use before the window, and only grew or shrank in it.
#[test]
fn what_was_there_before_the_window_is_held_by_nobody_in_it() {
    let mut history = LedgerHistory::since(2 * MS, Temporary::within(10 * MS));
    history.alloc_before(&allocation(1, 0, 100, 5, MS));
    history.alloc_before(&allocation(2, 1, 100, 5, MS));
    history.free(1, 3 * MS);
    let (pasts, lifetimes) = history.finish(4 * MS);
    for past in &pasts {
        let Past {
            peak,
            temporary,
            heaptime,
            slack,
            ..
        } = past;
        assert!(peak.is_empty() && temporary.is_empty() && slack.is_empty());
        assert_eq!(*heaptime, OverTime::default());
    }
    assert_eq!((pasts.len(), lifetimes.len()), (2, 0));
}

#[test]
fn the_pasts_of_two_processes_are_added() {
    let (pasts, _) = story();
    let mut sum = pasts[0];
    sum.merge(&pasts[1]);
    assert_eq!((sum.peak.bytes(), sum.temporary.bytes()), (160, 50));
    assert_eq!((sum.slack.bytes(), sum.heaptime.samples), (4, 3));
    let growth = |n: usize| pasts[n].growth.bytes_per_second;
    assert_eq!(sum.growth.bytes_per_second, growth(0) + growth(1));
}

/// As above, and nothing larger comes: the peak is where what is known begins.
#[test]
fn where_it_begins_may_be_the_peak() {
    let mut history = LedgerHistory::new(Temporary::default());
    history.history.begin_at(5 * MS);
    history.alloc(&allocation(1, 0, 100, 0, 0));
    history.alloc(&allocation(2, 1, 30, 0, 0));
    history.free(1, MS);
    history.history.begun(&history.ledger);
    history.free(2, 7 * MS);
    history.alloc(&allocation(3, 0, 20, 0, 8 * MS));
    let (pasts, _) = history.finish(9 * MS);
    let peak: Vec<u64> = pasts.iter().map(|past| past.peak.bytes()).collect();
    assert_eq!(peak, [0, 30]);
}
