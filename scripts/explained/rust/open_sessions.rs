// Sessions in a map by number; those of clients that lose their connection are never removed.
//
// expect: leak open_session
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::collections::HashMap;

struct Session {
    inbox: Vec<u8>,
}

#[inline(never)]
fn open_session(sessions: &mut HashMap<u64, Session>, number: u64) {
    let mut inbox = Vec::with_capacity(14_000);
    inbox.resize(14_000, 1);
    sessions.insert(number, Session { inbox });
}

fn main() {
    let mut pace = Pace::begin();
    let (mut sessions, mut number) = (HashMap::new(), 0);
    while pace.going() {
        for _ in 0..6 {
            open_session(&mut sessions, number);
            if pace.chance(100) < 60 {
                sessions.remove(&number);
            }
            number += 1;
        }
        rest(60);
    }
    println!("{}", sessions.values().map(|session| session.inbox.len()).sum::<usize>());
}
