//! The sampler, the weights and the ledger together, as statistics: are estimates unbiased, and do
//! intervals cover the truth as often as stated?
//!
//! ```text
//!   a case: threads, each with a sequence of blocks (stack, size, freed)  ── thousands of runs ──>
//!     of each stack's four numbers:   mean error, in its own standard errors       within ±5
//!                                     part of the 95 % intervals with the truth    0.93 to 0.97
//! ```
//!
//! False alarms, over the choice of seeds (they are fixed, so a passed test passes again): a mean
//! is beyond 5 standard errors with probability 5.7e-7. With correct intervals, 2,000 runs leave 93
//! to 97 % with probability 4.5e-5 (binomial, exactly). For some 80 numbers of either kind, that is
//! 0.4 % together. An interval that is a tenth too narrow covers 92.2 %, and is found nine times in
//! ten.
//!
//! A normal interval needs enough samples. Every case here expects some hundred of each stack, or
//! nearly all. `HEAPPROF_STATISTICS=<runs>:<seed>` runs more, or others (`scripts/statistics`);
//! `--nocapture` prints the table.

use heapprof_core::{Estimate, Ledger, Sampler};

/// A block: its stack, its size, and whether it is freed before the end.
#[derive(Clone, Copy)]
struct Block {
    stack: u32,
    size: usize,
    is_freed: bool,
}

struct Case {
    name: &'static str,
    interval: u64,
    /// Blocks by thread.
    blocks: Vec<Vec<Block>>,
}

/// Returns blocks, every third of which is freed, independently of all else.
fn blocks(sizes: impl IntoIterator<Item = (u32, usize)>) -> Vec<Block> {
    let sizes = sizes.into_iter().enumerate();
    sizes
        .map(|(i, (stack, size))| Block {
            stack,
            size,
            is_freed: mixed(i as u64).is_multiple_of(3),
        })
        .collect()
}

fn one_thread(
    name: &'static str,
    interval: u64,
    sizes: impl IntoIterator<Item = (u32, usize)>,
) -> Case {
    Case {
        name,
        interval,
        blocks: vec![blocks(sizes)],
    }
}

fn mixed(i: u64) -> u64 {
    (i ^ 0x5555).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

/// Returns the number of runs and the seed.
fn settings() -> (u64, u64) {
    let text = std::env::var("HEAPPROF_STATISTICS").unwrap_or_else(|_| "2000:1".into());
    let (runs, seed) = text.split_once(':').expect("<runs>:<seed>");
    let number = |text: &str| text.parse().expect("a number");
    (number(runs), number(seed))
}

#[derive(Clone, Copy, Default)]
struct Tally {
    sum: f64,
    squares: f64,
    claimed: f64,
    covered: u64,
    samples: u64,
}

/// Returns allocated objects and bytes, and in-use objects and bytes: value, standard error,
/// samples.
fn four(ledger: &Ledger, stack: u32) -> [(f64, f64, u64); 4] {
    let (mut allocated, mut in_use) = (Estimate::default(), Estimate::default());
    for row in ledger.rows().filter(|row| row.stack == stack) {
        allocated.merge(&row.totals.allocated);
        in_use.merge(&row.totals.in_use);
    }
    let objects = |e: &Estimate| (e.objects_f64(), e.objects_error(), e.samples);
    let bytes = |e: &Estimate| (e.bytes_f64(), e.bytes_error(), e.samples);
    [
        objects(&allocated),
        bytes(&allocated),
        objects(&in_use),
        bytes(&in_use),
    ]
}

fn check(case: &Case) {
    const METRICS: [&str; 4] = [
        "allocated objects",
        "allocated bytes",
        "in-use objects",
        "in-use bytes",
    ];
    let (runs, seed) = settings();
    let all = || case.blocks.iter().flatten();
    let stacks = 1 + all().map(|block| block.stack).max().expect("blocks");
    let truth = |stack: u32| {
        let mut truth = [0.0; 4];
        for block in all().filter(|block| block.stack == stack) {
            let (n, bytes) = (1.0, block.size as f64);
            let live = f64::from(u8::from(!block.is_freed));
            for (sum, add) in truth.iter_mut().zip([n, bytes, n * live, bytes * live]) {
                *sum += add;
            }
        }
        truth
    };
    let truths: Vec<[f64; 4]> = (0..stacks).map(truth).collect();
    let mut tallies = vec![[Tally::default(); 4]; stacks as usize];
    for run in 0..runs {
        let mut ledger = Ledger::new();
        let mut id = 0;
        for (thread, blocks) in case.blocks.iter().enumerate() {
            let mut sampler = Sampler::default();
            // No multiple of the generator's own step: runs would share their numbers, shifted by
            // one.
            let number = (seed << 40) + run * case.blocks.len() as u64 + thread as u64;
            sampler.start(number.wrapping_mul(0x1234_5678_9abc_def1), case.interval);
            for block in blocks {
                if sampler.passes(block.size) {
                    continue;
                }
                ledger.alloc(id, block.stack, block.size as u64, case.interval);
                if block.is_freed {
                    ledger.free(id);
                }
                id += 1;
                sampler.draw(case.interval);
            }
        }
        for stack in 0..stacks {
            let estimates = four(&ledger, stack);
            for (metric, (value, error, samples)) in estimates.into_iter().enumerate() {
                let tally = &mut tallies[stack as usize][metric];
                let off = value - truths[stack as usize][metric];
                tally.sum += off;
                tally.squares += off * off;
                tally.claimed += error * error;
                tally.covered += u64::from(off.abs() <= 1.959_964 * error);
                tally.samples += samples;
            }
        }
    }
    let mut wrong = Vec::new();
    for (stack, (tallies, truths)) in tallies.iter().zip(&truths).enumerate() {
        for (metric, (tally, truth)) in tallies.iter().zip(truths).enumerate() {
            let n = runs as f64;
            let samples = tally.samples as f64 / n;
            let what = format!("{:<34} {stack} {:<18}", case.name, METRICS[metric]);
            if tally.squares < 1e-6 * n {
                // So large that all are sampled: only the last bits of the fixed-point numbers
                // differ.
                println!("{what} {samples:>7.0} samples, exact");
                continue;
            }
            let spread = (tally.squares / n).sqrt();
            let bias = tally.sum / n / (spread / n.sqrt());
            let coverage = tally.covered as f64 / n;
            let honest = (tally.claimed / tally.squares).sqrt();
            println!(
                "{what} {samples:>7.0} samples, ±{:>4.1} %: bias {bias:>5.2} s.e., claimed/real error {honest:.3}, \
                 coverage {:.2} %",
                100.0 * spread / truth,
                100.0 * coverage
            );
            if bias.abs() > 5.0 || !(0.93..=0.97).contains(&coverage) {
                wrong.push(format!("{what}: bias {bias:.2}, coverage {coverage:.4}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_of_one_size_from_a_byte_to_64_mib() {
    for (name, interval, size, number) in [
        ("1 B every 64 B", 64, 1, 12_000),
        ("16 B every 512 B", 512, 16, 6000),
        ("100 B every 1 KiB", 1024, 100, 2000),
        ("4 KiB every 4 KiB", 4096, 4096, 800),
        ("64 KiB every 512 KiB", 524_288, 65_536, 2000),
        ("1 MiB every 512 KiB", 524_288, 1 << 20, 1000),
        ("64 MiB every 64 MiB", 64 << 20, 64 << 20, 800),
        ("64 MiB every 512 KiB", 524_288, 64 << 20, 100),
    ] {
        check(&one_thread(
            name,
            interval,
            std::iter::repeat_n((0, size), number),
        ));
    }
}

/// Sizes that a reader gets wrong if it unsamples a line by its average size.
#[test]
fn sizes_from_a_byte_to_64_mib_in_one_stack() {
    let numbers = [
        (1, 20_000),
        (16, 3000),
        (100, 600),
        (3000, 100),
        (70_000, 20),
        (1 << 20, 4),
        (64 << 20, 1),
    ];
    let mut sizes: Vec<(u32, usize)> = numbers
        .into_iter()
        .flat_map(|(size, number)| std::iter::repeat_n((0, size), number))
        .collect();
    for i in (1..sizes.len()).rev() {
        sizes.swap(i, mixed(i as u64) as usize % (i + 1));
    }
    check(&one_thread("1 B to 64 MiB, every 256 B", 256, sizes));
}

/// A program whose rhythm is the interval's: sampling every R-th byte would always see one of the
/// two and never the other.
#[test]
fn strides_equal_to_the_interval() {
    const R: usize = 1024;
    for (name, pattern) in [
        ("stride R: 3/4 R, 1/4 R", &[3 * R / 4, R / 4][..]),
        ("stride R: R/2, R/2", &[R / 2, R / 2]),
        ("stride R/2: 3/8 R, 1/8 R", &[3 * R / 8, R / 8]),
        ("stride 2 R: 5/4 R, 3/4 R", &[5 * R / 4, 3 * R / 4]),
        (
            "stride R: 1/2, 1/4, 1/8, 1/8 R",
            &[R / 2, R / 4, R / 8, R / 8],
        ),
    ] {
        let cycle = (0u32..).zip(pattern.iter().copied());
        let cycle: Vec<(u32, usize)> = cycle.collect();
        let repeated = std::iter::repeat_n(cycle, 800).flatten();
        check(&one_thread(name, R as u64, repeated));
    }
}

/// Each thread allocates far less than an interval, so only first distances count.
#[test]
fn many_short_threads() {
    let blocks = (0..800)
        .map(|thread: usize| blocks((0..12).map(|i| (0, 16 + (thread + i) % 100))))
        .collect();
    check(&Case {
        name: "800 threads, 12 blocks each, 4 KiB",
        interval: 4096,
        blocks,
    });
}
