// Visitors of a sale: for a short time in the middle of the run there are thirty times as many.
//
// expect: burst arrive; churn|cache|nothing arrive
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};

#[inline(never)]
fn arrive(visitors: &mut Vec<Vec<u8>>) {
    let mut basket = Vec::with_capacity(25_000);
    basket.resize(25_000, 1);
    visitors.push(basket);
}

fn main() {
    let mut pace = Pace::begin();
    let mut visitors = Vec::with_capacity(4000);
    while pace.going() {
        let is_sale = pace.part() > 0.4 && pace.part() < 0.46;
        let wanted = if is_sale { 3000 } else { 100 } + pace.chance(20) as usize;
        // Each visitor stays for some steps.
        for _ in 0..(visitors.len() / 10) {
            let which = pace.chance(visitors.len() as u64) as usize;
            visitors.swap_remove(which);
        }
        while visitors.len() < wanted {
            arrive(&mut visitors);
        }
        rest(60);
    }
    println!("{}", visitors.len());
}
