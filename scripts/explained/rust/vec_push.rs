// Samples of a sensor go to a Vec that is written to the disk at the end of the run.
//
// expect: growing block record
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

struct Sample {
    seconds: f64,
    value: u64,
    flags: [u32; 6],
}

#[inline(never)]
fn record(samples: &mut Vec<Sample>, seconds: f64, value: u64) {
    samples.push(Sample { seconds, value, flags: [value as u32; 6] });
}

fn main() {
    let mut pace = Pace::begin();
    let mut samples = Vec::new();
    while pace.going() {
        for _ in 0..900 {
            let value = pace.chance(1000);
            record(&mut samples, pace.seconds(), value);
        }
        rest(60);
    }
    let sum: f64 = samples.iter().map(|s| s.seconds + (s.value + u64::from(s.flags[2])) as f64).sum();
    println!("{sum}");
}
