//! A server and its clients over an allocator that is linked in, chosen by a feature.
//!
//! The server keeps a bounded cache over tokio's threads. Beside it, rayon's threads sort strings.
//! The allocator is wrapped by a count of its own: the last line of the output is what the program
//! has in use, in blocks and requested bytes. The process ends there, without destructors, so that
//! the count is the truth about the end of the recording.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[cfg(feature = "jemalloc")]
type Inner = tikv_jemallocator::Jemalloc;
#[cfg(feature = "jemalloc")]
const INNER: Inner = tikv_jemallocator::Jemalloc;
#[cfg(feature = "mimalloc")]
type Inner = mimalloc::MiMalloc;
#[cfg(feature = "mimalloc")]
const INNER: Inner = mimalloc::MiMalloc;
#[cfg(feature = "snmalloc")]
type Inner = snmalloc_rs::SnMalloc;
#[cfg(feature = "snmalloc")]
const INNER: Inner = snmalloc_rs::SnMalloc;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "snmalloc")))]
type Inner = std::alloc::System;
#[cfg(not(any(feature = "jemalloc", feature = "mimalloc", feature = "snmalloc")))]
const INNER: Inner = std::alloc::System;

/// Counts what the program has in use.
struct Counting(Inner);

static BLOCKS: AtomicI64 = AtomicI64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

fn count(blocks: i64, bytes: i64) {
    BLOCKS.fetch_add(blocks, Ordering::Relaxed);
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: each call goes to the inner allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-1, -(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { self.0.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(0, size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { self.0.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(INNER);

/// The newest answers.
#[derive(Default)]
struct Cache {
    answers: HashMap<u64, String>,
    order: VecDeque<u64>,
}

impl Cache {
    fn answer(&mut self, question: u64) -> String {
        const MOST: usize = 20_000;
        if let Some(answer) = self.answers.get(&question) {
            return answer.clone();
        }
        let answer = format!(
            "{{\"question\":{question},\"answer\":\"{}\"}}",
            "x".repeat((question % 700) as usize)
        );
        self.answers.insert(question, answer.clone());
        self.order.push_back(question);
        if self.order.len() > MOST {
            let oldest = self.order.pop_front().expect("it is not empty");
            self.answers.remove(&oldest);
        }
        answer
    }
}

async fn serve(mut stream: TcpStream, cache: Arc<Mutex<Cache>>) {
    let mut question = [0; 8];
    while stream.read_exact(&mut question).await.is_ok() {
        let answer = cache
            .lock()
            .expect("no thread has panicked")
            .answer(u64::from_le_bytes(question));
        let mut bytes = (answer.len() as u32).to_le_bytes().to_vec();
        bytes.extend(answer.as_bytes());
        if stream.write_all(&bytes).await.is_err() {
            break;
        }
    }
}

async fn ask(port: u16, client: u64, requests: u64) -> usize {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("the server listens");
    let mut total = 0;
    for request in 0..requests {
        let question = client
            .wrapping_mul(7919)
            .wrapping_add(request.wrapping_mul(104_729))
            % 50_000;
        stream
            .write_all(&question.to_le_bytes())
            .await
            .expect("the server reads");
        let mut len = [0; 4];
        stream
            .read_exact(&mut len)
            .await
            .expect("the server answers");
        let mut answer = vec![0; u32::from_le_bytes(len) as usize];
        stream
            .read_exact(&mut answer)
            .await
            .expect("the server answers");
        total += answer.len();
    }
    total
}

async fn run(requests: u64) -> (usize, Arc<Mutex<Cache>>) {
    let cache = Arc::new(Mutex::new(Cache::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let of_server = cache.clone();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, of_server.clone()));
        }
    });
    let clients: Vec<_> = (0..8)
        .map(|client| tokio::spawn(ask(port, client, requests)))
        .collect();
    let mut total = 0;
    for client in clients {
        total += client.await.expect("no client panics");
    }
    server.abort();
    (total, cache)
}

fn main() {
    let requests = std::env::args()
        .nth(1)
        .map_or(5_000, |text| text.parse().expect("a number of requests"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime");
    let (total, cache) = runtime.block_on(run(requests));
    drop(runtime);
    let mut words: Vec<String> = (0..200_000u64)
        .into_par_iter()
        .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    words.par_sort();
    let lengths: usize = words.par_iter().map(|word| word.clone().len()).sum();
    // The threads of rayon rest now: nobody allocates any more.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let line = format!(
        "{total} {lengths} {}",
        cache.lock().expect("no thread has panicked").order.len()
    );
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("standard output");
    out.flush().expect("standard output");
    let (blocks, bytes) = (
        BLOCKS.load(Ordering::Relaxed),
        BYTES.load(Ordering::Relaxed),
    );
    // On the stack: the count must not change any more.
    let mut text = [0u8; 64];
    let mut rest = &mut text[..];
    writeln!(rest, "in use: {blocks} {bytes}").expect("there is room");
    let left = rest.len();
    let len = text.len() - left;
    // SAFETY: writes bytes of this stack, and ends the process.
    unsafe {
        libc::write(1, text.as_ptr().cast(), len);
        libc::_exit(0);
    }
}
