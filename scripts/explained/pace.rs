//! Pace: how long a program of the collection runs, and how it rests between its steps.
//!
//! The first argument is the length of the run in seconds. Without it, a program runs until
//! SIGTERM, and its phases are those of a minute.
#![allow(dead_code)]

use std::time::{Duration, Instant};

#[derive(Clone)]
pub struct Pace {
    begun: Instant,
    length: Option<f64>,
    state: u64,
}

impl Pace {
    pub fn begin() -> Pace {
        let length = std::env::args().nth(1).and_then(|word| word.parse().ok());
        Pace { begun: Instant::now(), length, state: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Seconds since the beginning.
    pub fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// The share of the run that is over.
    pub fn part(&self) -> f64 {
        self.seconds() / self.length.unwrap_or(60.0)
    }

    pub fn going(&self) -> bool {
        self.length.map_or(true, |length| self.seconds() < length)
    }

    /// A number below `limit`, from a sequence that is the same in every run.
    pub fn chance(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) % limit
    }
}

pub fn rest(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
