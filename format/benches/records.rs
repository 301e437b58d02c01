//! Costs of writing and reading the frequent records: an allocation and its free each time.
//!
//!     cargo bench --package heapprof-format
//!
//! Times depend on the machine. Compare two versions on one machine, in one sitting.

use divan::{Bencher, counter::ItemsCount};
use heapprof_format::{Alloc, Encoder, FILE_HEADER, Free, Reader};

/// Pairs in a frame, as many as a busy writer puts there.
const PAIRS: u64 = 20_000;

fn main() {
    divan::main();
}

fn write(encoder: &mut Encoder) -> &[u8] {
    for i in 0..PAIRS {
        let (time_ns, thread) = (i * 300, (i / 64 % 4) as u32);
        encoder.alloc(&Alloc {
            time_ns,
            thread,
            id: u64::from(thread) * 4096 + i,
            size: 16 + i % 700,
            slack: i % 16,
            stack: (i * 7 % 1000) as u32,
            interval: 1,
        });
        encoder.free(&Free {
            time_ns,
            thread,
            id: u64::from(thread) * 4096 + i,
        });
    }
    encoder.finish()
}

/// Writes a live set of a few thousand blocks of any size, freed in any order: the next record is
/// unpredictable.
fn write_in_any_order<'a>(encoder: &'a mut Encoder, random: &[u64]) -> &'a [u8] {
    let mut live = [0; 4096];
    let mut time_ns = 0;
    for (id, &word) in (1u64..).zip(random) {
        time_ns += word >> 40 & 0xfff;
        let freed = &mut live[(word % 4096) as usize];
        if *freed != 0 {
            let id = *freed;
            encoder.free(&Free {
                time_ns,
                thread: 0,
                id,
            });
        }
        *freed = id;
        encoder.alloc(&Alloc {
            time_ns,
            thread: 0,
            id,
            size: word >> 12 & 0xfff,
            slack: word >> 24 & 0xff,
            stack: (word >> 32 & 7) as u32,
            interval: 4096,
        });
    }
    encoder.finish()
}

/// Splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
fn random() -> Vec<u64> {
    let step = |i: u64| {
        let mut z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    (0..PAIRS).map(step).collect()
}

#[divan::bench]
fn encode_in_any_order(bencher: Bencher) {
    let (mut encoder, random) = (Encoder::new(), random());
    bencher
        .counter(ItemsCount::new(2 * PAIRS))
        .bench_local(|| write_in_any_order(&mut encoder, &random).len());
}

/// Encodes a frame, checksum included.
#[divan::bench]
fn encode(bencher: Bencher) {
    let mut encoder = Encoder::new();
    bencher
        .counter(ItemsCount::new(2 * PAIRS))
        .bench_local(|| write(&mut encoder).len());
}

#[divan::bench]
fn decode(bencher: Bencher) {
    let bytes = [&FILE_HEADER[..], write(&mut Encoder::new())].concat();
    bencher.counter(ItemsCount::new(2 * PAIRS)).bench_local(|| {
        let mut reader = Reader::new(&bytes).expect("a log");
        let mut records = 0u64;
        while reader.next_record().expect("no damage").is_some() {
            records += 1;
        }
        assert_eq!(records, 2 * PAIRS);
    });
}
