// Waves of threads: each wave sorts its share of the data, and ends.
//
// expect: periodic take_share
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::{hint::black_box, thread};

#[inline(never)]
fn take_share(which: u64) -> Vec<u64> {
    (0..250_000).map(|i: u64| i.wrapping_mul(which * 2 + 1)).collect()
}

fn main() {
    let pace = Pace::begin();
    while pace.going() {
        let threads: Vec<_> = (0..10)
            .map(|which| {
                thread::spawn(move || {
                    let mut share = take_share(which);
                    rest(5000);
                    share.truncate(10);
                    black_box(share).len()
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        for _ in 0..100 {
            if pace.going() {
                rest(50);
            }
        }
    }
}
