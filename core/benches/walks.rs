//! Costs of the components of a walk: one core, a stack that is in the cache, and no unwind tables.
//!
//!     cargo bench --package heapprof-core --bench walks
//!
//! As in `components.rs`, compare two versions on one machine, in one sitting.

use std::cell::RefCell;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use heapprof_core::{Cursor, Frame, Memo, MemoHit, Memos, Rng, Rule, Rules, Words};

fn main() {
    divan::main();
}

const ERA: u32 = 1;
const ROOM: usize = 128;
/// Words of the stack for each frame. The last word is the frame's return address.
const FRAME: usize = 6;
const STACK: u64 = 0x7ffc_0000_0000;

/// Return addresses like those of one program: anywhere in 4 MiB of code.
fn return_addresses(seed: u64, count: usize) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    (0..count)
        .map(|_| 0x5600_0000_0000 + rng.next_u64() % (4 << 20))
        .collect()
}

fn rule() -> Rule {
    Rule::ask(1, |sp, bp, word| {
        let sp = sp + 8 * FRAME as u64;
        let address = word(sp - 8);
        Some(Cursor {
            address,
            returns: true,
            sp,
            bp,
        })
    })
}

fn rules_of(addresses: &[u64], room: usize) -> Rules {
    let mut rules = Rules::with_room_for(room);
    rules.set_era(ERA);
    addresses
        .iter()
        .for_each(|&address| rules.insert(address, rule()));
    rules
}

/// A stack, and the registers at which a walk begins.
#[derive(Clone)]
struct Stack {
    words: Vec<u64>,
    at: Cursor,
}

impl Stack {
    /// Builds the stack of these return addresses, innermost first.
    fn through(calls: &[u64]) -> Stack {
        let mut words = vec![0; FRAME * calls.len()];
        for (n, &call) in calls[1..].iter().enumerate() {
            words[FRAME * (n + 1) - 1] = call; // the outermost returns to 0
        }
        let at = Cursor {
            address: calls[0],
            returns: true,
            sp: STACK,
            bp: 0,
        };
        Stack { words, at }
    }

    fn frame(&self, place: Cursor) -> Frame {
        Frame::new(place.address, place.returns, place.sp, place.bp, 1)
    }

    #[inline(always)]
    fn word(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(STACK)? as usize / 8;
        self.words.get(at).copied()
    }

    #[inline(always)]
    fn hold(&self, words: Words<'_>) -> bool {
        let holds = |at, value| self.word(at) == Some(value);
        words.words.iter().all(|word| holds(word.at, word.value))
    }

    /// Walks as the preloaded library does. Returns the number of frames that were unwound.
    fn walk(&self, memo: &mut Memo<()>, rules: &Rules, fresh: &mut Vec<Frame>) -> usize {
        memo.begin(ERA);
        let (mut place, mut unwound) = (self.at, 0);
        loop {
            let mut frame = self.frame(place);
            let met = memo.look_up(&frame, fresh, ROOM, 0, rules, |address| self.word(address));
            match met {
                MemoHit::Full => return unwound,
                MemoHit::Partial(next) => {
                    place = next;
                    continue;
                }
                MemoHit::None => {}
            }
            let rule = rules.get(place.address);
            let caller = rule.and_then(|rule| frame.unwind(rule, |address| self.word(address)));
            fresh.push(frame);
            unwound += 1;
            let Some(caller) = caller else {
                memo.end(fresh, (), true);
                return unwound;
            };
            place = caller;
        }
    }
}

/// Repeats the last walk by its echo: only the words that matter are compared.
#[divan::bench(args = [10, 40])]
fn unchanged(bencher: Bencher, depth: usize) {
    let calls = return_addresses(1, depth);
    let (stack, rules) = (Stack::through(&calls), rules_of(&calls, 4096));
    let mut memos = Memos::with_room_for(ROOM, ());
    let at = stack.frame(stack.at);
    memos.choose(&at);
    assert_eq!(
        stack.walk(memos.chosen_mut(), &rules, &mut Vec::new()),
        depth
    );
    let memo = memos.chosen_mut();
    assert!(memo.is_repeated(ERA, &at, ROOM, &rules, |address| stack.word(address)));
    memos.echo(ERA, 7u64);
    bencher.counter(ItemsCount::new(depth)).bench_local(|| {
        memos.choose(black_box(&at));
        let found = memos.find_unchanged(ERA, &at, |words| stack.hold(words));
        assert_eq!(found, Some(7));
    });
}

/// Repeats the last walk frame by frame.
#[divan::bench(args = [10, 40])]
fn again(bencher: Bencher, depth: usize) {
    let calls = return_addresses(1, depth);
    let (stack, rules) = (Stack::through(&calls), rules_of(&calls, 4096));
    let mut memo = Memo::with_room_for(ROOM, ());
    stack.walk(&mut memo, &rules, &mut Vec::new());
    let at = stack.frame(stack.at);
    bencher.counter(ItemsCount::new(depth)).bench_local(|| {
        assert!(
            memo.is_repeated(ERA, black_box(&at), ROOM, &rules, |address| {
                stack.word(address)
            })
        );
    });
}

/// Walks from two places in turn. The upper halves of both stacks are equal: they pass through two
/// calls in one function, whose frames are alike and whose rules are known.
#[divan::bench(args = [10, 40])]
fn by_another_call(bencher: Bencher, depth: usize) {
    let calls = return_addresses(1, depth);
    let mut other = calls.clone();
    other[depth / 2] = return_addresses(2, 1)[0];
    let known = [&calls[..], &other[depth / 2..=depth / 2]].concat();
    let rules = rules_of(&known, 4096);
    let stacks = [Stack::through(&calls), Stack::through(&other)];
    let mut memo = Memo::with_room_for(ROOM, ());
    stacks[1].walk(&mut memo, &rules, &mut Vec::new());
    bencher.counter(ItemsCount::new(2 * depth)).bench_local(|| {
        for stack in &stacks {
            let at = stack.frame(stack.at);
            assert!(memo.is_repeated(ERA, &at, ROOM, &rules, |address| stack.word(address)));
        }
    });
}

/// Walks through ten functions that call from two places each, in an unpredictable order. About
/// five of 40 return addresses change each time.
#[divan::bench(args = [10, 40])]
fn by_any_calls(bencher: Bencher, depth: usize) {
    let calls = [return_addresses(1, depth), return_addresses(2, depth)];
    let rules = rules_of(&calls.concat(), 4096);
    let mut rng = Rng::new(3);
    let mut any = |_| {
        let choice = rng.next_u64() as usize;
        let of = |n: usize| match n.is_multiple_of(depth / 10) {
            true => choice >> (n * 10 / depth) & 1,
            false => 0,
        };
        let path: Vec<u64> = (0..depth).map(|n| calls[of(n)][n]).collect();
        Stack::through(&path)
    };
    let stacks: Vec<Stack> = (0..256).map(&mut any).collect();
    let mut memo = Memo::with_room_for(ROOM, ());
    let mut order = Rng::new(4);
    stacks[0].walk(&mut memo, &rules, &mut Vec::new());
    let mut fresh = Vec::with_capacity(ROOM);
    bencher.counter(ItemsCount::new(depth)).bench_local(|| {
        let stack = &stacks[order.next_u64() as usize % 256];
        let at = stack.frame(stack.at);
        let word = |address| stack.word(address);
        memo.is_repeated(ERA, &at, ROOM, &rules, word)
            || stack.walk(&mut memo, &rules, &mut fresh) < depth
    });
}

/// Walks without a frame in common with the walk before: each frame is unwound by its rule.
#[divan::bench(args = [10, 40])]
fn by_rules(bencher: Bencher, depth: usize) {
    let calls = [return_addresses(1, depth), return_addresses(2, depth)];
    let rules = rules_of(&calls.concat(), 4096);
    let stacks = calls.map(|calls| Stack::through(&calls));
    let mut memo = Memo::with_room_for(ROOM, ());
    let mut fresh = Vec::with_capacity(ROOM);
    bencher.counter(ItemsCount::new(2 * depth)).bench_local(|| {
        for stack in &stacks {
            assert_eq!(stack.walk(&mut memo, &rules, &mut fresh), depth);
        }
    });
}

/// Looks up the rule of one of `known` addresses.
#[divan::bench(args = [500, 8_000])]
fn rules_get(bencher: Bencher, known: usize) {
    let addresses = return_addresses(1, known);
    let rules = rules_of(&addresses, 16_384);
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % addresses.len();
        rules.get(addresses[at])
    });
}

/// Moves a full table to the next larger one, as a thread does inside a hook.
#[divan::bench(args = [1_024, 4_096, 16_384])]
fn rules_move(bencher: Bencher, room: usize) {
    let addresses = return_addresses(1, room);
    bencher
        .with_inputs(|| {
            let larger = Rules::with_room_for(4 * room);
            RefCell::new((rules_of(&addresses, room), larger))
        })
        .bench_local_refs(|tables| {
            let (rules, larger) = tables.get_mut();
            rules.move_to(larger);
        });
}
