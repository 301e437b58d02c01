// Deliveries to a slow partner are tried again and again: more come in than succeed.
//
// expect: backlog schedule
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

#[inline(never)]
fn schedule(waiting: &mut Vec<Box<[u8]>>) {
    waiting.push(vec![1; 8000].into_boxed_slice());
}

fn main() {
    let mut pace = Pace::begin();
    let mut waiting = Vec::with_capacity(50_000);
    while pace.going() {
        for _ in 0..10 {
            schedule(&mut waiting);
        }
        // Any of the waiting deliveries may succeed, old or new.
        for _ in 0..6 {
            let which = pace.chance(waiting.len() as u64) as usize;
            waiting.swap_remove(which);
        }
        rest(50);
    }
    println!("{}", waiting.len());
}
