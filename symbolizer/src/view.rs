//! A view: which part of a log's events are counted.
//!
//! ```text
//!            from            to
//!   ───a──────┊───b────c──────┊───d───   allocations; each may be freed at any later time
//!   Whole          in use: what lives at the end          allocated: a b c d
//!   At(to)         in use: what lives at `to`             allocated: a b c
//!   Window         in use: of those, what lives at `to`   allocated: b c
//! ```
//!
//! An event at the very time of a moment comes before it. So a window's numbers are those at its
//! end less those at its beginning, and windows that touch count each event once.

use heapprof_core::Temporary;
use heapprof_format::ReadError;

use crate::detail::Detail;
use crate::fold::{Fold, Peak};
use crate::log::{each_record, profile_of_log};
use crate::moment::{Cut, Moment, MomentError};
use crate::profile::Profile;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum View {
    /// All of it.
    #[default]
    Whole,
    /// The heap as it was at a moment.
    At(Moment),
    /// What happened between two.
    Window(Moment, Moment),
}

/// What to read of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// Which events.
    pub view: View,
    /// Whether pasts are wanted as well ([`Profile::pasts`]), and which freed blocks were temporary.
    /// They take memory for live blocks once more.
    pub pasts: Option<Temporary>,
    /// What else to keep.
    pub detail: Detail,
}

/// The part of a log that a profile shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Events up to here are left out.
    pub from: Cut,
    /// Events after this are left out.
    pub to: Cut,
}

impl Span {
    /// In words.
    pub fn describe(self) -> String {
        let seconds = |cut: Cut| cut.time_ns() as f64 / 1e9;
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

/// Why a view gives no profile.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The moment is not in it.
    #[error(transparent)]
    Moment(#[from] MomentError),
}

/// The profile of a part of a log. A view reads the log twice, once to find its moments in it; so
/// memory is needed for live blocks and stacks only, whatever the view.
///
/// # Errors
/// When the log cannot be read, or the moments are not in it.
pub fn profile_of_view(
    bytes: &[u8],
    reading: &Reading,
    mut progress: impl FnMut(u64),
) -> Result<Profile, ViewError> {
    let fold = |span| {
        let fold = Fold::keeping(reading.detail).within(span);
        match reading.pasts {
            Some(temporary) => fold.with_pasts(temporary),
            None => fold,
        }
    };
    if reading.view == View::Whole {
        let mut fold = fold(None);
        each_record(bytes, &mut progress, &mut fold)?;
        return Ok(fold.finish());
    }
    let whole = profile_of_log(bytes, &mut progress)?;
    let find = |moment: &Moment| moment.find(&whole.run, &whole.peak.unwrap_or_default());
    let span = match &reading.view {
        View::Whole => None,
        View::At(at) => Some(Span {
            from: Cut::Nothing,
            to: find(at)?,
        }),
        View::Window(from, to) => {
            let span = Span {
                from: find(from)?,
                to: find(to)?,
            };
            let (from_ns, to_ns) = (span.from.time_ns(), span.to.time_ns());
            if from_ns > to_ns {
                return Err(MomentError::Backwards { from_ns, to_ns }.into());
            }
            Some(span)
        }
    };
    let mut fold = fold(span);
    each_record(bytes, &mut progress, &mut fold)?;
    let mut part = fold.finish();
    // What is wrong with the file is so whatever part of it is shown.
    part.account = whole.account;
    Ok(part)
}

/// The moment of the most bytes in use.
impl Peak {
    /// As a cut.
    pub fn cut(&self) -> Cut {
        Cut::Record {
            number: self.record,
            time_ns: self.time_ns,
        }
    }
}
