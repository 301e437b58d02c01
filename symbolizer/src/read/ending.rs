//! Ending: the end that the last frame of a log says, without a look at the others.

use heapprof_format::{EndReason, Reader, Record};

use crate::regular_file::RegularFile;

/// Returns how a log that is not compressed ends. `None`: it says no end.
pub fn end_of_file(file: &RegularFile) -> Option<EndReason> {
    let map = file.map().ok()?;
    let mut reader = Reader::of_last_frame(&map)?;
    let mut end = None;
    while let Ok(Some(record)) = reader.next_record() {
        end = match record {
            Record::End { reason, .. } => Some(reason),
            _ => None,
        };
    }
    end
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
