//! jemalloc reader: jemalloc's own heap profile (`heap_v2/<interval>`, from
//! `MALLOC_CONF=prof:true`) as a profile.
//!
//! Its numbers are those of samples. Each line is unsampled by its average size, as jeprof does it.
//! Numbers by thread become [`Extras::threads`](crate::Extras). With `prof_accum:false`, the
//! default, the allocated numbers are zero: then nothing is known about freed blocks.

use heapprof_core::{Estimate, Row, SizeClass, Totals};
use heapprof_format::{Dump, DumpLine, MAX_FRAMES, Mapping, Sampling, Thread};

use crate::model::extras::ThreadRow;
use crate::model::profile::Profile;
use crate::read::dump::profile_of_dump;

/// An error in such a file, and its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct JemallocError {
    /// From 1.
    pub line: usize,
    /// In words.
    pub what: &'static str,
}

/// Returns true if the bytes begin as jemalloc's form does.
pub(crate) fn is_jemalloc(bytes: &[u8]) -> bool {
    bytes.starts_with(b"heap_v2/")
}

/// The profile in a file of jemalloc's.
///
/// # Errors
/// When it is malformed.
pub fn profile_of_jemalloc(bytes: &[u8]) -> Result<Profile, JemallocError> {
    let text = String::from_utf8_lossy(bytes);
    let mut parser = Parser::default();
    let mut interval = 0;
    let mut in_mappings = false;
    let mut mapped = false;
    for (index, line) in text.lines().enumerate() {
        let fail = |what| JemallocError {
            line: index + 1,
            what,
        };
        let line = line.trim_end();
        if index == 0 {
            let number = line.strip_prefix("heap_v2/").and_then(|n| n.parse().ok());
            interval = number.ok_or(fail("expected `heap_v2/` and the sampling interval"))?;
        } else if in_mappings {
            match (Mapping::parse(line), line.strip_prefix("# ")) {
                (Some(mapping), _) => parser.dump.mappings.push(mapping),
                (None, Some(comment)) => parser.dump.comments.push(comment.into()),
                // Some kernels and sandboxes write what is no mapping.
                (None, None) => {}
            }
        } else if line == "MAPPED_LIBRARIES:" {
            (in_mappings, mapped) = (true, true);
        } else if let Some(frames) = line.strip_prefix('@') {
            let frames: Option<Vec<u64>> = frames.split_whitespace().map(address).collect();
            let frames = frames.ok_or(fail("malformed address in a stack"))?;
            parser.begin(frames.into_iter().take(MAX_FRAMES).collect());
        } else if let Some(rest) = line.trim_start().strip_prefix('t') {
            let numbers = rest.split_once(": ").and_then(|(who, rest)| {
                let (numbers, name) = four(rest)?;
                Some((who, numbers, name))
            });
            let (who, numbers, name) =
                numbers.ok_or(fail("malformed line (expected `t*: n: bytes [n: bytes]`)"))?;
            let thread = match who {
                "*" => None,
                number => Some(
                    number
                        .parse()
                        .map_err(|_| fail("malformed thread number"))?,
                ),
            };
            parser.line(thread, numbers, name);
        } else if !line.is_empty() && !line.starts_with('#') {
            return Err(fail("neither a stack nor its numbers"));
        }
    }
    let mut profile = parser.finish(interval);
    if !mapped {
        profile
            .account
            .remarks
            .push("the file has no MAPPED_LIBRARIES: it may be cut off".into());
    }
    Ok(profile)
}

#[derive(Default)]
struct Parser {
    dump: Dump,
    threads: Vec<Thread>,
    /// The line in the dump that belongs to the stack that is being read.
    current: Option<usize>,
    /// (line in the dump, thread, numbers)
    parts: Vec<(usize, u32, [u64; 4])>,
}

impl Parser {
    fn begin(&mut self, frames: Vec<u64>) {
        self.current = Some(self.dump.lines.len());
        self.dump.lines.push(DumpLine {
            in_use_objects: 0,
            in_use_bytes: 0,
            allocated_objects: 0,
            allocated_bytes: 0,
            frames,
        });
    }

    fn line(&mut self, thread: Option<u32>, numbers: [u64; 4], name: &str) {
        match (self.current, thread) {
            (Some(current), None) => {
                let line = &mut self.dump.lines[current];
                [
                    line.in_use_objects,
                    line.in_use_bytes,
                    line.allocated_objects,
                    line.allocated_bytes,
                ] = numbers;
            }
            (Some(current), Some(thread)) => self.parts.push((current, thread, numbers)),
            // In front of the first stack: the sums, of which only the names are news.
            (None, Some(number)) => self.threads.push(Thread {
                number,
                tid: number,
                name: name.into(),
            }),
            (None, None) => {}
        }
    }

    fn finish(mut self, interval: u64) -> Profile {
        let interval: u64 = interval.max(1);
        self.dump.sampling = Sampling::Poisson { interval };
        // prof_accum:false leaves them out; what is in use was allocated.
        let without = self
            .dump
            .lines
            .iter()
            .all(|line| line.allocated_objects == 0);
        let accumulate = |n: [u64; 4]| match without {
            true => [n[0], n[1], n[0], n[1]],
            false => n,
        };
        for line in &mut self.dump.lines {
            if without {
                line.allocated_objects = line.in_use_objects;
                line.allocated_bytes = line.in_use_bytes;
            }
        }
        if without && !self.dump.lines.is_empty() {
            self.dump.remarks.push(
                "jemalloc ran without prof_accum: what was freed is not in the file, \
                 \"allocated\" is what is in use"
                    .into(),
            );
        }
        let mut profile = profile_of_dump(self.dump);
        let parts = self
            .parts
            .into_iter()
            .filter_map(|(line, thread, numbers)| {
                let stack = profile.rows.get(line)?.stack;
                let [a, b, c, d] = accumulate(numbers);
                let average = d.checked_div(c).or(b.checked_div(a)).unwrap_or(0);
                let totals = Totals {
                    in_use: Estimate::of_samples(a, b, interval),
                    allocated: Estimate::of_samples(c, d, interval),
                };
                let row = Row {
                    stack,
                    class: SizeClass::of(average),
                    totals,
                };
                Some(ThreadRow { thread, row })
            });
        let parts: Vec<ThreadRow> = parts.collect();
        profile.extras.threads = (!parts.is_empty()).then_some(parts);
        profile.threads = self.threads;
        profile
    }
}

fn address(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

/// `1: 2 [3: 4]`, and what follows.
fn four(text: &str) -> Option<([u64; 4], &str)> {
    let (in_use, rest) = text.split_once('[')?;
    let (allocated, name) = rest.split_once(']')?;
    let pair = |text: &str| -> Option<(u64, u64)> {
        let (objects, bytes) = text.split_once(':')?;
        Some((objects.trim().parse().ok()?, bytes.trim().parse().ok()?))
    };
    let ((a, b), (c, d)) = (pair(in_use)?, pair(allocated)?);
    Some(([a, b, c, d], name.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::metric::Numbers;

    const FILE: &str = "heap_v2/524288\n  t*: 2: 2000 [0: 0]\n  t0: 1: 1000 [0: 0]\n  \
                        t3: 1: 1000 [0: 0] worker\n@ 0x1010 0x2010\n  t*: 2: 2000 [0: 0]\n  \
                        t0: 1: 1000 [0: 0]\n  t3: 1: 1000 [0: 0]\n\nMAPPED_LIBRARIES:\n\
                        00001000-00003000 r-xp 00000000 fe:00 7 /bin/server\n";

    #[test]
    fn a_file_is_unsampled_by_line_and_by_thread() {
        let profile = profile_of_jemalloc(FILE.as_bytes()).unwrap();
        // 2 blocks of 1000 bytes, each sampled with probability 1 - e^(-1000/524288).
        let numbers = Numbers::of(&profile.rows[0].totals);
        assert_eq!(
            (numbers.in_use_objects, numbers.in_use_bytes),
            (1050, 1_049_576)
        );
        assert_eq!(numbers.allocated_bytes, numbers.in_use_bytes);
        let threads = profile.extras.threads.expect("threads");
        let of: Vec<_> = threads
            .iter()
            .map(|part| (part.thread, Numbers::of(&part.row.totals).in_use_objects))
            .collect();
        assert_eq!(of, [(0, 525), (3, 525)]);
        assert_eq!(profile.threads[1].name, "worker");
        assert_eq!(profile.run.program, "/bin/server");
    }

    #[test]
    fn no_cut_and_no_flipped_byte_makes_it_panic() {
        for at in 0..FILE.len() {
            let _ = profile_of_jemalloc(&FILE.as_bytes()[..at]);
            let mut flipped = FILE.as_bytes().to_vec();
            for bit in [1, 16, 0xff] {
                flipped[at] ^= bit;
                let _ = profile_of_jemalloc(&flipped);
            }
        }
        let error = profile_of_jemalloc(b"heap_v2/1\n@ 0x1\n  t*: x\n").unwrap_err();
        assert_eq!(error.line, 3);
    }
}
