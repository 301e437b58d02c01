// Tokens that are valid for some seconds, in a map by time; the load changes a little.
//
// expect: cache issue
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::BTreeMap;

struct Token {
    claims: Box<[u8]>,
}

#[inline(never)]
fn issue(tokens: &mut BTreeMap<u64, Token>, number: u64) {
    tokens.insert(number, Token { claims: vec![1; 9000].into_boxed_slice() });
}

fn main() {
    let mut pace = Pace::begin();
    let (mut tokens, mut number) = (BTreeMap::new(), 0);
    while pace.going() {
        for _ in 0..(8 + pace.chance(9)) {
            issue(&mut tokens, (pace.seconds() * 1e6) as u64 * 100 + number % 100);
            number += 1;
        }
        let oldest = (pace.seconds() - 6.0).max(0.0);
        tokens = tokens.split_off(&((oldest * 1e6) as u64 * 100));
        rest(50);
    }
    println!("{}", tokens.values().map(|token| token.claims.len()).sum::<usize>());
}
