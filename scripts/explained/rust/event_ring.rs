// The last events of each of a hundred devices, in rings of a fixed length.
//
// expect: cache push_event; cache|nothing *
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::VecDeque;

#[inline(never)]
fn push_event(ring: &mut VecDeque<Box<[u8]>>, size: usize) {
    if ring.len() == 30 {
        ring.pop_front();
    }
    ring.push_back(vec![1; size].into_boxed_slice());
}

fn main() {
    let mut pace = Pace::begin();
    let mut rings: Vec<VecDeque<_>> = (0..100).map(|_| VecDeque::with_capacity(30)).collect();
    while pace.going() {
        for _ in 0..20 {
            let (which, size) = (pace.chance(100) as usize, 2_000 + pace.chance(20_000) as usize);
            push_event(&mut rings[which], size);
        }
        rest(50);
    }
    println!("{}", rings.iter().map(VecDeque::len).sum::<usize>());
}
