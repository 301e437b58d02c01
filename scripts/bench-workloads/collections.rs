//! Rust's collections: strings, vectors, maps and boxes that come and go.
//!
//! collections N      N rounds

use std::collections::{BTreeMap, HashMap, VecDeque};

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

enum Tree {
    Leaf(String),
    Branch(Box<Tree>, Box<Tree>),
}

fn tree(random: &mut Random, depth: u32) -> Tree {
    if depth == 0 {
        Tree::Leaf(format!("leaf {}", random.next() % 1000))
    } else {
        Tree::Branch(Box::new(tree(random, depth - 1)), Box::new(tree(random, depth - 1)))
    }
}

fn length(tree: &Tree) -> usize {
    match tree {
        Tree::Leaf(text) => text.len(),
        Tree::Branch(left, right) => length(left) + length(right),
    }
}

fn round(random: &mut Random) -> usize {
    let mut index: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut counts: HashMap<String, u64> = HashMap::new();
    let mut recent = VecDeque::new();
    for i in 0..200 {
        let key = random.next() % 80;
        index.entry(format!("key {key}")).or_default().push(i);
        *counts.entry(format!("count of {}", key % 20)).or_default() += 1;
        recent.push_back(key.to_string().into_bytes());
        if recent.len() > 16 {
            recent.pop_front();
        }
    }
    let line: String = index.keys().map(|key| key.to_uppercase()).collect::<Vec<_>>().join(";");
    let parts: Vec<String> = line.split(';').map(str::to_owned).collect();
    parts.len() + counts.len() + recent.len() + length(&tree(random, 6))
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1000);
    // A constant, so that every run does the same work. (The hash map's own seed moves blocks, and
    // not their number.)
    let mut random = Random(88172645463325252);
    let sum: usize = (0..rounds).map(|_| round(&mut random)).sum();
    println!("{sum}");
}
