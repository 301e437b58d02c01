//! Rotation: a log within a bound, in segments that each begin with a checkpoint.
//!
//! The writer tells it what it writes; when the newest segment is full, the writer has it begin the next. While a
//! checkpoint is written, events that there might soon be no room for are taken from the queue and set aside, so that no hook waits
//! for it; they come after it, and while they are taken up others may be, at half their pace.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use heapprof_core::{By, Freed, Ledger, Never, Sampled, Sink};
use heapprof_format::{Checkpoint, Counter, Encoder, FILE_HEADER};

use crate::os::files::{AppendError, Appended};
use crate::os::sys::Errno;
use crate::recording::request_word::{self, FINISH};
use crate::recording::session::Session;
use crate::state::shutdown;
use crate::writer::event_source::{Event, Inlet, Taker};
use crate::writer::kept_stacks::KeptStack;
use crate::writer::log::checkpoint::{Keeping, Step};
use crate::writer::log::output::Output;
use crate::writer::log::segments::Segments;

/// Events that are set aside at most, 64 bytes each; beyond that hooks wait, as for any busy writer.
const SET_ASIDE: u64 = 1 << 20;
/// One event may be set aside for so many bytes of the log's bound: a segment is a quarter of the bound, and an event takes some 5
/// bytes in it.
const BYTES_OF_BOUND: u64 = 64;

/// Between two looks at the queue, steps of a checkpoint; a tenth of a millisecond.
const STEPS_A_LOOK: usize = 512;

/// What a byte of a checkpoint may take, in nanoseconds: blocks in use are collected, sorted and merged.
const NS_A_BYTE: u64 = 20;

/// Events that are set aside between two looks whether that is needed.
const A_FEW: usize = 64;

/// Why a segment was not begun.
enum Stop {
    /// Somebody waits for the log to be whole: the program becomes another, or ends, and will not wait for so long. What was
    /// set aside comes first.
    Awaited,
    Failed(AppendError),
}

impl From<AppendError> for Stop {
    fn from(error: AppendError) -> Stop {
        Stop::Failed(error)
    }
}

/// See the module's text.
pub(crate) struct Rotation {
    pub(crate) segments: Segments,
    pub(crate) keeping: Keeping,
    /// Events that came while a checkpoint was written.
    set_aside: VecDeque<Event>,
    /// How many there may be: not more than fill a part of a segment, of which they are the beginning.
    may_set_aside: usize,
    /// How many of them went into the log since then.
    taken_up: usize,
    /// No descriptor was to be had for the next segment: it is tried again when this one is so long.
    again_at: u64,
}

impl Rotation {
    pub(crate) fn new(most: u64, output: &Output) -> Rotation {
        Rotation {
            segments: Segments::new(most),
            keeping: Keeping::new(output.start.clone()),
            set_aside: VecDeque::new(),
            may_set_aside: (most / BYTES_OF_BOUND).clamp(512, SET_ASIDE) as usize,
            taken_up: 0,
            again_at: 0,
        }
    }

    /// The next of the events that were set aside. While they are taken up, more are set aside, but half as many: so
    /// that hooks get on, and this comes to an end.
    pub(crate) fn next_set_aside(&mut self, inlet: &mut Inlet, session: &Session) -> Option<Event> {
        let event = self.set_aside.pop_front()?;
        self.taken_up += 1;
        if self.taken_up.is_multiple_of(STEPS_A_LOOK) {
            let most = STEPS_A_LOOK / 2;
            let may = self.may_set_aside;
            set_events_aside((inlet, session), &mut self.set_aside, may, most);
        }
        Some(event)
    }

    /// Deletes what must go before what the encoder holds is appended.
    pub(crate) fn make_room(&mut self, output: &Output, ledger: &Ledger) {
        let checkpoint = self.keeping.estimated_bytes(ledger);
        let bytes = output.encoder.pending() as u64;
        self.segments.make_room(output.len(), bytes, checkpoint);
    }

    /// Whether the newest segment is full.
    pub(crate) fn is_due(&self, output: &Output, ledger: &Ledger) -> bool {
        let checkpoint = self.keeping.estimated_bytes(ledger);
        output.log_is_whole()
            && output.len() >= self.again_at
            && self.segments.is_full(output.len(), checkpoint)
    }

    /// Whether the program ends, and would have to wait too long for a checkpoint. Where it is a matter of a moment, what comes
    /// at the end rotates like all else: it may be all that the lanes hold.
    pub(crate) fn is_late(&self, ledger: &Ledger) -> bool {
        is_late(self.checkpoint_ns(ledger))
    }

    fn checkpoint_ns(&self, ledger: &Ledger) -> u64 {
        self.keeping.estimated_bytes(ledger) * NS_A_BYTE
    }

    /// Begins the next segment, as of `time_ns`. Everything so far is in the log.
    pub(crate) fn rotate(
        &mut self,
        output: &mut Output,
        ledger: &Ledger,
        stacks: &[Option<KeptStack>],
        counters: &[(Counter, u64)],
        (inlet, session): (&mut Inlet, &Session),
        time_ns: u64,
    ) {
        self.again_at = 0;
        let estimated = self.keeping.estimated_bytes(ledger);
        self.segments.warn_if_small(estimated);
        self.segments.make_room(output.len(), estimated, estimated);
        let checkpoint = Checkpoint {
            segment: self.segments.number + 1,
            time_ns,
            bytes_before: self.segments.bytes_before + output.len(),
            ..Checkpoint::default()
        };
        loop {
            let events = (&mut *inlet, session);
            let written = self.write(checkpoint, output, ledger, stacks, counters, events);
            match written {
                Ok((next, encoder)) => {
                    if let Err((next, error)) = self.segments.close(output.log_mut(), next) {
                        next.remove();
                        self.put_off_or_give_up(output, &error);
                    } else {
                        output.encoder = encoder;
                    }
                    return;
                }
                Err(Stop::Awaited) => return,
                // What is oldest makes room for what is new.
                Err(Stop::Failed(AppendError::Kernel(Errno(libc::ENOSPC | libc::EDQUOT))))
                    if self.segments.drop_oldest() => {}
                Err(Stop::Failed(error)) => return self.put_off_or_give_up(output, &error),
            }
        }
    }

    /// The next segment could not be begun. Descriptors there mostly will be, as for an append: this segment goes on meanwhile.
    fn put_off_or_give_up(&mut self, output: &mut Output, error: &AppendError) {
        if let AppendError::Kernel(Errno(libc::EMFILE | libc::ENFILE)) = error {
            self.again_at = output.len() + self.segments.frame_bytes() as u64;
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
        (inlet, session): (&mut Inlet, &Session),
    ) -> Result<(Appended, Encoder), Stop> {
        let mut next = self
            .segments
            .create(&output.base)
            .map_err(AppendError::Kernel)?;
        let mut encoder = Encoder::new();
        let frame_bytes = self.segments.frame_bytes();
        let mut steps = 0;
        let takes_ns = self.checkpoint_ns(ledger);
        let (set_aside, may) = (&mut self.set_aside, self.may_set_aside);
        let mut frame = |encoder: &mut Encoder, step: Step| {
            steps += 1;
            if steps % STEPS_A_LOOK == 0 {
                // Hooks that wait because all is set aside that may be are to see that we get on.
                session.taken.fetch_add(1, Ordering::Relaxed);
                set_events_aside((&mut *inlet, session), set_aside, may, usize::MAX);
                if is_awaited(takes_ns) {
                    return Err(Stop::Awaited);
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
        let written = self.keeping.write(
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
                next.remove(); // the unfinished beginning of a segment helps nobody
                Err(error)
            }
        }
    }
}

/// Whether the log is to be whole before another `takes_ns` have passed.
fn is_awaited(takes_ns: u64) -> bool {
    is_late(takes_ns) || request_word::EXEC_FLUSH.is_asked() || request_word::END_FLUSH.is_asked()
}

/// Whether the program ends, and does not wait for another `takes_ns`.
fn is_late(takes_ns: u64) -> bool {
    request_word::is_asked(FINISH) && shutdown::forbids(takes_ns)
}

/// Takes up to so many events from the queue, as long as hooks may soon find it full. The others stay where they are: what is
/// set aside all goes into the segment that begins, however long that becomes.
fn set_events_aside(
    (inlet, session): (&mut Inlet, &Session),
    set_aside: &mut VecDeque<Event>,
    may: usize,
    most: usize,
) {
    let before = set_aside.len();
    let full = may.min(before.saturating_add(most));
    while set_aside.len() < full && inlet.is_pressing(session) {
        let mut left = A_FEW.min(full - set_aside.len());
        if inlet.pour(&mut left, &mut Aside(set_aside)).is_continue() {
            inlet.look(session);
        }
    }
    let count = set_aside.len() - before;
    session.taken.fetch_add(count as u64, Ordering::Relaxed);
}

/// Events that are set aside.
struct Aside<'a>(&'a mut VecDeque<Event>);

impl Sink for Aside<'_> {
    type Usual<'a>
        = Never
    where
        Self: 'a;

    fn sampled(&mut self, by: By, it: &Sampled) -> ControlFlow<()> {
        self.other(Event::Sampled(by, *it))
    }

    fn freed(&mut self, by: By, it: &Freed) -> ControlFlow<()> {
        self.other(Event::Freed(by.thread, *it))
    }
}

impl Taker for Aside<'_> {
    fn other(&mut self, event: Event) -> ControlFlow<()> {
        self.0.push_back(event);
        ControlFlow::Continue(())
    }
}
