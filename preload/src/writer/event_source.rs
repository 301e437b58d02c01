//! The inlet: the writer's end of the road, where what the hooks sent comes out in one order.
//!
//! Whoever reads the log in its order must find the stack before its first sample, the sample before its free, and a note about
//! where it was made. For samples and frees that is [`Merge`]'s to see to. Stacks and threads are sent before the
//! samples that name them are put into a lane: so they are taken out after the lanes were looked at, and
//! come first. Frees that went the other way have their samples in the lanes: they are taken out before the look,
//! and come last.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use heapprof_core::{By, Freed, Merge, Sampled, SentStack, Sink};

use crate::os::clock;
use crate::recording::session::{self, FreeEvent, Note, Session, SideEvent};

/// Whoever takes what comes out: samples and frees, of which there are millions, and the rest.
pub(crate) trait Taker: Sink {
    /// What is none of these, or a free that went the other way.
    fn other(&mut self, event: Event) -> ControlFlow<()>;
}

/// What comes out, to be kept.
pub(crate) enum Event {
    Sampled(By, Sampled),
    /// With the number of the thread.
    Freed(u32, Freed),
    Stack(SentStack),
    SideEvent(SideEvent),
}

/// See the module's text.
pub(crate) struct Inlet {
    lanes: Merge<'static>,
    /// Stacks and threads, which come first.
    first: VecDeque<Event>,
    /// Notes, by their time.
    notes: VecDeque<Box<Note>>,
    /// Frees that went the other way, which come last.
    overflowed: VecDeque<FreeEvent>,
}

/// Of a session of this process.
impl Default for Inlet {
    fn default() -> Inlet {
        Inlet {
            lanes: Merge::new(session::inherited_ids()),
            first: VecDeque::new(),
            notes: VecDeque::new(),
            overflowed: VecDeque::new(),
        }
    }
}

impl Inlet {
    /// Samples and frees may come so many ticks too late from now on.
    pub(crate) fn set_slack(&mut self, ticks: u64) {
        self.lanes.set_slack(ticks);
    }

    /// Looks what there is by now, for [`pour`](Self::pour). What happens while it looks may stay for the next look.
    pub(crate) fn look(&mut self, session: &Session) {
        self.look_until(session, || clock::ticks_between().raw());
    }

    /// The same, when there is no next look: nothing stays.
    pub(crate) fn look_last(&mut self, session: &Session) {
        self.look_until(session, || u64::MAX);
    }

    fn look_until(&mut self, session: &Session, now: impl FnOnce() -> u64) {
        while let Some(free) = session.next_overflowed() {
            self.overflowed.push_back(free);
        }
        // After those frees, whose samples are older than it then.
        let now = now();
        let lanes = session.lanes().map(|(n, lanes)| (n, &lanes.events));
        self.lanes.look(now, lanes);
        for (_, lanes) in session.lanes() {
            let stacks = std::iter::from_fn(|| lanes.stacks.take());
            self.first.extend(stacks.map(Event::Stack));
        }
        while let Some(rare) = session.next_side_event() {
            match rare {
                SideEvent::Thread { .. } => self.first.push_back(Event::SideEvent(rare)),
                SideEvent::Note(note) => {
                    let place = self
                        .notes
                        .partition_point(|it| it.at.raw() <= note.at.raw());
                    self.notes.insert(place, note);
                }
            }
        }
    }

    /// Gives `taker` the events that were there at the last look, in their order, and up to `left` of them, from which they are taken
    /// away. `Continue`: that was all; otherwise there are none left to give, or `taker` broke off.
    pub(crate) fn pour(&mut self, left: &mut usize, taker: &mut impl Taker) -> ControlFlow<()> {
        if *left == 0 {
            return ControlFlow::Break(());
        }
        while let Some(event) = self.first.pop_front() {
            one_of(left, taker.other(event))?;
        }
        while let Some(note) = self.notes.front() {
            if note.at.raw() >= self.lanes.looked_at() {
                break; // what was before it may be at the next look only
            }
            self.lanes
                .pour(note.at.raw().saturating_add(1), left, taker)?;
            if let Some(note) = self.notes.pop_front() {
                one_of(left, taker.other(Event::SideEvent(SideEvent::Note(note))))?;
            }
        }
        self.lanes.pour(u64::MAX, left, taker)?;
        while let Some(free) = self.overflowed.pop_front() {
            let (at, id) = (free.at.raw(), free.id);
            one_of(
                left,
                taker.other(Event::Freed(free.thread, Freed { at, id })),
            )?;
        }
        ControlFlow::Continue(())
    }

    /// Whether hooks may soon find no room, if nothing is taken.
    pub(crate) fn is_pressing(&self, session: &Session) -> bool {
        self.lanes.is_half_full() || session.is_half_full()
    }

    /// Whether nothing has come since the last look, or is left from it.
    pub(crate) fn is_empty(&self, session: &Session) -> bool {
        session.is_empty()
            && self.lanes.is_empty()
            && self.notes.is_empty()
            && session.lanes().count() == self.lanes.known_lanes()
    }
}

/// One event was given: whether to go on with what is `left`.
fn one_of(left: &mut usize, flow: ControlFlow<()>) -> ControlFlow<()> {
    *left -= 1;
    match *left {
        0 => ControlFlow::Break(()),
        _ => flow,
    }
}
