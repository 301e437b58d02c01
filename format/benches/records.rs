//! What writing and reading the frequent records costs, an allocation and its free each time:
//!
//!     cargo bench --package heapprof-format
//!
//! Times are of the machine that runs it; compare two versions on one machine, in one sitting.

use divan::{Bencher, counter::ItemsCount};
use heapprof_format::{Alloc, Encoder, FILE_HEADER, Free, Reader};

/// Pairs in a frame, as many as the writer puts there when it is busy.
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

/// Checksum included.
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
