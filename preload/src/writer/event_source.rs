//! Event source: the writer's end of the session, where the events of all hooks come out in one
//! order.
//!
//! A reader of the log must find a stack before its first sample, a sample before its free, and a
//! note at the time when it was made. For samples and frees, [`Merge`] does the ordering. A hook
//! sends stacks and threads before it puts a sample that names them into a lane. So they are taken
//! after the look at the lanes, and come first. The samples of frees from the overflow queue are in
//! the lanes. So these frees are taken before the look, and come last. A change of the mappings
//! names a stack and has no lane, so it is taken before the stacks are.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use heapprof_core::{Freed, Merge, Origin, Sampled, SentStack, Sink};

use crate::os::clock;
use crate::recording::events::{FreeEvent, MappingEvent, Note, NoteKind, SideEvent};
use crate::recording::session::{self, Session};

/// A consumer of events: samples and frees, which come by the million, and all others.
pub(crate) trait EventSink: Sink {
    /// Takes an event that is no sample and no free, or a free from the overflow queue.
    fn other(&mut self, event: Event) -> ControlFlow<()>;
}

/// An event that can be stored.
pub(crate) enum Event {
    Sampled(Origin, Sampled),
    /// A free, with the number of its thread.
    Freed(u32, Freed),
    Stack(SentStack),
    SideEvent(SideEvent),
}

/// The merged events of one session. See the module's text.
pub(crate) struct EventSource {
    lanes: Merge<'static>,
    /// Stacks and threads, which come first.
    first: VecDeque<Event>,
    /// Notes, by their time.
    notes: VecDeque<Box<Note>>,
    /// Frees from the overflow queue, which come last.
    overflowed: VecDeque<FreeEvent>,
}

/// An event source for the session of this process.
impl Default for EventSource {
    fn default() -> EventSource {
        EventSource {
            lanes: Merge::new(session::inherited_ids()),
            first: VecDeque::new(),
            notes: VecDeque::new(),
            overflowed: VecDeque::new(),
        }
    }
}

impl EventSource {
    /// Sets how many ticks samples and frees may be out of order.
    pub(crate) fn set_tolerance(&mut self, ticks: u64) {
        self.lanes.set_tolerance(ticks);
    }

    /// Polls the queues for [`deliver`](Self::deliver). An event that comes meanwhile may stay for
    /// the next poll.
    pub(crate) fn poll(&mut self, session: &Session) {
        self.poll_until(session, || clock::fenced_ticks().raw());
    }

    /// Polls the queues for the last time: no event stays.
    pub(crate) fn poll_last(&mut self, session: &Session) {
        self.poll_until(session, || u64::MAX);
    }

    fn poll_until(&mut self, session: &Session, now: impl FnOnce() -> u64) {
        while let Some(free) = session.next_overflowed() {
            self.overflowed.push_back(free);
        }
        while let Some(event) = session.next_mapping() {
            self.add_mapping(event);
        }
        // After these frees, so that their samples are older than `now`.
        let now = now();
        let lanes = session.lanes().map(|(n, lanes)| (n, &lanes.events));
        self.lanes.look(now, lanes);
        for (_, lanes) in session.lanes() {
            let stacks = std::iter::from_fn(|| lanes.stacks.take());
            self.first.extend(stacks.map(Event::Stack));
        }
        while let Some(event) = session.next_side_event() {
            match event {
                SideEvent::Thread { .. } => self.first.push_back(Event::SideEvent(event)),
                SideEvent::Note(note) => self.add_note(note),
            }
        }
    }

    /// Adds a change of the mappings that was taken from the queue before a poll.
    pub(crate) fn add_mapping(&mut self, event: MappingEvent) {
        let (at, kind) = (event.at, NoteKind::Mapping(event));
        self.add_note(Box::new(Note { at, kind }));
    }

    /// Returns the changes of the mappings that are polled and not delivered.
    pub(crate) fn mappings(&self) -> impl Iterator<Item = MappingEvent> {
        self.notes.iter().filter_map(|note| match note.kind {
            NoteKind::Mapping(event) => Some(event),
            _ => None,
        })
    }

    fn add_note(&mut self, note: Box<Note>) {
        let at = note.at.raw();
        let place = self.notes.partition_point(|it| it.at.raw() <= at);
        self.notes.insert(place, note);
    }

    /// Delivers the events of the last poll to `sink`, in their order, at most `left`, which counts
    /// down. `Continue`: those were all. `Break`: `left` is 0, or `sink` broke off.
    pub(crate) fn deliver(
        &mut self,
        left: &mut usize,
        sink: &mut impl EventSink,
    ) -> ControlFlow<()> {
        if *left == 0 {
            return ControlFlow::Break(());
        }
        while let Some(event) = self.first.pop_front() {
            count_delivered(left, sink.other(event))?;
        }
        while let Some(note) = self.notes.front() {
            if note.at.raw() >= self.lanes.looked_at() {
                break; // earlier events may come with the next poll only
            }
            self.lanes
                .deliver(note.at.raw().saturating_add(1), left, sink)?;
            if let Some(note) = self.notes.pop_front() {
                count_delivered(left, sink.other(Event::SideEvent(SideEvent::Note(note))))?;
            }
        }
        self.lanes.deliver(u64::MAX, left, sink)?;
        while let Some(free) = self.overflowed.pop_front() {
            let (at, id) = (free.at.raw(), free.id);
            count_delivered(
                left,
                sink.other(Event::Freed(free.thread, Freed { at, id })),
            )?;
        }
        ControlFlow::Continue(())
    }

    /// Returns true if hooks may soon find no room, unless the writer takes events.
    pub(crate) fn is_nearly_full(&self, session: &Session) -> bool {
        self.lanes.is_half_full() || session.is_half_full()
    }

    /// Returns true if no event has come after the last poll, or is left from it.
    pub(crate) fn is_empty(&self, session: &Session) -> bool {
        session.is_empty()
            && self.lanes.is_empty()
            && self.notes.is_empty()
            && session.lanes().count() == self.lanes.known_lanes()
    }
}

/// Counts one delivered event. Returns `Break` if none may follow.
fn count_delivered(left: &mut usize, flow: ControlFlow<()>) -> ControlFlow<()> {
    *left -= 1;
    match *left {
        0 => ControlFlow::Break(()),
        _ => flow,
    }
}
