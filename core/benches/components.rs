//! Costs of the components that run once per allocation or event: one core, no contention.
//!
//!     cargo bench --package heapprof-core
//!
//! Times depend on the machine. Compare two versions on one machine, in one sitting.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use divan::{Bencher, black_box};
use heapprof_core::{
    BloomFilter, EndedSample, Freed, Growth, LEVELS, Lane, Ledger, Levels, Merge, Origin, Rng,
    SampleTable, Sampled, Sampler, Slot, StackHasher, StackLane, StackSet, Timeline, Weight,
    level_slots,
};

fn main() {
    divan::main();
}

/// Levels at fixed places, each made at most once.
#[derive(Default)]
struct Kept {
    levels: [OnceLock<&'static [Slot]>; LEVELS],
}

impl Levels for Kept {
    fn count(&self) -> usize {
        self.levels
            .iter()
            .take_while(|level| level.get().is_some())
            .count()
    }
    fn level(&self, n: usize) -> Option<&'static [Slot]> {
        self.levels.get(n)?.get().copied()
    }
    fn grow(&self, seen: usize) -> Growth {
        let Some(level) = self.levels.get(seen) else {
            return Growth::Refused;
        };
        let fresh = || (0..level_slots(seen)).map(|_| Slot::default()).collect();
        level.get_or_init(|| Box::leak::<'static>(Vec::into_boxed_slice(fresh())));
        Growth::Grown
    }
}

/// Addresses like an allocator's: 16-aligned, near each other.
fn addresses(count: usize) -> Vec<u64> {
    let mut rng = Rng::new(7);
    (0..count)
        .map(|_| 0x7f12_0000_0000 + ((rng.next_u64() % (1 << 30)) & !15))
        .collect()
}

#[divan::bench]
fn sampler_passes(bencher: Bencher) {
    let mut sampler = Sampler::default();
    sampler.start(1, 1 << 50);
    bencher.bench_local(|| sampler.passes(black_box(64)));
}

#[divan::bench]
fn sampler_draws(bencher: Bencher) {
    let mut sampler = Sampler::default();
    sampler.start(1, 524_288);
    bencher.bench_local(|| sampler.draw(black_box(524_288)));
}

/// Asks a Bloom filter that holds `live` samples about one address.
#[divan::bench(args = [0, 1_000, 30_000])]
fn bloom_filter_asks(bencher: Bencher, live: usize) {
    let filter = Box::leak(Box::new(BloomFilter::new()));
    filter.set_unit(BloomFilter::unit_for(4096), std::iter::empty());
    addresses(live)
        .iter()
        .for_each(|&address| filter.add(address));
    let asked = addresses(1 << 16);
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % asked.len();
        filter.may_hold(asked[at])
    });
}

/// Inserts and removes one sample among `live` others.
#[divan::bench(args = [0, 1_000, 1_000_000])]
fn sample_table_pair(bencher: Bencher, live: usize) {
    let table = SampleTable::new(Kept::default());
    for (id, address) in addresses(live).into_iter().enumerate() {
        table.insert(address, id as u64);
    }
    // Above the addresses of the live samples.
    let mut address = 0x7f13_0000_0000;
    bencher.bench_local(|| {
        address += 64;
        let is_there = table.insert(address, 1);
        let taken = table.take(address);
        is_there && taken.map(|(_, vacant)| vacant.leave()).is_some()
    });
}

/// Replaces the sample of one of `live` blocks, as a block that moves or changes its size does.
#[divan::bench(args = [1_000, 1_000_000])]
fn sample_table_replaces(bencher: Bencher, live: usize) {
    let table = SampleTable::new(Kept::default());
    let addresses = addresses(live);
    for (id, &address) in (0..).zip(&addresses) {
        table.insert(address, id);
    }
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % addresses.len();
        table.replace(addresses[at], 7)
    });
}

#[divan::bench(args = [10, 40])]
fn stack_hash(bencher: Bencher, depth: usize) {
    let frames = addresses(depth);
    bencher.bench_local(|| {
        let mut hash = StackHasher::new();
        for (place, &frame) in frames.iter().enumerate() {
            hash.add(StackHasher::of_frame(place, black_box(frame)));
        }
        hash.finish(0, 0)
    });
}

#[divan::bench(args = [100, 100_000])]
fn stack_set_contains(bencher: Bencher, known: usize) {
    let set = StackSet::new(Kept::default());
    let hashes = addresses(known);
    hashes.iter().for_each(|&hash| set.insert(hash));
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % hashes.len();
        set.contains(hashes[at])
    });
}

#[divan::bench]
fn weight_of_a_sample() -> Weight {
    Weight::of(black_box(100), black_box(524_288))
}

/// Adds an allocation and its free to a ledger that holds `live` others.
#[divan::bench(args = [1_000, 1_000_000])]
fn ledger_pair(bencher: Bencher, live: u64) {
    let mut ledger = Ledger::new();
    for id in 0..live {
        ledger.alloc(id, (id % 1000) as u32, 100, 524_288);
    }
    let mut id = live;
    bencher.bench_local(|| {
        id += 1;
        ledger.alloc(id, (id % 1000) as u32, 100, 524_288);
        ledger.free(id)
    });
}

/// Puts a sample and its free into a lane and takes both out: one lane, or two lanes whose events
/// alternate.
#[divan::bench(args = [1, 2])]
fn lane_pair(bencher: Bencher, count: usize) {
    let lanes: Vec<Lane> = (0..count)
        .map(|number| {
            let words: Box<[AtomicU64]> = (0..16_384).map(|_| AtomicU64::new(0)).collect();
            Lane::new(Box::leak(words), number, 0)
        })
        .collect();
    let mut merge = Merge::new(0);
    let by = Origin {
        thread: 1,
        interval: 1,
    };
    let mut at = 0;
    let pairs = 512;
    bencher
        .counter(divan::counter::ItemsCount::new(pairs * count))
        .bench_local(|| {
            for lane in std::iter::repeat_n(&lanes, pairs).flatten() {
                at += 1;
                let id = lane.new_id();
                let sampled = Sampled {
                    at,
                    id,
                    stack: 3,
                    size: 64,
                    slack: 0,
                    counted: 64,
                };
                assert!(
                    lane.put_sampled(by, &sampled, EndedSample::NONE, |_| {})
                        && lane.put_freed(1, &Freed { at, id }, |_| {})
                );
            }
            merge.look(u64::MAX, lanes.iter().enumerate());
            merge.by_ref().map(black_box).count()
        });
}

/// Puts an unknown stack into its lane and takes it out.
#[divan::bench(args = [10, 40])]
fn stack_lane(bencher: Bencher, depth: usize) {
    let words: Box<[AtomicU64]> = (0..8192).map(|_| AtomicU64::new(0)).collect();
    let lane = StackLane::new(Box::leak(words));
    let frames = addresses(depth);
    bencher.bench_local(|| {
        let others = frames[1..].iter().map(|&frame| (frame, false));
        assert!(lane.put(7, 0, frames[0], others, &[]));
        lane.take()
    });
}

/// Converts the ticks of an event to its time.
#[divan::bench]
fn time_of_an_event(bencher: Bencher) {
    let scale = Timeline::of_nanoseconds().scale(1000, 5);
    bencher.bench_local(|| scale.at(black_box(7_000_000)));
}

/// Reads the processor's counter, as each recorded event does.
#[cfg(target_arch = "x86_64")]
#[divan::bench]
fn counter() -> u64 {
    read_counter()
}

/// Loads a thousand words from anywhere in 256 MiB, with or without a reading of the counter after
/// each. Alone, the loads overlap. With the readings they overlap only if a reading does not wait
/// for the load.
#[cfg(target_arch = "x86_64")]
#[divan::bench(args = [false, true])]
fn thousand_loads_that_miss(bencher: Bencher, counter_is_read: bool) {
    let words = vec![1u64; 32 << 20];
    let (mut at, mut sum) = (88_172_645_463_325_252_u64, 0u64);
    bencher.bench_local(|| {
        for _ in 0..1000 {
            at ^= at << 13;
            at ^= at >> 7;
            at ^= at << 17;
            sum = sum.wrapping_add(words[at as usize % words.len()]);
            if counter_is_read {
                black_box(read_counter());
            }
        }
    });
    black_box(sum);
}

#[cfg(target_arch = "x86_64")]
fn read_counter() -> u64 {
    // SAFETY: every x86-64 has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}
