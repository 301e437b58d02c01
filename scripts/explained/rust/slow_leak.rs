// A gateway that keeps a waker for one request of two hundred; all other memory comes and goes.
//
// expect: leak register_waker; churn|nothing forward
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::LinkedList;
use std::hint::black_box;

#[inline(never)]
fn register_waker(wakers: &mut LinkedList<[u8; 2048]>) {
    wakers.push_back([1; 2048]);
}

#[inline(never)]
fn forward(size: usize) -> usize {
    black_box(vec![1_u8; size]).len()
}

fn main() {
    let mut pace = Pace::begin();
    let (mut wakers, mut requests, mut sum) = (LinkedList::new(), 0_u64, 0);
    while pace.going() {
        for _ in 0..400 {
            sum += forward(2_000 + pace.chance(10_000) as usize);
            requests += 1;
            if requests % 200 == 0 {
                register_waker(&mut wakers);
            }
        }
        rest(50);
    }
    println!("{} {sum}", wakers.len());
}
