// A consumer is away for a while: the queue grows, and is emptied again when the consumer is back.
//
// expect: burst|cache|churn|nothing produce
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::VecDeque;

#[inline(never)]
fn produce(queue: &mut VecDeque<Vec<u8>>) {
    let mut message = Vec::with_capacity(14_000);
    message.resize(14_000, 1);
    queue.push_back(message);
}

fn main() {
    let pace = Pace::begin();
    let mut queue = VecDeque::with_capacity(10_000);
    while pace.going() {
        for _ in 0..7 {
            produce(&mut queue);
        }
        let is_away = pace.part() > 0.3 && pace.part() < 0.5;
        for _ in 0..21 {
            if !is_away && queue.len() > 300 {
                queue.pop_front();
            }
        }
        rest(50);
    }
    println!("{}", queue.len());
}
