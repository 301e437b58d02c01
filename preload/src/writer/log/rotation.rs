//! Rotation: keeps a log within a bound, in segments that each begin with a checkpoint.
//!
//! The writer reports what it writes, and begins the next segment when the newest one is full.
//! While a checkpoint is written, hooks must not wait for room. So events that may soon find no
//! room are taken and deferred, and follow the checkpoint. While deferred events are replayed,
//! others may be deferred at half the rate.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use heapprof_core::{CoarseHistory, Freed, Ledger, NoUsualSink, Origin, Sampled, Sink};
use heapprof_format::{Checkpoint, Counter, Encoder, FILE_HEADER};

use crate::os::files::{AppendError, AppendFile};
use crate::os::sys::Errno;
use crate::recording::request_word::{self, FINISH};
use crate::recording::session::Session;
use crate::state::settings::Settings;
use crate::state::shutdown;
use crate::writer::event_source::{Event, EventSink, EventSource};
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::checkpoint::{CheckpointState, MOMENT_BYTES, Step};
use crate::writer::log::cut_mark::Pen;
use crate::writer::log::output::Output;
use crate::writer::log::segments::Segments;

/// The most events that are deferred. Beyond that, hooks wait, as for any busy writer.
const MAX_DEFERRED: u64 = 1 << 20;
/// Bytes of the log's bound for each event that may be deferred. A segment is a part of the bound,
/// and an event takes a few bytes of it.
const BOUND_BYTES_PER_EVENT: u64 = 64;

/// Steps of a checkpoint between two polls of the queues.
const STEPS_PER_POLL: usize = 512;

/// The most time that a byte of a checkpoint takes: blocks in use are collected, sorted and merged.
const NS_PER_BYTE: u64 = 20;

/// Events that are deferred between two checks if that is necessary.
const DEFER_BATCH: usize = 64;

/// The longest time between two entries of the coarse history.
const HISTORY_STEP_NS: u64 = 60_000_000_000;
/// Readings of the memory for an entry of the coarse history, if that is a shorter time.
const READINGS_PER_ENTRY: u64 = 60;
/// The part of the log's bound that the coarse history may take: one in so many bytes.
const HISTORY_SHARE: u64 = 10;
/// The bound by which the history of a log without one is measured.
const FOR_HISTORY: u64 = 4 << 20;

/// The reason why a segment was not begun.
enum Abort {
    /// The log must be whole first: the program becomes another one, or ends, and will not wait so
    /// long. The deferred events come first.
    LogAwaited,
    Failed(AppendError),
}

impl From<AppendError> for Abort {
    fn from(error: AppendError) -> Abort {
        Abort::Failed(error)
    }
}

/// The rotation of one log. See the module's text.
pub(crate) struct Rotation {
    pub(crate) segments: Segments,
    pub(crate) checkpoint_state: CheckpointState,
    /// Events that came while a checkpoint was written.
    deferred: VecDeque<Event>,
    /// How many events may be deferred: no more than fill a part of the segment that they begin.
    max_deferred: usize,
    /// How many deferred events have gone into the log.
    replayed: usize,
    /// The length of this segment at which to try the next one again, if there was no descriptor
    /// for it.
    retry_at: u64,
}

impl Rotation {
    /// Returns the rotation of a log that has not begun, with the bound of the settings.
    pub(crate) fn new(settings: &Settings, output: &Output) -> Rotation {
        Rotation::within(settings.max_log, settings.max_log, settings, output)
    }

    /// Returns the rotation of a log without a bound, which has another segment behind a gap.
    pub(crate) fn without_bound(settings: &Settings, output: &Output) -> Rotation {
        Rotation::within(Segments::NO_BOUND, FOR_HISTORY, settings, output)
    }

    fn within(most: u64, for_history: u64, settings: &Settings, output: &Output) -> Rotation {
        let history = history(settings, for_history);
        Rotation {
            segments: Segments::new(most),
            checkpoint_state: CheckpointState::new(output.start.clone(), history),
            deferred: VecDeque::new(),
            max_deferred: (most / BOUND_BYTES_PER_EVENT).clamp(512, MAX_DEFERRED) as usize,
            replayed: 0,
            retry_at: 0,
        }
    }

    /// Takes the next deferred event. Meanwhile others are deferred, but half as many: so hooks
    /// make progress, and the replay ends.
    pub(crate) fn next_deferred(
        &mut self,
        source: &mut EventSource,
        session: &Session,
    ) -> Option<Event> {
        let event = self.deferred.pop_front()?;
        self.replayed += 1;
        if self.replayed.is_multiple_of(STEPS_PER_POLL) {
            let most = STEPS_PER_POLL / 2;
            let max = self.max_deferred;
            defer_events((source, session), &mut self.deferred, max, most);
        }
        Some(event)
    }

    /// Deletes old segments to make room for what the encoder holds.
    pub(crate) fn make_room(&mut self, output: &Output, ledger: &Ledger) {
        let checkpoint = self.checkpoint_state.estimated_bytes(ledger);
        let bytes = output.encoder.pending() as u64;
        self.segments.make_room(output.len(), bytes, checkpoint);
    }

    /// Returns true if the newest segment is full, or the log has a gap that may end.
    pub(crate) fn is_due(&self, output: &Output, ledger: &Ledger) -> bool {
        if output.has_gap() {
            return output.may_retry();
        }
        let checkpoint = self.checkpoint_state.estimated_bytes(ledger);
        output.is_log_whole()
            && output.len() >= self.retry_at
            && self.segments.is_full(output.len(), checkpoint)
    }

    /// Returns true if the program ends and cannot wait for a checkpoint. If there is time, the
    /// last events rotate the log like all others: they may be everything that the lanes hold.
    pub(crate) fn is_late(&self, ledger: &Ledger) -> bool {
        is_late(self.checkpoint_ns(ledger))
    }

    fn checkpoint_ns(&self, ledger: &Ledger) -> u64 {
        self.checkpoint_state.estimated_bytes(ledger) * NS_PER_BYTE
    }

    /// Adds the state of the newest event to the coarse history, if that is due. Events may be
    /// deferred meanwhile.
    pub(crate) fn add_to_history(
        &mut self,
        ledger: &Ledger,
        (source, session): (&mut EventSource, &Session),
    ) {
        let state = &mut self.checkpoint_state;
        if !state.history.is_due(state.reached_ns) {
            return;
        }
        let (deferred, max) = (&mut self.deferred, self.max_deferred);
        let mut steps = 0;
        let entry = state.history_entry(ledger, || {
            steps += 1;
            if steps % STEPS_PER_POLL == 0 {
                defer_events((&mut *source, session), deferred, max, usize::MAX);
            }
            Ok::<(), Infallible>(())
        });
        let Ok(entry) = entry;
        state.history.add(entry);
    }

    /// Begins the next segment, as of `time_ns`. All earlier records are in the log.
    pub(crate) fn rotate(
        &mut self,
        output: &mut Output,
        ledger: &Ledger,
        stacks: &[Option<KeptStack>],
        counters: &[(Counter, u64)],
        (source, session): (&mut EventSource, &Session),
        time_ns: u64,
    ) {
        self.retry_at = 0;
        let estimated = self.checkpoint_state.estimated_bytes(ledger);
        self.segments.warn_if_small(estimated);
        self.segments.make_room(output.len(), estimated, estimated);
        let checkpoint = Checkpoint {
            segment: self.segments.number + 1,
            time_ns,
            bytes_before: self.segments.bytes_before + output.len(),
            ..Checkpoint::default()
        };
        loop {
            let events = (&mut *source, session);
            let written = self.write(checkpoint, output, ledger, stacks, counters, events);
            match written {
                Ok((next, encoder)) => {
                    let Some(pen) = Pen::take() else {
                        next.remove();
                        return; // the process has ended the log
                    };
                    let closed = self.segments.close(output.log_mut(), next);
                    pen.note(output.log_mut(), encoder.sequence());
                    if let Err((next, error)) = closed {
                        next.remove();
                        self.retry_later_or_give_up(output, &error);
                    } else {
                        output.begin_segment(encoder);
                    }
                    return;
                }
                Err(Abort::LogAwaited) => return,
                // The oldest segment makes room for the new one.
                Err(Abort::Failed(AppendError::Kernel(Errno(libc::ENOSPC | libc::EDQUOT))))
                    if self.segments.drop_oldest() => {}
                Err(Abort::Failed(error)) => return self.retry_later_or_give_up(output, &error),
            }
        }
    }

    /// Handles a segment that could not be begun. If there was no descriptor, or no room on the
    /// disk, both may be there soon, and this segment goes on meanwhile.
    fn retry_later_or_give_up(&mut self, output: &mut Output, error: &AppendError) {
        const SOON: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOSPC, libc::EDQUOT];
        if let AppendError::Kernel(Errno(number)) = error
            && SOON.contains(number)
        {
            output.retry_later();
            self.retry_at = output.len() + self.segments.frame_bytes() as u64;
        } else {
            output.give_up_log(0, error);
        }
    }

    fn write(
        &mut self,
        checkpoint: Checkpoint,
        output: &Output,
        ledger: &Ledger,
        stacks: &[Option<KeptStack>],
        counters: &[(Counter, u64)],
        (source, session): (&mut EventSource, &Session),
    ) -> Result<(AppendFile, Encoder), Abort> {
        let mut next = self
            .segments
            .create(&output.base)
            .map_err(AppendError::Kernel)?;
        let mut encoder = Encoder::new();
        let frame_bytes = self.segments.frame_bytes();
        let mut steps = 0;
        let takes_ns = self.checkpoint_ns(ledger);
        let (deferred, max) = (&mut self.deferred, self.max_deferred);
        let mut frame = |encoder: &mut Encoder, step: Step| {
            steps += 1;
            if steps % STEPS_PER_POLL == 0 {
                // Hooks may wait because no more events may be deferred. They must see that the
                // writer makes progress.
                session.taken.fetch_add(1, Ordering::Relaxed);
                defer_events((&mut *source, session), deferred, max, usize::MAX);
                if is_awaited(takes_ns) {
                    return Err(Abort::LogAwaited);
                }
            }
            let is_full = step == Step::Record && encoder.pending() >= frame_bytes;
            if !is_full && step != Step::EndFrame {
                return Ok(());
            }
            if next.len() == 0 {
                next.append(&FILE_HEADER)?;
            }
            Ok(next.append(encoder.finish())?)
        };
        let counters = counters.to_vec();
        let written = self.checkpoint_state.write(
            &mut encoder,
            checkpoint,
            ledger,
            stacks,
            counters,
            &mut frame,
        );
        match written {
            Ok(()) => Ok((next, encoder)),
            Err(error) => {
                next.remove(); // an unfinished segment is of no use
                Err(error)
            }
        }
    }
}

/// Returns the coarse history of a log with these settings and that bound, within its share.
fn history(settings: &Settings, bound: u64) -> CoarseHistory {
    let readings_ns = settings.memory_interval_ms.saturating_mul(1_000_000);
    let by_readings = readings_ns.saturating_mul(READINGS_PER_ENTRY);
    let step_ns = match by_readings {
        0 => HISTORY_STEP_NS,
        ns => ns.min(HISTORY_STEP_NS),
    };
    let most = bound / HISTORY_SHARE / MOMENT_BYTES;
    CoarseHistory::new(step_ns, usize::try_from(most).unwrap_or(usize::MAX))
}

/// Returns true if the log must be whole before another `takes_ns` have passed.
fn is_awaited(takes_ns: u64) -> bool {
    is_late(takes_ns) || request_word::EXEC_FLUSH.is_asked() || request_word::END_FLUSH.is_asked()
}

/// Returns true if the program ends, and does not wait for another `takes_ns`.
fn is_late(takes_ns: u64) -> bool {
    request_word::is_asked(FINISH) && shutdown::is_too_late_for(takes_ns)
}

/// Defers up to `most` events, as long as hooks may soon find no room. Other events stay in the
/// queues: all deferred events go into the segment that begins, whatever its length.
fn defer_events(
    (source, session): (&mut EventSource, &Session),
    deferred: &mut VecDeque<Event>,
    max: usize,
    most: usize,
) {
    let before = deferred.len();
    let full = max.min(before.saturating_add(most));
    while deferred.len() < full && source.is_nearly_full(session) {
        let mut left = DEFER_BATCH.min(full - deferred.len());
        if source
            .deliver(&mut left, &mut Deferral(deferred))
            .is_continue()
        {
            source.poll(session);
        }
    }
    let count = deferred.len() - before;
    session.taken.fetch_add(count as u64, Ordering::Relaxed);
}

/// The consumer that defers events.
struct Deferral<'a>(&'a mut VecDeque<Event>);

impl Sink for Deferral<'_> {
    type UsualSink<'a>
        = NoUsualSink
    where
        Self: 'a;

    fn sampled(&mut self, by: Origin, it: &Sampled) -> ControlFlow<()> {
        self.other(Event::Sampled(by, *it))
    }

    fn freed(&mut self, by: Origin, it: &Freed) -> ControlFlow<()> {
        self.other(Event::Freed(by.thread, *it))
    }
}

impl EventSink for Deferral<'_> {
    fn other(&mut self, event: Event) -> ControlFlow<()> {
        self.0.push_back(event);
        ControlFlow::Continue(())
    }
}
