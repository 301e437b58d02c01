// A cache of thumbnails with a limit in bytes: the oldest leave when a new one comes.
//
// expect: cache insert; one-time load_fonts
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::VecDeque;

const LIMIT: usize = 30_000_000;

#[derive(Default)]
struct Cache {
    entries: VecDeque<Vec<u8>>,
    bytes: usize,
}

#[inline(never)]
fn insert(cache: &mut Cache, size: usize) {
    let mut thumbnail = Vec::with_capacity(size);
    thumbnail.resize(size, 5);
    cache.bytes += size;
    cache.entries.push_back(thumbnail);
    while cache.bytes > LIMIT {
        cache.bytes -= cache.entries.pop_front().unwrap().len();
    }
}

#[inline(never)]
fn load_fonts() -> Vec<Vec<u8>> {
    (0..40).map(|font| vec![font + 1; 250_000]).collect()
}

fn main() {
    let mut pace = Pace::begin();
    let fonts = load_fonts();
    let mut cache = Cache::default();
    while pace.going() {
        for _ in 0..12 {
            insert(&mut cache, 5_000 + pace.chance(20_000) as usize);
        }
        rest(60);
    }
    println!("{} {}", cache.entries.len(), fonts.len());
}
