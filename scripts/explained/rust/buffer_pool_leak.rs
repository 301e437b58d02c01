// A pool that lends buffers: those of cancelled requests are replaced, and kept as "lent" for ever.
//
// expect: leak new_buffer
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::hint::black_box;

#[derive(Default)]
struct Pool {
    idle: Vec<Box<[u8]>>,
    lost: std::collections::LinkedList<Box<[u8]>>,
}

#[inline(never)]
fn new_buffer() -> Box<[u8]> {
    black_box(vec![1; 64 << 10].into_boxed_slice())
}

fn main() {
    let mut pace = Pace::begin();
    let mut pool = Pool::default();
    while pace.going() {
        let lent: Vec<_> =
            (0..100).map(|_| pool.idle.pop().unwrap_or_else(new_buffer)).collect();
        rest(60);
        for buffer in lent {
            if pace.chance(300) == 0 {
                pool.lost.push_back(buffer);
            } else {
                pool.idle.push(buffer);
            }
        }
        rest(20);
    }
    println!("{} {}", pool.idle.len(), pool.lost.len());
}
