//! Pack: the compressed form of a log.

use std::io::{self, Write};

use heapprof_format::{FILE_HEADER_LEN, frame_end};
use rayon::prelude::*;
use zstd::bulk::Compressor;

use crate::memory;

/// Bytes of a part. Level 3 looks back so far, so larger parts are hardly smaller together.
pub(super) const PART: usize = 2 << 20;
/// Beyond, the last frame of a part is cut.
const LONGEST_PART: usize = 2 * PART;
/// The level at which a core compresses some 300 MB/s, and the next one hardly makes it smaller.
const LEVEL: i32 = 3;
/// Parts that are in memory at once, for each core.
const PARTS_A_CORE: usize = 2;

/// Writes the compressed form of a log: any bytes, which come back as they are. `progress` is told
/// how many of them are done. Returns how many bytes were written.
///
/// # Errors
/// Those of `out`.
pub fn pack(log: &[u8], out: &mut impl Write, mut progress: impl FnMut(u64)) -> io::Result<u64> {
    let (mut at, mut written) = (0, 0);
    memory::start_threads();
    let at_once = PARTS_A_CORE * rayon::current_num_threads();
    while at < log.len() {
        let mut parts = Vec::new();
        while at < log.len() && parts.len() < at_once {
            let end = end_of_part(log, at);
            parts.push(&log[at..end]);
            at = end;
        }
        let frames: Vec<Vec<u8>> = parts
            .par_iter()
            .map(|part| frame(part))
            .collect::<Result<_, _>>()?;
        for frame in frames {
            out.write_all(&frame)?;
            written += frame.len() as u64;
        }
        progress(at as u64);
    }
    Ok(written)
}

fn frame(part: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = Compressor::new(LEVEL)?;
    compressor.include_checksum(true)?;
    compressor.include_contentsize(true)?;
    compressor.compress(part)
}

/// Where the part that begins there ends: behind a frame of the log's, if frames follow each other.
fn end_of_part(log: &[u8], begin: usize) -> usize {
    let mut end = match begin {
        0 => FILE_HEADER_LEN.min(log.len()),
        begin => begin,
    };
    while end - begin < PART
        && let Some(next) = frame_end(log, end).filter(|next| next - begin <= LONGEST_PART)
    {
        end = next;
    }
    match end - begin < PART {
        // The end of the log, or bytes that are no frames.
        true => log.len().min(begin + PART),
        false => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::{Alloc, Encoder, FILE_HEADER};

    /// A log of some parts.
    fn log() -> Vec<u8> {
        let mut encoder = Encoder::new();
        let mut log = FILE_HEADER.to_vec();
        let mut id = 0_u64;
        while log.len() < 5 * PART {
            for _ in 0..10_000 {
                id += 1;
                encoder.alloc(&Alloc {
                    time_ns: id * 1000,
                    thread: 1,
                    id,
                    size: id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54,
                    slack: 0,
                    stack: (id % 17) as u32,
                    interval: 1,
                });
            }
            log.extend_from_slice(encoder.finish());
        }
        log
    }

    fn packed(log: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let written = pack(log, &mut packed, |_| {}).unwrap();
        assert_eq!(written, packed.len() as u64);
        packed
    }

    #[test]
    fn the_standard_decoder_gives_the_log_back() {
        let log = log();
        let cut = &log[..log.len() - 1000];
        let rubbish: Vec<u8> = (0..3_000_000_u32)
            .map(|i| (i.wrapping_mul(i) >> 11) as u8)
            .collect();
        for log in [
            &log[..],
            cut,
            &rubbish,
            b"x",
            &[&FILE_HEADER[..], &rubbish].concat(),
        ] {
            let packed = packed(log);
            assert!(zstd::stream::decode_all(&packed[..]).unwrap() == log);
        }
    }

    #[test]
    fn parts_begin_where_frames_of_the_log_begin() {
        let log = log();
        let mut at = 0;
        while at < log.len() {
            assert!(at == 0 || frame_end(&log, at).is_some(), "{at}");
            let end = end_of_part(&log, at);
            assert!(end > at && end - at <= LONGEST_PART);
            assert!(end == log.len() || end - at >= PART);
            at = end;
        }
    }
}
