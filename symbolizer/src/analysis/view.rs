//! View: the part of a log's events that count.
//!
//! ```text
//!            from            to
//!   ───a──────┊───b────c──────┊───d───   allocations; each may be freed at any later time
//!   Whole          in use: what lives at the end          allocated: a b c d
//!   At(to)         in use: what lives at `to`             allocated: a b c
//!   Window         in use: of those, what lives at `to`   allocated: b c
//!   Survivors      in use: of a, what lives at `to`       allocated: the same; age: `to` - `from`
//! ```
//!
//! If the pages of blocks are wanted, the end of a view is the nearest reading of pages.
//!
//! An event at the exact time of a moment comes before it. So a window's numbers are those at its
//! end minus those at its beginning, and windows that touch count each event once.

use crate::history::past_numbers::PastNumbers;
use crate::history::temporary::Temporary;
use heapprof_core::Estimate;
use heapprof_format::ReadError;

use crate::analysis::moment::{Moment, MomentError};
use crate::model::extras::WantedExtras;
use crate::model::measure::Measure;
use crate::model::page_reading::nearest;
use crate::model::profile::Profile;
use crate::model::run::Ending;
use crate::model::span::Cut;
use crate::model::span::Outside;
use crate::model::span::Span;
use crate::read::fold::Fold;
use crate::read::log::each_record;
use crate::read::paired_difference::PairedDifference;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum View {
    /// All of it.
    #[default]
    Whole,
    /// The heap as it was at a moment.
    At(Moment),
    /// The events between two moments.
    Window(Moment, Moment),
    /// The blocks in use at a moment that are at least so old. Blocks that were freed by then are
    /// not shown.
    Survivors {
        /// The least age, in nanoseconds since the block was allocated, or last resized.
        age_ns: u64,
        /// When it is looked at.
        at: Moment,
    },
}

impl View {
    /// How old blocks must be.
    fn age_ns(&self) -> Option<u64> {
        match self {
            View::Survivors { age_ns, .. } => Some(*age_ns),
            _ => None,
        }
    }

    /// The moments that it is made of.
    fn moments(&self) -> Vec<&Moment> {
        match self {
            View::Whole => Vec::new(),
            View::At(at) | View::Survivors { at, .. } => vec![at],
            View::Window(from, to) => vec![from, to],
        }
    }

    /// Returns the extras of a log that its moments are found by.
    fn wants(&self) -> WantedExtras {
        WantedExtras {
            spikes: self.moments().into_iter().any(Moment::is_spike),
            ..WantedExtras::default()
        }
    }

    /// Returns true if there is anything in it but what is in use.
    pub fn has_past(&self) -> bool {
        !matches!(self, View::Survivors { .. })
    }
}

/// The part of a log to read, and what to keep of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadRequest {
    /// The events that count.
    pub view: View,
    /// True if pasts are wanted as well ([`Profile::pasts`]), and which freed blocks were
    /// temporary. They take some more memory for each live block.
    pub pasts: Option<Temporary>,
    /// The numbers of these that are wanted.
    pub numbers: PastNumbers,
    /// True if the courses of all stacks are wanted beside the pasts ([`Profile::courses`]).
    pub courses: bool,
    /// Other things to keep.
    pub extras: WantedExtras,
    /// True if the pages of blocks are wanted, with the pasts: then the view ends at the reading of
    /// pages that is nearest to its end.
    pub pages: bool,
    /// True if the program's mappings are wanted, in place of blocks.
    pub mappings: bool,
    /// True if it is one of several logs that are added up. A time, of the clock on the wall or
    /// since the start, may then lie outside of its run, which
    /// [`Run::outside`](crate::Run::outside) says and what it had to add does not go beyond.
    pub among_several: bool,
    /// True if what a forked process had from its parent is left out, because the parent's log is
    /// added, too.
    pub without_inherited: bool,
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
    /// Pages are wanted, and no reading is in it.
    #[error("it has no reading of the pages of blocks")]
    NoPages,
}

/// The profile of a part of a log. A view reads the log twice, once to find its moments in it; so
/// memory is needed for live blocks and stacks only, whatever the view.
///
/// # Errors
/// When the log cannot be read, or the moments are not in it.
pub fn profile_of_view(
    bytes: &[u8],
    request: &ReadRequest,
    mut progress: impl FnMut(u64),
) -> Result<Profile, ViewError> {
    let fold = |span| {
        let fold = Fold::keeping(request.extras)
            .without_inherited(request.without_inherited)
            .within(span);
        match request.pasts {
            Some(temporary) if request.view.has_past() || request.pages => {
                let fold = fold.with_pasts(temporary).with_numbers(request.numbers);
                if request.courses {
                    fold.with_courses()
                } else {
                    fold
                }
            }
            _ => fold,
        }
    };
    let mut whole = |mut fold: Fold| {
        each_record(bytes, &mut progress, &mut fold)?;
        Ok::<Profile, ViewError>(fold.finish())
    };
    if request.view == View::Whole && !request.pages {
        return whole(fold(None));
    }
    let finding = Fold::keeping(request.view.wants());
    let all = whole(finding.without_inherited(request.without_inherited))?;
    let find = |moment: &Moment| found(moment, &all, request.among_several);
    if request.pages {
        let (from, to) = match &request.view {
            View::Whole => (&Moment::Start, &Moment::End),
            View::At(at) | View::Survivors { at, .. } => (&Moment::Start, at),
            View::Window(from, to) => (from, to),
        };
        let cut = |moment: &Moment| match (moment, find(moment)?) {
            (Moment::Start, _) | (_, Found::NotBegun) => Ok::<Cut, ViewError>(Cut::Nothing),
            (_, Found::In(cut)) => Ok(cut),
            (_, Found::Over) => Ok(Cut::Time(all.run.duration_ns)),
        };
        let (from, to_ns) = (cut(from)?, cut(to)?.time_ns());
        let (readings, end_ns) = (&all.run.page_readings, all.run.duration_ns);
        let pages = nearest(readings, to_ns, end_ns).ok_or(ViewError::NoPages)?;
        let span = forwards(Span {
            survived_ns: request.view.age_ns(),
            ..Span::between(from, pages.cut())
        })?;
        let mut part = whole(fold(Some(span)).with_pages(pages))?;
        part.account = all.account;
        return Ok(part);
    }
    let span = match &request.view {
        View::Whole => None,
        View::At(at) | View::Survivors { at, .. } => match find(at)? {
            Found::In(to) => Some(Span {
                survived_ns: request.view.age_ns(),
                ..Span::between(Cut::Nothing, to)
            }),
            Found::Over if !request.view.has_past() => {
                return Ok(all.without_rows(Outside::Over));
            }
            Found::NotBegun => return Ok(all.without_rows(Outside::NotBegun)),
            Found::Over => {
                let Ending::Said(_) = all.run.ending else {
                    // For all that is known, nothing has changed since.
                    let mut last = whole(fold(None))?;
                    last.run.outside = Some(Outside::Silent);
                    return Ok(last);
                };
                let mut last = whole(fold(None))?;
                last.run.outside = Some(Outside::Over);
                for row in &mut last.rows {
                    row.totals.in_use = Estimate::default();
                }
                for row in last.extras.threads.iter_mut().flatten() {
                    row.row.totals.in_use = Estimate::default();
                }
                for past in &mut last.pasts {
                    past.slack = Estimate::default();
                }
                return Ok(last);
            }
        },
        View::Window(from, to) => {
            let (from, to) = (find(from)?, find(to)?);
            let from = match from {
                Found::In(cut) => cut,
                Found::NotBegun => Cut::Nothing,
                Found::Over => {
                    let outside = match all.run.ending {
                        Ending::Said(_) => Outside::Over,
                        _ => Outside::Silent,
                    };
                    return Ok(all.without_rows(outside));
                }
            };
            let to = match to {
                Found::In(cut) => cut,
                Found::NotBegun => return Ok(all.without_rows(Outside::NotBegun)),
                Found::Over => Cut::Time(all.run.duration_ns),
            };
            Some(forwards(Span::between(from, to))?)
        }
    };
    let mut part = whole(fold(span))?;
    // Damage of the file is reported whatever part is shown.
    part.account = all.account;
    Ok(part)
}

/// A log with what differs between two views of it, by stack, and the parts that these are. It is
/// read twice, as any view is.
///
/// # Errors
/// When the log cannot be read, or the moments are not in it.
pub fn paired_difference_of_log(
    bytes: &[u8],
    views: [&View; 2],
    measure: Measure,
    temporary: Temporary,
    mut progress: impl FnMut(u64),
) -> Result<(Profile, [Span; 2]), ViewError> {
    let mut whole = |mut fold: Fold| {
        each_record(bytes, &mut progress, &mut fold)?;
        Ok::<Profile, ViewError>(fold.finish())
    };
    let wanted = views.map(View::wants);
    let all = whole(Fold::keeping(WantedExtras {
        spikes: wanted.iter().any(|it| it.spikes),
        ..WantedExtras::default()
    }))?;
    let find = |moment: &Moment| found_in(moment, &all);
    let span = |view: &View| {
        let span = match view {
            View::Whole => Span::between(Cut::Nothing, find(&Moment::End)?),
            View::At(at) | View::Survivors { at, .. } => Span {
                survived_ns: view.age_ns(),
                ..Span::between(Cut::Nothing, find(at)?)
            },
            View::Window(from, to) => Span::between(find(from)?, find(to)?),
        };
        forwards(span)
    };
    let spans = [span(views[0])?, span(views[1])?];
    let paired = PairedDifference::of(measure, temporary, spans);
    Ok((whole(Fold::new().with_paired_difference(paired))?, spans))
}

/// Returns the span, unless it ends before it begins.
fn forwards(span: Span) -> Result<Span, MomentError> {
    let (from_ns, to_ns) = (span.from.time_ns(), span.to.time_ns());
    match from_ns > to_ns {
        true => Err(MomentError::Backwards { from_ns, to_ns }),
        false => Ok(span),
    }
}

/// Where a moment is.
enum Found {
    In(Cut),
    NotBegun,
    Over,
}

/// The moment in that run.
fn found_in(moment: &Moment, all: &Profile) -> Result<Cut, MomentError> {
    let spikes = all.extras.spikes.as_deref().unwrap_or_default();
    moment.find(&all.run, &all.peak.unwrap_or_default(), spikes)
}

/// The moment in that run. Only a time, and only of several runs, may be outside of it.
fn found(moment: &Moment, all: &Profile, among_several: bool) -> Result<Found, MomentError> {
    let may_be_outside = among_several && moment.may_be_outside();
    match found_in(moment, all) {
        Ok(cut) => Ok(Found::In(cut)),
        Err(MomentError::BeforeStart { .. }) if may_be_outside => Ok(Found::NotBegun),
        Err(MomentError::AfterEnd { .. }) if may_be_outside => Ok(Found::Over),
        Err(error) => Err(error),
    }
}

impl Profile {
    /// Returns what ran, without anything that it allocated.
    fn without_rows(mut self, outside: Outside) -> Profile {
        self.run.outside = Some(outside);
        self.rows.clear();
        self.stacks.clear();
        self.requested = Estimate::default();
        self.counted = None;
        self
    }
}
