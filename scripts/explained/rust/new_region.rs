// A region is added late in the run: its shards are loaded once, and stay.
//
// expect: nothing load_shards; cache|nothing answer
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::VecDeque;

#[inline(never)]
fn load_shards(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|shard| vec![shard as u8 | 1; 100_000]).collect()
}

#[inline(never)]
fn answer(recent: &mut VecDeque<Vec<u8>>, size: usize) {
    let mut reply = Vec::with_capacity(size);
    reply.resize(size, 1);
    recent.push_back(reply);
    if recent.len() > 800 {
        recent.pop_front();
    }
}

fn main() {
    let mut pace = Pace::begin();
    let mut regions = vec![load_shards(300)];
    let mut recent = VecDeque::new();
    while pace.going() {
        if regions.len() == 1 && pace.part() > 0.7 {
            regions.push(load_shards(200));
        }
        for _ in 0..6 {
            answer(&mut recent, 4000 + pace.chance(16_000) as usize);
        }
        rest(50);
    }
    println!("{} {}", regions.len(), recent.len());
}
