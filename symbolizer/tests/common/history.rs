//! History: a list of blocks with the times at which they came and went, and a log with the same
//! blocks. The list is a naive model, with which the answers from the log are compared.

use std::collections::BTreeMap;

use heapprof_format::{
    Alloc, Encoder, EndReason, FILE_HEADER, Free, Record, Stack, Start, WalkEnd,
};
use heapprof_symbolizer::{Moment, Numbers, Profile, ReadRequest, View, profile_of_view};
use proptest::prelude::*;

use super::{heapprof, stderr, stdout};

pub(crate) const US: u64 = 1000;
pub(crate) const MS: u64 = 1000 * US;
pub(crate) const S: u64 = 1000 * MS;

/// A block's life. `record` numbers order events that share a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) stack: u32,
    pub(crate) size: u64,
    pub(crate) slack: u64,
    pub(crate) came: (u64, u64),
    pub(crate) went: Option<(u64, u64)>,
}

/// A log being written, and the truth about it.
pub(crate) struct History {
    pub(crate) encoder: Encoder,
    pub(crate) bytes: Vec<u8>,
    pub(crate) record: u64,
    pub(crate) interval: u64,
    pub(crate) now: u64,
    pub(crate) blocks: Vec<Block>,
}

pub(crate) const STACKS: u32 = 4;

impl History {
    pub(crate) fn new(interval: u64) -> History {
        let mut encoder = Encoder::new();
        encoder.record(&Record::Start(Start {
            program: "/bin/server".into(),
            args: vec!["server".into()],
            pid: 77,
            wall_ns: 1_767_225_600 * S,
            interval,
            library: "0.1.0".into(),
            ..Start::default()
        }));
        for number in 0..STACKS {
            encoder.record(&Record::Stack(Stack {
                number,
                end: WalkEnd::Root,
                frames: vec![0x10, 0x1001 + 16 * u64::from(number)],
                interrupted: vec![],
                labels: Vec::new(),
            }));
        }
        History {
            encoder,
            bytes: FILE_HEADER.to_vec(),
            record: 1 + u64::from(STACKS),
            interval,
            now: 0,
            blocks: Vec::new(),
        }
    }

    pub(crate) fn at(&mut self, ns: u64) -> &mut Self {
        assert!(ns >= self.now);
        self.now = ns;
        self
    }

    pub(crate) fn alloc(&mut self, stack: u32, size: u64, slack: u64) -> usize {
        self.record += 1;
        self.encoder.alloc(&Alloc {
            time_ns: self.now,
            thread: 0,
            id: self.blocks.len() as u64 + 1,
            size,
            slack,
            stack,
            interval: self.interval,
        });
        self.blocks.push(Block {
            stack,
            size,
            slack,
            came: (self.now, self.record),
            went: None,
        });
        self.blocks.len() - 1
    }

    pub(crate) fn free(&mut self, block: usize) {
        assert_eq!(self.blocks[block].went, None);
        self.record += 1;
        self.encoder.free(&Free {
            time_ns: self.now,
            thread: 0,
            id: block as u64 + 1,
        });
        self.blocks[block].went = Some((self.now, self.record));
    }

    pub(crate) fn marker(&mut self, name: &str) {
        self.record += 1;
        self.encoder.record(&Record::Marker {
            time_ns: self.now,
            name: name.into(),
        });
    }

    pub(crate) fn flush(&mut self) {
        self.bytes.extend_from_slice(self.encoder.finish());
    }

    pub(crate) fn end(mut self) -> (Vec<u8>, Truth) {
        self.encoder.record(&Record::End {
            time_ns: self.now,
            reason: EndReason::Exit,
        });
        self.flush();
        let truth = Truth {
            blocks: self.blocks,
            end: self.now,
        };
        (self.bytes, truth)
    }
}

/// In use objects, bytes; allocated objects, bytes.
pub(crate) type Four = [u64; 4];
pub(crate) type ByStack = BTreeMap<u32, Four>;

pub(crate) struct Truth {
    pub(crate) blocks: Vec<Block>,
    pub(crate) end: u64,
}

impl Truth {
    /// By stack, of blocks that came when `came` says and of which `lives` says whether they do.
    pub(crate) fn sum(
        &self,
        came: impl Fn(&Block) -> bool,
        lives: impl Fn(&Block) -> bool,
    ) -> ByStack {
        let mut sums = ByStack::new();
        for block in self.blocks.iter().filter(|block| came(block)) {
            let sum = sums.entry(block.stack).or_default();
            let n = u64::from(lives(block));
            for (sum, add) in sum.iter_mut().zip([n, n * block.size, 1, block.size]) {
                *sum += add;
            }
        }
        sums
    }

    pub(crate) fn at(&self, t: u64) -> ByStack {
        self.window(None, t)
    }

    pub(crate) fn window(&self, from: Option<u64>, to: u64) -> ByStack {
        self.sum(
            |b| from.is_none_or(|from| b.came.0 > from) && b.came.0 <= to,
            |b| b.went.is_none_or(|went| went.0 > to),
        )
    }

    pub(crate) fn in_use_after(&self, record: u64) -> u64 {
        let lives = |b: &&Block| b.came.1 <= record && b.went.is_none_or(|w| w.1 > record);
        self.blocks.iter().filter(lives).map(|b| b.size).sum()
    }

    /// The record of the first maximum.
    pub(crate) fn peak_record(&self) -> u64 {
        let mut best = (0, 0);
        for block in &self.blocks {
            let bytes = self.in_use_after(block.came.1);
            if bytes > best.0 {
                best = (bytes, block.came.1);
            }
        }
        best.1
    }

    /// The record behind which the most bytes were in use after a time up to another one, or the
    /// last record before; the first of equal ones.
    pub(crate) fn highest_record(&self, after: u64, until: u64) -> u64 {
        let is_before = |&(time, _): &(u64, u64)| time <= after && after > 0;
        let came = self.blocks.iter().map(|block| block.came);
        let went = self.blocks.iter().filter_map(|block| block.went);
        let mut events: Vec<(u64, u64)> = came.chain(went).collect();
        events.sort_by_key(|(_, record)| *record);
        let before = events.iter().rfind(|event| is_before(event));
        let mut best = before.map_or(0, |(_, record)| *record);
        for &(time, record) in events.iter().filter(|event| !is_before(event)) {
            if time <= until && self.in_use_after(record) > self.in_use_after(best) {
                best = record;
            }
        }
        best
    }

    pub(crate) fn at_record(&self, record: u64) -> ByStack {
        self.sum(
            |b| b.came.1 <= record,
            |b| b.went.is_none_or(|went| went.1 > record),
        )
    }
}

pub(crate) fn by_stack(profile: &Profile) -> ByStack {
    let mut sums: BTreeMap<u32, Numbers> = BTreeMap::new();
    for row in &profile.rows {
        *sums.entry(row.stack).or_default() += Numbers::of(&row.totals);
    }
    let four = |n: Numbers| {
        [
            n.in_use_objects,
            n.in_use_bytes,
            n.allocated_objects,
            n.allocated_bytes,
        ]
    };
    sums.into_iter().map(|(s, n)| (s, four(n))).collect()
}

pub(crate) fn moment(text: &str) -> Moment {
    text.into()
}

pub(crate) fn view(log: &[u8], view: View) -> Profile {
    let request = ReadRequest {
        view,
        ..ReadRequest::default()
    };
    profile_of_view(log, &request, |_| {}).unwrap()
}

pub(crate) fn at(log: &[u8], text: &str) -> ByStack {
    by_stack(&view(log, View::At(moment(text))))
}

pub(crate) fn window(log: &[u8], from: &str, to: &str) -> ByStack {
    by_stack(&view(log, View::Window(moment(from), moment(to))))
}

/// Ten seconds of a server.
///
/// ```text
///   0 s   stack 0 allocates 100 × 1000 for good     start
///   1 s   stack 1 10 × 5000, held until 4 s         requests
///   2 s   stack 2 takes 1 MB for 1 ms, three times  spikes (the second is the highest: 1,000,001)
///   4 s   marker "loaded"; stack 1 frees
///   5..9  stack 3 leaks 500 each second
/// ```
pub(crate) fn server(interval: u64) -> (Vec<u8>, Truth) {
    let mut h = History::new(interval);
    for _ in 0..100 {
        h.alloc(0, 1000, 24);
    }
    h.flush();
    h.at(S);
    let held: Vec<usize> = (0..10).map(|_| h.alloc(1, 5000, 120)).collect();
    h.flush();
    for (i, size) in [1_000_000, 1_000_001, 1_000_000].into_iter().enumerate() {
        h.at(2 * S + 10 * MS * i as u64);
        let spike = h.alloc(2, size, 0);
        h.at(h.now + MS);
        h.free(spike);
    }
    h.at(4 * S).marker("dump: 1 MB in use");
    h.marker("loaded");
    for block in held {
        h.free(block);
    }
    h.flush();
    for second in 5..10 {
        h.at(second * S);
        h.alloc(3, 500, 12);
    }
    h.at(10 * S);
    h.end()
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Steps of a random history.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Alloc(u32, u64, u64),
    Free(prop::sample::Index),
    Wait(u64),
    Flush,
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..STACKS, prop_oneof![Just(0), Just(100), 0u64..5000], 0u64..64).prop_map(|(a, b, c)| Step::Alloc(a, b, c)),
        4 => any::<prop::sample::Index>().prop_map(Step::Free),
        // Often no time passes between events; sometimes just what counts as temporary, or more.
        3 => prop_oneof![Just(0), Just(1), Just(10_000), 1u64..20_000].prop_map(Step::Wait),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..120)
}

pub(crate) fn play(steps: &[Step]) -> (Vec<u8>, Truth) {
    let mut h = History::new(1);
    let mut live = Vec::new();
    for step in steps {
        match step {
            Step::Alloc(stack, size, slack) => live.push(h.alloc(*stack, *size, *slack)),
            Step::Free(which) if !live.is_empty() => {
                let block = live.swap_remove(which.index(live.len()));
                h.free(block);
            }
            Step::Free(_) => {}
            Step::Wait(us) => {
                h.at(h.now + us * US);
            }
            Step::Flush => h.flush(),
        }
    }
    h.end()
}

/// A folder with the server's log, at that interval; its name, and a way to ask about it.
pub(crate) fn server_file(interval: u64) -> (tempfile::TempDir, String, Truth) {
    let (log, truth) = server(interval);
    let folder = folder();
    let path = super::write(folder.path(), "s.heaplog", &log);
    (folder, path.to_str().unwrap().to_owned(), truth)
}

pub(crate) fn ok(args: &[&str]) -> String {
    let out = heapprof(args);
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    stdout(&out)
}

pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(args)).unwrap()
}

/// The sites' values of a measure, largest first.
pub(crate) fn own(file: &str, metric: &str) -> Vec<f64> {
    let document = json(&["top", file, "--json", "--metric", metric]);
    let sites = document["sites"].as_array().unwrap().iter();
    sites.map(|site| site["self"].as_f64().unwrap()).collect()
}
