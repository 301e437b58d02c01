//! A log, read whole: up to its end or its tear, past what is damaged, into a profile.

use heapprof_format::{Event, ReadError, ReadErrorKind, Reader, Record};

use crate::detail::Detail;
use crate::fold::Fold;
use crate::profile::{Account, Damage, Profile};

/// One who takes the records of a log.
pub(crate) trait Taker {
    /// The next record.
    fn take(&mut self, record: Record);

    /// The next record, which is one of these.
    fn take_event(&mut self, event: Event) {
        self.take(match event {
            Event::Alloc(alloc) => Record::Alloc(alloc),
            Event::Free(free) => Record::Free(free),
        });
    }

    /// What is wrong with the log, after its last record.
    fn account(&mut self, account: Account);
}

impl Taker for Fold {
    fn take(&mut self, record: Record) {
        self.record(record);
    }

    #[inline]
    fn take_event(&mut self, event: Event) {
        self.event(event);
    }

    fn account(&mut self, read: Account) {
        let account = &mut self.profile().account;
        account.damage = read.damage;
        account.torn = read.torn;
        account.missing_frames = read.missing_frames;
        account.segments = read.segments;
        account.remarks.extend(read.remarks);
    }
}

/// The profile in the bytes of a `.heaplog`. `progress` is told, now and then, how far reading is.
///
/// # Errors
/// When the bytes are not a log of a version that is known, or hold no intact record.
pub fn profile_of_log(bytes: &[u8], progress: impl FnMut(u64)) -> Result<Profile, ReadError> {
    detailed_profile_of_log(bytes, Detail::default(), progress)
}

/// The same, keeping more.
///
/// # Errors
/// As [`profile_of_log`].
pub fn detailed_profile_of_log(
    bytes: &[u8],
    detail: Detail,
    mut progress: impl FnMut(u64),
) -> Result<Profile, ReadError> {
    let mut fold = Fold::keeping(detail);
    each_record(bytes, &mut progress, &mut fold)?;
    Ok(fold.finish())
}

/// Gives each record of a log to one who takes them, and then the account of what was wrong.
///
/// # Errors
/// As [`profile_of_log`].
pub(crate) fn each_record(
    bytes: &[u8],
    progress: &mut impl FnMut(u64),
    taker: &mut impl Taker,
) -> Result<(), ReadError> {
    let mut reader = Reader::new(bytes)?;
    let mut account = Account::default();
    let mut records = 0u64;
    loop {
        // Often enough for an eye, rarely enough to cost nothing.
        if records.is_multiple_of(1 << 16) && records > 0 {
            progress(reader.offset());
        }
        if let Some(event) = reader.next_event() {
            taker.take_event(event);
            records += 1;
            continue;
        }
        match reader.next_record() {
            Ok(Some(record)) => {
                taker.take(record);
                records += 1;
            }
            Ok(None) => break,
            Err(error) => match reader.skip_damage() {
                Some(skipped) => account.damage.push(Damage {
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
    account.missing_frames = reader.missing_frames();
    account.segments = reader.segments().to_vec();
    taker.account(account);
    Ok(())
}
