// Workers put themselves into a registry at their start, and stay in it after their end.
//
// expect: leak start_worker; churn|nothing work
#[path = "../pace.rs"]
mod pace;
use pace::{rest, Pace};
use std::sync::{Arc, Mutex};
use std::{collections::LinkedList, hint::black_box, thread};

struct Worker {
    statistics: Mutex<[u64; 4000]>,
}

static REGISTRY: Mutex<LinkedList<Arc<Worker>>> = Mutex::new(LinkedList::new());

#[inline(never)]
fn start_worker() -> Arc<Worker> {
    let worker = Arc::new(Worker { statistics: Mutex::new([1; 4000]) });
    REGISTRY.lock().unwrap().push_back(worker.clone());
    worker
}

#[inline(never)]
fn work(worker: &Worker) {
    let block = black_box(vec![1_u64; 5000]);
    worker.statistics.lock().unwrap()[3] += block[4];
}

fn main() {
    let pace = Pace::begin();
    while pace.going() {
        let worker = start_worker();
        thread::spawn(move || work(&worker)).join().unwrap();
        rest(70);
    }
    println!("{}", REGISTRY.lock().unwrap().len());
}
