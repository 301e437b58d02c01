//! Log reader: a whole log as a profile, up to its end or its tear, past damaged places.

use heapprof_format::{Event, ReadError, ReadErrorKind, Reader, Record};

use crate::model::extras::WantedExtras;
use crate::model::profile::{Damage, LogAccount, Profile};
use crate::read::fold::Fold;

/// A consumer of the records of a log.
pub(crate) trait RecordSink {
    /// The next record.
    fn take(&mut self, record: Record);

    /// The next record, which is one of these.
    fn take_event(&mut self, event: Event) {
        self.take(event.into());
    }

    /// Takes the account of the log, after its last record.
    fn account(&mut self, account: LogAccount);

    /// Returns true if the records that follow need not be read.
    fn has_enough(&self) -> bool {
        false
    }
}

impl<T: RecordSink> RecordSink for &mut T {
    fn take(&mut self, record: Record) {
        (**self).take(record);
    }

    #[inline]
    fn take_event(&mut self, event: Event) {
        (**self).take_event(event);
    }

    fn account(&mut self, account: LogAccount) {
        (**self).account(account);
    }

    fn has_enough(&self) -> bool {
        (**self).has_enough()
    }
}

impl RecordSink for Fold {
    fn take(&mut self, record: Record) {
        self.record(record);
    }

    #[inline]
    fn take_event(&mut self, event: Event) {
        self.event(event);
    }

    fn account(&mut self, read: LogAccount) {
        let account = &mut self.profile().account;
        account.damage = read.damage;
        account.torn = read.torn;
        account.unchecked_bytes = read.unchecked_bytes;
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
    profile_of_log_with(bytes, WantedExtras::default(), progress)
}

/// The same, with extras.
///
/// # Errors
/// As [`profile_of_log`].
pub fn profile_of_log_with(
    bytes: &[u8],
    extras: WantedExtras,
    mut progress: impl FnMut(u64),
) -> Result<Profile, ReadError> {
    let mut fold = Fold::keeping(extras);
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
    sink: &mut impl RecordSink,
) -> Result<(), ReadError> {
    let mut records = Records::of(bytes)?;
    records.give_all(progress, sink)?;
    sink.account(records.account());
    Ok(())
}

/// The records of a log one by one, past what is damaged.
#[derive(Debug, Clone)]
pub(crate) struct Records<'a> {
    reader: Reader<'a>,
    length: u64,
    taken: u64,
    /// Offset of the frame that the file's cut is in, and how many records came before it.
    cut_frame: Option<(u64, u64)>,
    account: LogAccount,
}

impl<'a> Records<'a> {
    /// # Errors
    /// When the bytes are not a log of a version that is known.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Records<'a>, ReadError> {
        Ok(Records {
            reader: Reader::new(bytes)?,
            length: bytes.len() as u64,
            taken: 0,
            cut_frame: None,
            account: LogAccount::default(),
        })
    }

    /// Gives the records that are left to a sink. An event goes on as it was read: a copy of it
    /// would take as long as its decoding.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    #[inline]
    pub(crate) fn give_all(
        &mut self,
        progress: &mut impl FnMut(u64),
        sink: &mut impl RecordSink,
    ) -> Result<(), ReadError> {
        loop {
            self.tell(progress);
            if let Some(event) = self.next_event() {
                sink.take_event(event);
                continue;
            }
            match self.next_record()? {
                Some(record) => sink.take(record),
                None => return Ok(()),
            }
        }
    }

    /// Tells how far reading is: often enough for an eye, rarely enough to cost nothing.
    #[inline]
    fn tell(&self, progress: &mut impl FnMut(u64)) {
        if self.taken.is_multiple_of(1 << 16) && self.taken > 0 {
            progress(self.offset());
        }
    }

    /// Gives the records that are left to a sink, up to the first one whose time is not wanted.
    /// Returns that record; `None`: all were given.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    #[inline]
    pub(crate) fn give(
        &mut self,
        progress: &mut impl FnMut(u64),
        sink: &mut impl RecordSink,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<Option<Record>, ReadError> {
        loop {
            self.tell(progress);
            if let Some(event) = self.next_event() {
                if !is_wanted(event.time_ns()) {
                    return Ok(Some(event.into()));
                }
                sink.take_event(event);
                continue;
            }
            match self.next_record()? {
                Some(record) if !time_in_span(&record).is_none_or(&is_wanted) => {
                    return Ok(Some(record));
                }
                Some(record) => sink.take(record),
                None => return Ok(None),
            }
        }
    }

    /// How far reading is, in bytes.
    pub(crate) fn offset(&self) -> u64 {
        self.reader.offset()
    }

    /// The next record, if it is one of these and nothing is amiss; otherwise
    /// [`next_record`](Self::next_record) has it.
    #[inline]
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.reader.next_event()?;
        self.taken += 1;
        Some(event)
    }

    /// The next record; `None` at the end, or where nothing more can be read.
    ///
    /// # Errors
    /// When there is no intact record at all.
    pub(crate) fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        loop {
            let error = match self.reader.next_record() {
                Ok(Some(record)) => {
                    self.taken += 1;
                    return Ok(Some(record));
                }
                Ok(None) if self.taken > 0 => return Ok(None),
                // A header alone: the writer was killed before its first flush.
                Ok(None) => {
                    return Err(ReadError {
                        offset: self.length,
                        kind: ReadErrorKind::TornTail,
                    });
                }
                Err(error) => error,
            };
            match self.reader.skip_damage() {
                Some(skipped) => self.account.damage.push(Damage {
                    offset: error.offset,
                    skipped,
                    what: error.to_string(),
                }),
                // Nothing of it can be believed: that is no profile.
                None if self.taken == 0 => return Err(error),
                None if self.reader.enter_cut_frame() => {
                    self.cut_frame = Some((error.offset, self.taken));
                }
                None => {
                    let mut offset = error.offset;
                    match self.cut_frame {
                        // No record of it is whole.
                        Some((frame, taken)) if taken == self.taken => offset = frame,
                        Some((frame, _)) => self.account.unchecked_bytes = offset - frame,
                        None => {}
                    }
                    self.account.torn = Some((offset, self.length - offset));
                    if error.kind != ReadErrorKind::TornTail {
                        self.account.remarks.push(error.to_string());
                    }
                    if self.reader.has_given_up() {
                        let remark = "damaged parts claim each other's bytes again and again: the rest was not searched";
                        self.account.remarks.push(remark.into());
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the account of the log, as far as it was read.
    pub(crate) fn account(mut self) -> LogAccount {
        self.account.missing_frames = self.reader.missing_frames();
        self.account.segments = self.reader.segments().to_vec();
        self.account
    }
}

/// Returns the time of a record that counts or not, depending on the end of a span.
fn time_in_span(record: &Record) -> Option<u64> {
    match record {
        Record::Alloc(alloc) => Some(alloc.time_ns),
        Record::Free(free) => Some(free.time_ns),
        Record::Memory(reading) => Some(reading.time_ns),
        Record::MappingChange(change) => Some(change.time_ns),
        Record::MappedMemory(moment) => Some(moment.time_ns),
        Record::Pages(part) => Some(part.time_ns),
        _ => None,
    }
}
