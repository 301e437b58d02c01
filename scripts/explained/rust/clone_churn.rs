// Each request clones the whole configuration, reads one field, and drops the clone.
//
// expect: churn answer; one-time|nothing load_settings; nothing *
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::hint::black_box;

#[inline(never)]
fn load_settings() -> Vec<String> {
    (0..800).map(|i| format!("setting {i}: {}", "x".repeat(100))).collect()
}

#[inline(never)]
fn answer(settings: &[String], which: usize) -> usize {
    let own = black_box(settings.to_vec());
    own[which].len()
}

fn main() {
    let mut pace = Pace::begin();
    let settings = load_settings();
    let mut sum = 0;
    while pace.going() {
        for _ in 0..8 {
            let which = pace.chance(800) as usize;
            sum += answer(&settings, which);
        }
        rest(40);
    }
    println!("{sum}");
}
