// A database of places is read at the start; requests only read it.
//
// expect: one-time read_places; nothing *
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

struct Place {
    name: Box<str>,
    borders: Vec<(f32, f32)>,
}

#[inline(never)]
fn read_places() -> Vec<Place> {
    let place = |i: usize| Place {
        name: format!("place {i}").into(),
        borders: (0..80).map(|j| (i as f32, j as f32)).collect(),
    };
    (0..50_000).map(place).collect()
}

fn main() {
    let mut pace = Pace::begin();
    let places = read_places();
    let mut sum = 0.0;
    while pace.going() {
        let place = &places[pace.chance(50_000) as usize];
        sum += place.borders[place.name.len()].1;
        rest(20);
    }
    println!("{sum}");
}
