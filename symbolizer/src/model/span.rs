//! Span: the part of a log's events that a profile is about, from one cut to another.
//!
//! A cut is a position in the log: every event is before it or after it.
//!
//! Not here: finding the cut of a time that a person wrote (`analysis::moment`).

/// A moment, found in a log: which events come before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: the cut is before the first event.
    Nothing,
    /// Those up to this time, and at it.
    Time(u64),
    /// Those up to the record of that number and including it; the time is that record's. Finer
    /// than time: several events share a microsecond.
    Record {
        /// Number of the record, from 1.
        number: u64,
        /// Its time.
        time_ns: u64,
    },
}

impl Cut {
    /// The cut's time.
    pub fn time_ns(self) -> u64 {
        match self {
            Cut::Nothing => 0,
            Cut::Time(time_ns) | Cut::Record { time_ns, .. } => time_ns,
        }
    }

    /// Returns true if that event comes before the cut.
    pub fn includes(self, record: u64, at_ns: u64) -> bool {
        match self {
            Cut::Nothing => false,
            Cut::Time(time_ns) => at_ns <= time_ns,
            Cut::Record { number, .. } => record <= number,
        }
    }
}

/// The part of a log that a profile shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Events up to here are left out.
    pub from: Cut,
    /// Events after this are left out.
    pub to: Cut,
    /// Blocks that had not been there for so long at `to` are left out, and those that were freed
    /// by then.
    pub survived_ns: Option<u64>,
}

impl Span {
    /// All that happened between two cuts.
    pub fn between(from: Cut, to: Cut) -> Span {
        Span {
            from,
            to,
            survived_ns: None,
        }
    }

    /// Returns true if a block that was allocated at that time is old enough.
    pub fn is_old_enough(self, allocated_ns: u64) -> bool {
        self.survived_ns
            .is_none_or(|age_ns| allocated_ns.saturating_add(age_ns) <= self.to.time_ns())
    }

    /// In words.
    pub fn describe(self) -> String {
        let seconds = |cut: Cut| cut.time_ns() as f64 / 1e9;
        if let Some(age_ns) = self.survived_ns {
            return format!(
                "in use at {:.6} s, and for at least {} s then; \"allocated\" is the same",
                seconds(self.to),
                age_ns as f64 / 1e9
            );
        }
        match self.from {
            Cut::Nothing => format!("at {:.6} s", seconds(self.to)),
            from => format!(
                "allocated between {:.6} s and {:.6} s; in use: of that, what was still there at the end",
                seconds(from),
                seconds(self.to)
            ),
        }
    }
}

/// Why one of several processes does not have the time that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// It began later: it adds nothing.
    NotBegun,
    /// It had ended: it adds what it had allocated, and nothing in use; to a window, nothing.
    Over,
    /// Its log says nothing so late, nor that it ended: it adds what it had then; to a window,
    /// nothing.
    Silent,
}
