//! Helpers of all tests: logs built record by record, profiles with names, and the binary.

pub(crate) mod encoded;
pub(crate) mod history;
pub(crate) mod processes;
pub(crate) mod totals;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use heapprof_format::{
    Alloc, Counter, Encoder, EndReason, FILE_HEADER, Free, Module, Record, Segment, Stack, Start,
    Thread, WalkEnd,
};
use heapprof_symbolizer::resolve::{Frame, Name};
use heapprof_symbolizer::{
    Place, Profile, Symbols, WantedExtras, profile_of_log, profile_of_log_with,
};

/// A log being written. A millisecond passes with each event.
pub(crate) struct LogBuilder {
    encoder: Encoder,
    bytes: Vec<u8>,
    time_ns: u64,
    interval: u64,
    next_id: u64,
    stacks: u32,
    modules: u32,
}

impl LogBuilder {
    pub(crate) fn new(interval: u64) -> Self {
        let mut log = LogBuilder {
            encoder: Encoder::new(),
            bytes: FILE_HEADER.to_vec(),
            time_ns: 0,
            interval,
            next_id: 1,
            stacks: 0,
            modules: 0,
        };
        log.encoder.record(&Record::Start(Start {
            program: "/bin/server".into(),
            args: vec!["server".into(), "--fast".into()],
            pid: 77,
            forked_from: 0,
            wall_ns: 1_767_225_600_000_000_000,
            monotonic_ns: 5,
            interval,
            library: "0.1.0".into(),
            settings: vec![("HEAPPROF_SAMPLE_INTERVAL".into(), interval.to_string())],
            log_number: 77,
            parent_log_number: 0,
        }));
        log.encoder.record(&Record::Thread(Thread {
            number: 0,
            tid: 77,
            name: "server".into(),
        }));
        log
    }

    /// Begins anew, with another program.
    pub(crate) fn program(&mut self, program: &str) -> &mut Self {
        self.start_of(program, 77, 0)
    }

    /// As `program`, with the process's number and when it began.
    pub(crate) fn start_of(&mut self, program: &str, pid: u32, wall_ns: u64) -> &mut Self {
        self.encoder = Encoder::new();
        self.encoder.record(&Record::Start(Start {
            program: program.into(),
            args: vec![program.into()],
            pid,
            wall_ns,
            interval: self.interval,
            library: "0.1.0".into(),
            ..Start::default()
        }));
        self
    }

    /// Begins anew, as that process.
    pub(crate) fn begins(&mut self, start: Start) -> &mut Self {
        self.encoder = Encoder::new();
        self.encoder.record(&Record::Start(start));
        self
    }

    /// Any other record, now.
    pub(crate) fn record(&mut self, record: impl FnOnce(u64) -> Record) {
        self.tick();
        self.encoder.record(&record(self.time_ns));
    }

    /// Any other record, at that time.
    pub(crate) fn record_at(&mut self, time_ns: u64, record: impl FnOnce(u64) -> Record) {
        self.time_ns = time_ns;
        self.encoder.record(&record(time_ns));
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, ns: u64) {
        self.time_ns += ns;
    }

    pub(crate) fn module(&mut self, path: &str, start: u64, len: u64) -> u32 {
        self.module_record(Module {
            number: 0,
            time_ns: self.time_ns,
            path: path.into(),
            build_id: vec![0xab, self.modules as u8],
            stamp: None,
            bias: start,
            segments: vec![Segment {
                start,
                len,
                file_offset: 0,
                flags: 5,
            }],
        })
    }

    pub(crate) fn module_record(&mut self, mut module: Module) -> u32 {
        module.number = self.modules;
        self.modules += 1;
        self.encoder.record(&Record::Module(module));
        self.modules - 1
    }

    pub(crate) fn module_gone(&mut self, module: u32) {
        self.tick();
        self.encoder.record(&Record::ModuleGone {
            module,
            time_ns: self.time_ns,
        });
    }

    /// Any record.
    pub(crate) fn given(&mut self, record: &Record) {
        self.encoder.record(record);
    }

    pub(crate) fn stack(&mut self, frames: &[u64]) -> u32 {
        self.stack_ending(frames, &[], WalkEnd::Root)
    }

    pub(crate) fn stack_ending(
        &mut self,
        frames: &[u64],
        interrupted: &[u32],
        end: WalkEnd,
    ) -> u32 {
        self.stack_record(Stack {
            number: 0,
            end,
            frames: frames.into(),
            interrupted: interrupted.into(),
            labels: Vec::new(),
        })
    }

    /// A stack under labels.
    pub(crate) fn labelled(&mut self, frames: &[u64], labels: &[(&str, &str)]) -> u32 {
        let labels = labels.iter().map(|&(k, v)| (k.into(), v.into()));
        self.stack_record(Stack {
            number: 0,
            end: WalkEnd::Root,
            frames: frames.into(),
            interrupted: Vec::new(),
            labels: labels.collect(),
        })
    }

    fn stack_record(&mut self, mut stack: Stack) -> u32 {
        stack.number = self.stacks;
        self.encoder.record(&Record::Stack(stack));
        self.stacks += 1;
        self.stacks - 1
    }

    pub(crate) fn thread(&mut self, number: u32, name: &str) {
        self.encoder.record(&Record::Thread(Thread {
            number,
            tid: 77 + number,
            name: name.into(),
        }));
    }

    /// Returns the id of the sample.
    pub(crate) fn alloc(&mut self, stack: u32, size: u64) -> u64 {
        self.alloc_by(0, stack, size)
    }

    /// The sample of that id, and the next ones behind it.
    pub(crate) fn alloc_as(&mut self, id: u64, stack: u32, size: u64) {
        self.next_id = id;
        self.alloc(stack, size);
    }

    pub(crate) fn alloc_by(&mut self, thread: u32, stack: u32, size: u64) -> u64 {
        self.tick();
        let id = self.next_id;
        self.next_id += 1;
        self.encoder.alloc(&Alloc {
            time_ns: self.time_ns,
            thread,
            id,
            size,
            slack: 0,
            stack,
            interval: self.interval,
        });
        id
    }

    pub(crate) fn free(&mut self, id: u64) {
        self.tick();
        self.encoder.free(&Free {
            time_ns: self.time_ns,
            thread: 0,
            id,
        });
    }

    pub(crate) fn counters(&mut self, values: &[(Counter, u64)]) {
        self.encoder.record(&Record::Counters {
            time_ns: self.time_ns,
            values: values.into(),
        });
    }

    /// Ends the frame, as the writer does every 100 ms.
    pub(crate) fn flush(&mut self) -> usize {
        self.bytes.extend_from_slice(self.encoder.finish());
        self.bytes.len()
    }

    /// The log as it is so far, to be continued.
    pub(crate) fn current_bytes(&mut self) -> Vec<u8> {
        self.flush();
        self.bytes.clone()
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.encoder.record(&Record::End {
            time_ns: self.time_ns,
            reason: EndReason::Exit,
        });
        self.flush();
        self.bytes
    }

    /// Without an end: the process was killed.
    pub(crate) fn cut(mut self) -> Vec<u8> {
        self.flush();
        self.bytes
    }

    fn tick(&mut self) {
        self.time_ns += 1_000_000;
    }
}

/// A small server's log.
///
/// ```text
/// main ─> serve ─> read_request ─> malloc     3 × 1000, one freed        0x1000.. the program
///      │        └> (inlined) grow_buffer      10 × 24, all freed         0x9000.. libheapprof.so
///      └─> init ─────────────────> malloc     1 × 8 MiB, kept            0x5000.. libc.so.6
///  signal handler over serve ────> malloc     2 × 64, kept
/// ```
pub(crate) fn server_log(interval: u64) -> Vec<u8> {
    let mut log = LogBuilder::new(interval);
    log.module("/bin/server", 0x1000, 0x1000);
    log.module("/lib/libc.so.6", 0x5000, 0x1000);
    log.module("/lib/libheapprof.so", 0x9000, 0x1000);
    let request = log.stack(&[0x9010, 0x1101, 0x1201, 0x1301, 0x5101]);
    let buffer = log.stack(&[0x9010, 0x1111, 0x1201, 0x1301, 0x5101]);
    let init = log.stack(&[0x9010, 0x1401, 0x1302, 0x5101]);
    let handler = log.stack_ending(
        &[0x9010, 0x1501, 0x1208, 0x1301, 0x5101],
        &[2],
        WalkEnd::TooDeep,
    );
    log.alloc(init, 8 << 20);
    log.flush();
    let first = log.alloc(request, 1000);
    log.alloc(request, 1000);
    log.alloc(request, 1000);
    log.free(first);
    for _ in 0..10 {
        let id = log.alloc(buffer, 24);
        log.free(id);
    }
    log.flush();
    log.alloc(handler, 64);
    log.alloc(handler, 64);
    log.counters(&[(Counter::SampledAllocs, 16), (Counter::LostQueueFull, 0)]);
    log.end()
}

/// Its four numbers at interval 1: in use objects, bytes; allocated objects, bytes.
pub(crate) const SERVER_TRUTH: [u64; 4] =
    [5, (8 << 20) + 2000 + 128, 16, (8 << 20) + 3000 + 240 + 128];

/// With all extras, as the exporters that want them get them.
pub(crate) fn server_profile(interval: u64) -> Profile {
    profile_of_log_with(&server_log(interval), WantedExtras::ALL, |_| {}).expect("a good log")
}

pub(crate) fn frame(function: &str, file: &str, line: u32, inlined: bool) -> Frame {
    Frame {
        function: Some(Arc::new(Name::new(function))),
        file: Some(file.into()),
        line: Some(line),
        column: None,
        inlined,
    }
}

/// Names for the server; the place in libc stays without one.
pub(crate) fn server_symbols(profile: &Profile) -> Symbols {
    let one = |function: &str, file: &str, line| vec![frame(function, file, line, false)];
    let names = [
        (0x9010, one("malloc", "preload/src/exports.rs", 9)),
        (0x1100, one("read_request", "src/request.c", 10)),
        (
            0x1110,
            vec![
                frame("grow_buffer", "src/buffer.c", 5, true),
                frame("read_request", "src/request.c", 12, false),
            ],
        ),
        (0x1200, one("serve", "src/serve.c", 20)),
        (0x1208, one("serve", "src/serve.c", 23)),
        (0x1300, one("main", "src/main.c", 30)),
        (0x1301, one("main", "src/main.c", 31)),
        (0x1400, one("_ZN4demo4initEi", "src/init.cc", 40)),
        (0x1500, one("handler", "src/signal.c", 50)),
    ];
    let places = names.map(|(avma, frames)| (profile.place(avma, 0), frames));
    Symbols::given(profile, places)
}

/// A profile of one stack whose frames have these names, outermost first, one block of 4096 bytes.
pub(crate) fn named(names: &[&str]) -> (Profile, Symbols) {
    let mut log = LogBuilder::new(1);
    log.module("/bin/server", 0x1000, 0x100_000);
    let frames: Vec<u64> = (0..names.len() as u64).map(|i| 0x2001 + 16 * i).collect();
    let stack = log.stack(&frames);
    log.alloc(stack, 4096);
    let profile = profile_of_log(&log.end(), |_| {}).expect("a good log");
    let places: Vec<Place> = profile.places(&profile.stacks[0]).collect();
    let frames = names
        .iter()
        .rev()
        .map(|name| vec![frame(name, "a.c", 1, false)]);
    let symbols = Symbols::given(&profile, places.into_iter().zip(frames));
    (profile, symbols)
}

pub(crate) fn heapprof(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(args)
        .output()
        .expect("heapprof can be started")
}

/// Returns what `heapprof` prints, if it succeeds.
#[track_caller]
pub(crate) fn ok(args: &[&str]) -> String {
    let out = heapprof(args);
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    stdout(&out)
}

/// The same, as a document.
#[track_caller]
pub(crate) fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&ok(args)).unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).expect("a file can be written");
    path
}

/// The four numbers of a `total:` line, in the order of [`SERVER_TRUTH`].
pub(crate) fn totals_line(text: &str) -> [u64; 4] {
    let line = text
        .lines()
        .find(|line| line.starts_with("total: "))
        .expect("a total line");
    let numbers: Vec<u64> = line
        .split(|c: char| !c.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .map(|digits| digits.parse().expect("a number"))
        .collect();
    numbers.try_into().expect("four numbers")
}
