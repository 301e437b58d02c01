//! The inlet: the writer's end of the road, where what the hooks sent comes out in one order.
//!
//! Whoever reads the log in its order must find the stack before its first sample, the sample before its free, and a note about
//! where it was made. For samples and frees that is [`Merge`]'s to see to. Stacks and threads are sent before the
//! samples that name them are put into a lane: so they are taken out after the lanes were looked at, and
//! come first. Frees that went the other way have their samples in the lanes: they are taken out before the look,
//! and come last.

use std::collections::VecDeque;

use heapprof_core::{By, Freed, Merge, Next, Out, Sampled, SentStack};

use crate::session::{self, FreeEvent, Note, Rare, Session};

/// What comes next. What there are millions of is in [`Inlet::out`]; whatever it is, [`Inlet::event`] has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coming {
    Sampled,
    Freed,
    Other,
}

/// What comes out, to be kept.
pub(crate) enum Event {
    Sampled(By, Sampled),
    /// With the number of the thread.
    Freed(u32, Freed),
    Stack(SentStack),
    Rare(Rare),
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
    /// What [`Coming::Other`] is about.
    other: Option<Event>,
}

impl Inlet {
    /// Of a session of this process.
    pub(crate) fn new() -> Inlet {
        Inlet {
            lanes: Merge::new(session::foreign_ids()),
            first: VecDeque::new(),
            notes: VecDeque::new(),
            overflowed: VecDeque::new(),
            other: None,
        }
    }

    /// Looks what there is by now. All of it comes out before [`advance`](Self::advance) says `None`.
    pub(crate) fn look(&mut self, session: &Session) {
        while let Some(free) = session.next_overflowed() {
            self.overflowed.push_back(free);
        }
        self.lanes
            .look(session.lanes().map(|(n, lanes)| (n, &lanes.events)));
        for (_, lanes) in session.lanes() {
            let stacks = std::iter::from_fn(|| lanes.stacks.take());
            self.first.extend(stacks.map(Event::Stack));
        }
        while let Some(rare) = session.next_rare() {
            match rare {
                Rare::Thread { .. } => self.first.push_back(Event::Rare(rare)),
                Rare::Note(note) => {
                    let place = self
                        .notes
                        .partition_point(|it| it.at.raw() <= note.at.raw());
                    self.notes.insert(place, note);
                }
            }
        }
    }

    /// Goes on to the next event of those that were there at the last look.
    #[inline(always)]
    pub(crate) fn advance(&mut self) -> Option<Coming> {
        if (!self.first.is_empty() || !self.notes.is_empty()) && self.advance_to_rare() {
            return Some(Coming::Other);
        }
        match self.lanes.advance() {
            Some(Next::Sampled) => Some(Coming::Sampled),
            Some(Next::Freed) => Some(Coming::Freed),
            None => self.advance_to_overflowed(),
        }
    }

    /// Goes on to the next event, of a new look if those of the last are all out.
    #[inline(never)]
    pub(crate) fn advance_or_look(&mut self, session: &Session) -> Option<Coming> {
        self.advance().or_else(|| {
            self.look(session);
            self.advance()
        })
    }

    /// The sample or the free that it went on to.
    #[inline(always)]
    pub(crate) fn out(&self) -> &Out {
        self.lanes.out()
    }

    /// The event that it went on to, whatever it is.
    pub(crate) fn event(&mut self, coming: Coming) -> Option<Event> {
        let Out { by, sampled, freed } = *self.out();
        match coming {
            Coming::Sampled => Some(Event::Sampled(by, sampled)),
            Coming::Freed => Some(Event::Freed(by.thread, freed)),
            Coming::Other => self.other.take(),
        }
    }

    #[cold]
    fn advance_to_rare(&mut self) -> bool {
        self.other = self.first.pop_front().or_else(|| {
            let note_at = self.notes.front()?.at.raw();
            let is_due = self.lanes.next_at().is_none_or(|at| at > note_at);
            let note = is_due.then(|| self.notes.pop_front()).flatten();
            note.map(|note| Event::Rare(Rare::Note(note)))
        });
        self.other.is_some()
    }

    #[cold]
    fn advance_to_overflowed(&mut self) -> Option<Coming> {
        let free = self.overflowed.pop_front()?;
        let (at, id) = (free.at.raw(), free.id);
        self.other = Some(Event::Freed(free.thread, Freed { at, id }));
        Some(Coming::Other)
    }

    /// Whether hooks may soon find no room, if nothing is taken.
    pub(crate) fn is_pressing(&self, session: &Session) -> bool {
        self.lanes.is_half_full() || session.is_half_full()
    }

    /// Whether nothing has come since the last look.
    pub(crate) fn is_empty(&self, session: &Session) -> bool {
        session.is_empty()
            && self.lanes.is_empty()
            && session.lanes().count() == self.lanes.known_lanes()
    }
}
