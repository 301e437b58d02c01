//! A log being written: a microsecond passes with each record.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_format::{
    Alloc, Encoder, EndReason, FILE_HEADER, Free, Module, Record, Segment, Stack, Start, Thread,
    WalkEnd,
};

/// Bytes at which a frame ends.
const FRAME: usize = 1 << 18;

pub(crate) struct Builder {
    encoder: Encoder,
    pub(crate) bytes: Vec<u8>,
    pub(crate) time_ns: u64,
    pub(crate) interval: u64,
    next_id: u64,
}

/// The start of a process that has that number and began so many seconds after the machine.
pub(crate) fn start(pid: u32, seconds: u64) -> Start {
    let monotonic_ns = seconds * 1_000_000_000;
    Start {
        program: "/srv/server".into(),
        args: vec!["server".into()],
        pid,
        log_number: u64::from(pid) << 32 | seconds,
        wall_ns: 1_767_225_600_000_000_000 + monotonic_ns,
        monotonic_ns,
        interval: 1,
        library: "0.1.0".into(),
        ..Start::default()
    }
}

/// A module of one segment. Its build-id is made of its path.
pub(crate) fn module(number: u32, path: String, start: u64, len: u64) -> Module {
    let id = path.bytes().fold(0xcbf2_9ce4_8422_2325, |id: u64, byte| {
        (id ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Module {
        number,
        time_ns: 0,
        path,
        build_id: id.to_le_bytes().into(),
        stamp: None,
        bias: start,
        segments: vec![Segment {
            start,
            len,
            file_offset: 0,
            flags: 5,
        }],
    }
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder::of(start(77, 1000))
    }

    /// Begins with that, and thread 0.
    pub(crate) fn of(start: Start) -> Builder {
        let tid = start.pid;
        let mut log = Builder::bare(start);
        log.thread(0, tid, "main");
        log
    }

    /// Begins with that alone.
    pub(crate) fn bare(start: Start) -> Builder {
        let mut log = Builder {
            encoder: Encoder::new(),
            bytes: FILE_HEADER.to_vec(),
            time_ns: 0,
            interval: start.interval,
            next_id: 1,
        };
        log.record(&Record::Start(start));
        log.flush();
        log
    }

    pub(crate) fn record(&mut self, record: &Record) {
        self.encoder.record(record);
        if self.encoder.pending() >= FRAME {
            self.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        self.bytes.extend_from_slice(self.encoder.finish());
    }

    pub(crate) fn thread(&mut self, number: u32, tid: u32, name: &str) {
        let name = name.into();
        self.record(&Record::Thread(Thread { number, tid, name }));
    }

    /// Loads a module now.
    pub(crate) fn module(&mut self, module: Module) {
        self.time_ns += 1000;
        self.record(&Record::Module(Module {
            time_ns: self.time_ns,
            ..module
        }));
    }

    pub(crate) fn module_gone(&mut self, module: u32) {
        self.time_ns += 1000;
        let time_ns = self.time_ns;
        self.record(&Record::ModuleGone { module, time_ns });
    }

    pub(crate) fn stack(&mut self, number: u32, frames: Vec<u64>) {
        self.record(&Record::Stack(Stack {
            number,
            end: WalkEnd::Root,
            frames,
            interrupted: Vec::new(),
            labels: Vec::new(),
        }));
    }

    /// A block. Returns its id.
    pub(crate) fn alloc(&mut self, thread: u32, stack: u32, size: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.alloc_as(id, thread, stack, size);
        id
    }

    pub(crate) fn alloc_as(&mut self, id: u64, thread: u32, stack: u32, size: u64) {
        self.time_ns += 1000;
        self.record(&Record::Alloc(Alloc {
            time_ns: self.time_ns,
            thread,
            id,
            size,
            slack: 0,
            stack,
            interval: self.interval,
        }));
    }

    pub(crate) fn free(&mut self, id: u64) {
        self.time_ns += 1000;
        self.record(&Record::Free(Free {
            time_ns: self.time_ns,
            thread: 0,
            id,
        }));
    }

    /// The bytes of the log, with its end.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.record(&Record::End {
            time_ns: self.time_ns,
            reason: EndReason::Exit,
        });
        self.flush();
        self.bytes
    }

    /// Writes the log, with its end, into a file of that name.
    pub(crate) fn write(self, folder: &Path, name: &str) -> io::Result<PathBuf> {
        write(folder, name, &self.end())
    }
}

/// Writes bytes into a file of that name.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// The log alone, as the input of a command.
pub(crate) fn alone(log: Builder, folder: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(vec![log.write(folder, "input.heaplog")?])
}
