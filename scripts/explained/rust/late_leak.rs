// A service with a full cache. After a change of its settings it keeps all rejected messages.
//
// expect: leak keep_rejected; cache store
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::{LinkedList, VecDeque};

#[inline(never)]
fn store(cache: &mut VecDeque<Box<[u8]>>) {
    cache.push_back(vec![1; 15_000].into_boxed_slice());
    if cache.len() > 2000 {
        cache.pop_front();
    }
}

#[inline(never)]
fn keep_rejected(rejected: &mut LinkedList<Box<[u8]>>, size: usize) {
    rejected.push_back(vec![2; size].into_boxed_slice());
}

fn main() {
    let mut pace = Pace::begin();
    let (mut cache, mut rejected) = (VecDeque::new(), LinkedList::new());
    while pace.going() {
        for _ in 0..15 {
            store(&mut cache);
        }
        if pace.part() > 0.4 {
            for _ in 0..5 {
                keep_rejected(&mut rejected, 3_000 + pace.chance(6_000) as usize);
            }
        }
        rest(50);
    }
    println!("{} {}", cache.len(), rejected.len());
}
