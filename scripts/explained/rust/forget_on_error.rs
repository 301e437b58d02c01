// A guard is forgotten when a request fails, and with the guard the buffer in it.
//
// expect: leak take_guard; churn take_guard
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::mem::forget;

struct Guard {
    buffer: Vec<u8>,
}

#[inline(never)]
fn take_guard(size: usize) -> Guard {
    let mut buffer = Vec::with_capacity(size);
    buffer.resize(size, 1);
    Guard { buffer }
}

fn handle(pace: &mut Pace) -> Result<usize, ()> {
    let guard = take_guard(20_000 + pace.chance(20_000) as usize);
    if pace.chance(100) == 0 {
        forget(guard);
        return Err(());
    }
    Ok(guard.buffer.len())
}

fn main() {
    let mut pace = Pace::begin();
    let mut failed = 0;
    while pace.going() {
        for _ in 0..30 {
            failed += u32::from(handle(&mut pace).is_err());
        }
        rest(50);
    }
    println!("{failed}");
}
