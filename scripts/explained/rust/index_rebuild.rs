// A search engine that adds to its index in small parts. Twice it sorts all of it anew, which takes
// a tenth of the run each time.
//
// expect: burst sort_part; one-time load_pages
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

#[inline(never)]
fn sort_part(parts: &mut Vec<Box<[u64]>>, number: u64) {
    parts.push((0..3000).map(|i| i * number % 1009).collect());
}

#[inline(never)]
fn load_pages() -> Vec<Box<[u8]>> {
    (0..1200).map(|_| vec![1; 10000].into_boxed_slice()).collect()
}

fn main() {
    let pace = Pace::begin();
    let pages = load_pages();
    let (mut parts, mut sum, mut number) = (Vec::<Box<[u64]>>::new(), 0, 0);
    while pace.going() {
        let part = pace.part();
        let is_sorting = (0.3..0.4).contains(&part) || (0.7..0.8).contains(&part);
        if !is_sorting && parts.len() > 40 {
            sum += parts.drain(..).map(|part| part[7]).sum::<u64>();
        }
        for _ in 0..(if is_sorting { 50 } else { 1 }) {
            if parts.len() < 2000 {
                number += 1;
                sort_part(&mut parts, number);
            }
        }
        rest(30);
    }
    println!("{} {}", sum, pages.len());
}
