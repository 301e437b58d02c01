//! Midway: the state of a reading in the late part of a log, from which the log can be read once
//! more up to an earlier end.
//!
//! ```text
//!   log   ├────────────────────────────────────┊───────┃──┤
//!                                         midway       ┃ earlier end, which the whole log tells
//! ```
//!
//! So the earlier end costs a quarter of a reading. The log must begin with its first record.

use heapprof_format::{ReadError, Record};

use crate::history::past_numbers::PastNumbers;
use crate::history::temporary::Temporary;
use crate::model::extras::WantedExtras;
use crate::model::profile::Profile;
use crate::read::ending::end_of_log;
use crate::read::fold::Fold;
use crate::read::labelled::{Labelled, LogPart};
use crate::read::log::{RecordSink, Records};

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Midway<'a> {
    records: Records<'a>,
    /// The record in front of these.
    next: Option<Record>,
    part: Labelled<'a, Fold>,
}

impl<'a> LogPart<'a> {
    /// The profile of the part with courses and these numbers of pasts, and the state midway.
    ///
    /// # Errors
    /// As [`profile_of_log`](crate::profile_of_log).
    pub fn profile_with_courses(
        self,
        extras: WantedExtras,
        temporary: Temporary,
        numbers: PastNumbers,
        mut progress: impl FnMut(u64),
    ) -> Result<(Profile, Midway<'a>), ReadError> {
        let fold = Fold::keeping(extras).with_pasts(temporary);
        let part = self.to(fold.with_numbers(numbers).with_courses());
        Midway::read(self.bytes, part, &mut progress)
    }
}

impl<'a> Midway<'a> {
    /// Reads a log up to its end. Returns its profile, and the state at three quarters of the time.
    ///
    /// # Errors
    /// As [`profile_of_log`](crate::profile_of_log).
    fn read(
        bytes: &'a [u8],
        part: Labelled<'a, Fold>,
        progress: &mut impl FnMut(u64),
    ) -> Result<(Profile, Midway<'a>), ReadError> {
        let begin = Midway {
            records: Records::of(bytes)?,
            next: None,
            part,
        };
        let mut midway = begin.clone();
        let end_ns = end_of_log(bytes).map_or(0, |(time_ns, _)| time_ns);
        let late_ns = end_ns / 4 * 3;
        if late_ns > 0 {
            let (records, part) = (&mut midway.records, &mut midway.part);
            midway.next = records.give(progress, part, |time_ns| time_ns <= late_ns)?;
        }
        let profile = midway.clone().finish(progress)?;
        // Otherwise the last frame was not read, and its time is not that of the end.
        let is_end = profile.run.duration_ns >= end_ns;
        Ok((profile, if is_end { midway } else { begin }))
    }

    /// Returns the profile up to that time, which is in the last quarter of the log's. Rows by
    /// thread, events and spikes are not in it.
    ///
    /// # Errors
    /// As [`profile_of_log`](crate::profile_of_log).
    pub fn up_to(mut self, end_ns: u64) -> Result<Profile, ReadError> {
        self.part.sink.end_at(end_ns);
        self.finish(&mut |_| {})
    }

    fn finish(mut self, progress: &mut impl FnMut(u64)) -> Result<Profile, ReadError> {
        if let Some(record) = self.next.take() {
            self.part.take(record);
        }
        self.records.give_all(progress, &mut self.part)?;
        self.part.account(self.records.account());
        Ok(self.part.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use heapprof_format::{
        Alloc, Encoder, EndReason, FILE_HEADER, Free, MemoryReading, Stack, WalkEnd,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::model::span::{Cut, Span};
    use crate::read::log::each_record;

    const US: u64 = 1000;

    /// A step of a run: microseconds that pass, a block that comes or goes, and whether the memory
    /// is read.
    type Step = (u64, bool, u64, bool);

    fn log(steps: &[Step], has_end: bool) -> (Vec<u8>, u64) {
        let mut encoder = Encoder::new();
        let mut bytes = FILE_HEADER.to_vec();
        let mut time_ns = 0;
        for number in 0..3 {
            encoder.record(&Record::Stack(Stack {
                number,
                end: WalkEnd::Root,
                frames: vec![u64::from(number)],
                interrupted: Vec::new(),
                labels: Vec::new(),
            }));
        }
        for &(us, comes, id, is_read) in steps {
            time_ns += us * US;
            if is_read {
                let reading = MemoryReading::at(time_ns);
                encoder.record(&Record::Memory(Box::new(reading)));
            }
            match comes {
                true => encoder.alloc(&Alloc {
                    time_ns,
                    thread: 0,
                    id,
                    stack: (id % 3) as u32,
                    size: 100 * id,
                    slack: id,
                    interval: 1 + id % 2 * 512,
                }),
                false => encoder.free(&Free {
                    time_ns,
                    thread: 0,
                    id,
                }),
            }
            if id == 0 {
                bytes.extend_from_slice(encoder.finish());
            }
        }
        if has_end {
            encoder.record(&Record::End {
                time_ns,
                reason: EndReason::Exit,
            });
        }
        bytes.extend_from_slice(encoder.finish());
        (bytes, time_ns)
    }

    proptest! {
        /// Against a reading from the beginning up to that time.
        #[test]
        fn the_profile_up_to_a_time_is_that_of_a_reading_up_to_it(
            steps in prop::collection::vec((0u64..900, any::<bool>(), 0u64..20, prop::bool::weighted(0.2)), 1..80),
            part in 0.75f64..1.0,
            has_end in any::<bool>(),
            leaves_out in any::<bool>(),
        ) {
            let (bytes, duration_ns) = log(&steps, has_end);
            let end_ns = (duration_ns as f64 * part).ceil() as u64 / US * US + US;
            let (temporary, numbers) = (Temporary::within(50 * US), PastNumbers::default());
            let without = HashSet::from_iter(leaves_out.then(|| vec![1]));
            let extras = WantedExtras { threads: true, spikes: true, ..WantedExtras::default() };
            let log = LogPart::from(&bytes).without(&without);
            let (whole, midway) =
                log.profile_with_courses(extras, temporary, numbers, |_| {}).unwrap();

            let read = |extras: WantedExtras, span: Option<Span>| {
                let fold = Fold::keeping(extras).within(span).with_pasts(temporary);
                let mut part = log.to(fold.with_courses());
                each_record(&bytes, &mut |_| {}, &mut part).unwrap();
                part.finish()
            };
            prop_assert_eq!(whole, read(extras, None));
            let span = Span::between(Cut::Nothing, Cut::Time(end_ns));
            prop_assert_eq!(midway.next.is_some(), has_end && duration_ns >= 4);
            let up_to = midway.up_to(end_ns).unwrap();
            prop_assert_eq!(up_to, read(WantedExtras::default(), Some(span)));
        }
    }
}
