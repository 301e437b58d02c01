//! End frame: a frame that holds one end of the log and nothing else, made without memory.
//!
//! The process makes it where its writer cannot: the thread that ends the process may have been
//! interrupted inside an allocator.

use crate::body::Kind;
use crate::field::TIME_UNIT_NS;
use crate::frame::{FRAME_HEADER_LEN, FrameHeader};
use crate::log::KIND_OTHER;
use crate::record::EndReason;
use crate::varint::each_byte;

/// Bytes of the longest payload: two times, a kind, a length, a reason.
const LONGEST: usize = 10 + 1 + 1 + 10 + 1;

/// See the module's text.
#[derive(Debug, Clone, Copy)]
pub struct EndFrame {
    bytes: [u8; FRAME_HEADER_LEN + LONGEST],
    len: usize,
}

impl EndFrame {
    /// The frame of that sequence number, with a [`Record::End`](crate::Record::End).
    pub fn new(sequence: u32, time_ns: u64, reason: EndReason) -> EndFrame {
        let mut frame = EndFrame {
            bytes: [0; FRAME_HEADER_LEN + LONGEST],
            len: FRAME_HEADER_LEN,
        };
        let time = time_ns / TIME_UNIT_NS;
        each_byte(time, |byte| frame.push(byte));
        frame.push(KIND_OTHER | (Kind::End as u8) << 2);
        let mut body_len = 1;
        each_byte(time, |_| body_len += 1);
        frame.push(body_len);
        each_byte(time, |byte| frame.push(byte));
        frame.push(reason as u8);
        let header = FrameHeader::for_payload(sequence, &frame.bytes[FRAME_HEADER_LEN..frame.len]);
        frame.bytes[..FRAME_HEADER_LEN].copy_from_slice(&header.to_bytes());
        frame
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// The bytes to append to the log.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Encoder, Record};

    #[test]
    fn it_is_the_frame_that_the_encoder_makes() {
        for time_ns in [0, 1_000, 77_000_000, u64::MAX] {
            for reason in [EndReason::Exit, EndReason::Cut] {
                let mut encoder = Encoder::new();
                encoder.record(&Record::End {
                    time_ns: 5_000,
                    reason: EndReason::Exec,
                });
                encoder.finish();
                encoder.record(&Record::End { time_ns, reason });
                assert_eq!(EndFrame::new(1, time_ns, reason).bytes(), encoder.finish());
            }
        }
    }
}
