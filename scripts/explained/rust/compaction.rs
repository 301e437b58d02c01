// A store that compacts its files again and again, and holds the merged rows meanwhile.
//
// expect: periodic merge_rows; cache|nothing write_row
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::VecDeque;

#[inline(never)]
fn merge_rows(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|row| vec![row as u8 | 1; 30_000]).collect()
}

#[inline(never)]
fn write_row(rows: &mut VecDeque<Vec<u8>>) {
    let mut row = Vec::with_capacity(9000);
    row.resize(9000, 2);
    rows.push_back(row);
    if rows.len() > 1000 {
        rows.pop_front();
    }
}

fn main() {
    let pace = Pace::begin();
    let (mut rows, mut next) = (VecDeque::new(), 3.0);
    let mut merged: Option<(f64, Vec<Vec<u8>>)> = None;
    while pace.going() {
        for _ in 0..10 {
            write_row(&mut rows);
        }
        if pace.seconds() > next {
            merged = Some((pace.seconds() + 3.0, merge_rows(1200)));
            next += 9.0;
        }
        if merged.as_ref().is_some_and(|(end, _)| *end < pace.seconds()) {
            merged = None;
        }
        rest(50);
    }
    println!("{} {}", rows.len(), merged.is_some());
}
