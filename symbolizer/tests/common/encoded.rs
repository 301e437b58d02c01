//! Logs encoded record by record: of one thread and one stack, every block recorded.

use heapprof_format::{Alloc, Encoder, Free, Record, Stack, Start, WalkEnd};

/// The beginning of a process's log: with settings, that of a child of 30.
pub(crate) fn start(
    encoder: &mut Encoder,
    pid: u32,
    monotonic_ns: u64,
    settings: Vec<(String, String)>,
) {
    encoder.record(&Record::Start(Start {
        program: "/bin/server".into(),
        pid,
        log_number: pid.into(),
        forked_from: 30 * u32::from(!settings.is_empty()),
        parent_log_number: 30 * u64::from(!settings.is_empty()),
        monotonic_ns,
        interval: 1,
        settings,
        ..Start::default()
    }));
}

/// Stack 0.
pub(crate) fn stack(encoder: &mut Encoder) {
    encoder.record(&Record::Stack(Stack {
        number: 0,
        end: WalkEnd::Root,
        frames: vec![0x10, 0x1001],
        interrupted: vec![],
        labels: Vec::new(),
    }));
}

/// A block of stack 0, of which every one is recorded.
pub(crate) fn alloc(encoder: &mut Encoder, time_ns: u64, id: u64, size: u64) {
    encoder.alloc(&Alloc {
        time_ns,
        thread: 0,
        id,
        size,
        slack: 0,
        stack: 0,
        interval: 1,
    });
}

/// Its end.
pub(crate) fn free(encoder: &mut Encoder, time_ns: u64, id: u64) {
    encoder.free(&Free {
        time_ns,
        thread: 0,
        id,
    });
}
