// An interner of names that are never given back, fed with names from requests.
//
// expect: leak intern; growing block|nothing intern; churn|nothing read_names
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::HashSet;

#[inline(never)]
fn intern(known: &mut HashSet<&'static str>, name: &str) {
    if !known.contains(name) {
        known.insert(Box::leak(name.to_owned().into_boxed_str()));
    }
}

#[inline(never)]
fn read_names(pace: &mut Pace) -> Vec<String> {
    let mut names = Vec::with_capacity(150);
    for _ in 0..150 {
        names.push(format!("/api/v2/users/{:016x}/settings/{:08x}", pace.chance(1 << 31), 7));
    }
    names
}

fn main() {
    let mut pace = Pace::begin();
    let mut known = HashSet::new();
    while pace.going() {
        for name in read_names(&mut pace) {
            intern(&mut known, &name);
        }
        rest(25);
    }
    println!("{}", known.len());
}
