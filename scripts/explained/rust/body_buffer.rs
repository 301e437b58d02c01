// An upload of endless length is gathered in one String; other uploads end and are dropped.
//
// expect: growing block append; churn|cache|nothing short_upload
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::hint::black_box;

#[inline(never)]
fn append(body: &mut String, block: &str) {
    body.push_str(block);
}

#[inline(never)]
fn short_upload(size: usize) -> Vec<u8> {
    black_box(vec![9; size])
}

fn main() {
    let mut pace = Pace::begin();
    let block = "0123456789abcdef".repeat(1000);
    let (mut body, mut uploads) = (String::new(), Vec::with_capacity(20));
    while pace.going() {
        for _ in 0..4 {
            append(&mut body, &block);
        }
        uploads.push(short_upload(50_000));
        if uploads.len() == 20 {
            let which = pace.chance(20) as usize;
            uploads.swap_remove(which);
        }
        rest(60);
    }
    println!("{} {}", body.len(), uploads.len());
}
