// A channel without a bound, and a consumer that is slower than the producer.
//
// expect: backlog produce
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::sync::mpsc::{channel, Sender};
use std::thread;

#[inline(never)]
fn produce(sender: &Sender<Vec<u8>>, size: usize) {
    let mut message = Vec::with_capacity(size);
    message.resize(size, 3);
    sender.send(message).unwrap();
}

fn main() {
    let mut pace = Pace::begin();
    let (sender, receiver) = channel::<Vec<u8>>();
    let consumer_pace = pace.clone();
    let consumer = thread::spawn(move || {
        let mut sum = 0;
        while consumer_pace.going() {
            for message in receiver.try_iter().take(5) {
                sum += message.len();
            }
            rest(60);
        }
        sum
    });
    while pace.going() {
        for _ in 0..9 {
            produce(&sender, 4000 + pace.chance(16_000) as usize);
        }
        rest(60);
    }
    println!("{}", consumer.join().unwrap());
}
