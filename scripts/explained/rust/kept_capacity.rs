// Buffers of connections that are cleared and used again, so that their capacity stays.
//
// expect: one-time|nothing receive
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

#[inline(never)]
fn receive(buffer: &mut Vec<u8>, size: usize) {
    buffer.clear();
    buffer.resize(size, 4);
}

fn main() {
    let mut pace = Pace::begin();
    let mut buffers = vec![Vec::new(); 400];
    while pace.going() {
        for _ in 0..60 {
            let (which, size) = (pace.chance(400) as usize, 30_000 + pace.chance(30_000) as usize);
            receive(&mut buffers[which], size);
        }
        rest(50);
    }
    println!("{}", buffers.iter().map(Vec::capacity).sum::<usize>());
}
