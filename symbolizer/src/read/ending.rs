//! Ending: the end that the last frame of a log says, without a look at the others.

use heapprof_format::{EndReason, Reader, Record};

use crate::regular_file::RegularFile;

/// Returns when and how a log ends, by its last frame. `None`: that frame says no end.
pub(crate) fn end_of_log(bytes: &[u8]) -> Option<(u64, EndReason)> {
    let mut reader = Reader::of_last_frame(bytes)?;
    let mut end = None;
    while let Ok(Some(record)) = reader.next_record() {
        if let Record::End { time_ns, reason } = record {
            end = Some((time_ns, reason));
        }
    }
    end
}

/// Returns how the log of a file ends. `None`: it says no end, or is compressed.
pub fn end_of_file(file: &RegularFile) -> Option<EndReason> {
    let map = file.map().ok()?;
    end_of_log(&map).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use heapprof_format::{Encoder, FILE_HEADER, Start};

    use super::*;

    #[test]
    fn the_last_frame_says_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.heaplog");
        let mut file = std::fs::File::create(&path).unwrap();
        let mut encoder = Encoder::new();
        let end = || end_of_file(&RegularFile::open(&path).unwrap());
        encoder.record(&Record::Start(Start::default()));
        file.write_all(&FILE_HEADER).unwrap();
        file.write_all(encoder.finish()).unwrap();
        assert_eq!(end(), None);
        encoder.record(&Record::End {
            time_ns: 1,
            reason: EndReason::LogFailed,
        });
        file.write_all(encoder.finish()).unwrap();
        assert_eq!(end(), Some(EndReason::LogFailed));
    }
}
