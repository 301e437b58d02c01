//! A log, read whole: up to its end or its tear, past what is damaged, into a profile.

use heapprof_format::{ReadError, ReadErrorKind, Reader};

use crate::fold::Fold;
use crate::profile::{Damage, Profile};

/// The profile in the bytes of a `.heaplog`. `progress` is told, now and then, how far reading is.
///
/// # Errors
/// When the bytes are not a log of a version that is known, or hold no intact record.
pub fn profile_of_log(bytes: &[u8], mut progress: impl FnMut(u64)) -> Result<Profile, ReadError> {
    let mut reader = Reader::new(bytes)?;
    let mut fold = Fold::new();
    let mut records = 0u64;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                fold.record(record);
                records += 1;
                // Often enough for an eye, rarely enough to cost nothing.
                if records.is_multiple_of(1 << 16) {
                    progress(reader.offset());
                }
            }
            Ok(None) => break,
            Err(error) => match reader.skip_damage() {
                Some(skipped) => fold.profile().account.damage.push(Damage {
                    offset: error.offset,
                    skipped,
                    what: error.to_string(),
                }),
                None => {
                    let left = bytes.len() as u64 - error.offset;
                    if records == 0 {
                        // Nothing of it can be believed: that is no profile.
                        return Err(error);
                    }
                    let account = &mut fold.profile().account;
                    account.torn = Some((error.offset, left));
                    if error.kind != ReadErrorKind::TornTail {
                        account.remarks.push(error.to_string());
                    }
                    break;
                }
            },
        }
    }
    if records == 0 {
        // A header alone: the writer was killed before its first flush.
        let offset = bytes.len() as u64;
        return Err(ReadError {
            offset,
            kind: ReadErrorKind::TornTail,
        });
    }
    fold.profile().account.missing_frames = reader.missing_frames();
    Ok(fold.finish())
}
