//! Moment: an instant of a run, as a person writes it.
//!
//! ```text
//! start  end  peak        the first instant, the last, that of the most bytes in use
//! peak-rss                the reading of the memory with the most resident bytes
//! peak near 26s           the nearest spike of the run
//! 12.5  12.5s  300ms  2m  after the start
//! 50%                     of the run
//! 2026-11-21T10:00:00Z    wall clock, UTC; `10:00:00` and `10:00` on the day of the start
//! anything else           the first marker of that name, or else the first with these words
//! marker:NAME             a marker, whatever its name looks like
//! ```

use std::fmt;

use crate::history::spikes::{Point, Spike};
use crate::model::calendar::{DAY, SECOND, duration_ns, time_of_day_ns, utc, wall_ns};
use crate::model::fork_remark::begins_with_inherited;
use crate::model::peak::Peak;
use crate::model::run::{Marker, Run};
use crate::model::span::Cut;

/// A spike is near within this part of the run.
const NEAR: u64 = 10;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub enum Moment {
    /// Before the first record.
    Start,
    /// After the last.
    End,
    /// When the most bytes were in use, the first time if there are several.
    Peak,
    /// The reading of the memory with the most resident bytes.
    PeakRss,
    /// The spike that is nearest to another moment.
    PeakNear(Box<Moment>),
    /// Nanoseconds since the start.
    After(u64),
    /// A part of the run, 0 to 1.
    Part(f64),
    /// Nanoseconds since 1970.
    Wall(u64),
    /// Nanoseconds since the midnight (UTC) before the start.
    TimeOfDay(u64),
    /// A marker.
    Marker(String),
}

/// Why a moment is not in a log.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MomentError {
    /// It lies after the end.
    #[error("{moment} is after the log's last record, at {:.6} s", *.last_ns as f64 / 1e9)]
    AfterEnd {
        /// The moment that was asked for.
        moment: Moment,
        /// The log's last time.
        last_ns: u64,
    },
    /// It lies before the start.
    #[error("{moment} is before the start of the run, {}", utc(*.start_wall_ns))]
    BeforeStart {
        /// The moment that was asked for.
        moment: Moment,
        /// When the run started.
        start_wall_ns: u64,
    },
    /// It lies before what is kept of a log that rotates.
    #[error(
        "{moment} ({:.6} s) is before what is kept in detail: the log rotated (HEAPPROF_MAX_LOG, or a disk that was full), and from {:.6} s on \
         every moment can be shown; before that, only totals are kept",
        *.at_ns as f64 / 1e9, *.from_ns as f64 / 1e9
    )]
    NotKept {
        /// The moment that was asked for.
        moment: Moment,
        /// When that was.
        at_ns: u64,
        /// When detail begins.
        from_ns: u64,
    },
    /// The log does not say when it began.
    #[error("the log does not say at what time of day it began, so {0} cannot be found in it")]
    NoWallClock(Moment),
    /// No marker is so named.
    #[error("{name:?} is neither a time (12.5s, 300ms, 50%, 10:00:00, peak) nor a marker of this log; {}", listed(.markers))]
    NoMarker {
        /// The moment that was asked for.
        name: String,
        /// The markers there are.
        markers: Vec<String>,
    },
    /// The highest resident memory is not known.
    #[error(
        "{}: the log has no reading of the resident memory. The library takes one each second in \
         which the program allocates, unless HEAPPROF_MEMORY_INTERVAL_MS=0; of a joined log, give \
         the log of one process",
        Moment::PeakRss
    )]
    NoReading,
    /// No spike is near.
    #[error("no peak is near {near}{}", other(*.nearest_ns))]
    NoPeak {
        /// The moment that was asked for.
        near: Moment,
        /// When the nearest spike was; `None`: there is none.
        nearest_ns: Option<u64>,
    },
    /// The window ends before it begins.
    #[error("the window ends, at {:.6} s, before it begins, at {:.6} s", *.to_ns as f64 / 1e9, *.from_ns as f64 / 1e9)]
    Backwards {
        /// Its beginning.
        from_ns: u64,
        /// Its end.
        to_ns: u64,
    },
}

fn other(nearest_ns: Option<u64>) -> String {
    match nearest_ns {
        Some(ns) => format!(
            ": the nearest is at {:.6} s; `heapprof timeline` lists the highest",
            ns as f64 / 1e9
        ),
        None => ": nothing was in use".into(),
    }
}

fn listed(markers: &[String]) -> String {
    const SHOWN: usize = 5;
    if markers.is_empty() {
        return "it has no markers".into();
    }
    let more = match markers.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(" and {n} more (see `heapprof info`)"),
    };
    let shown: Vec<&str> = markers.iter().take(SHOWN).map(String::as_str).collect();
    format!("its markers are {}{more}", shown.join(", "))
}

impl Moment {
    /// Where it is in a log of that run, whose peak is known, and whose spikes if it
    /// [asks for these](Self::is_spike).
    ///
    /// # Errors
    /// When it is not in the log.
    pub fn find(&self, run: &Run, peak: &Peak, spikes: &[Spike]) -> Result<Cut, MomentError> {
        let cut = self.find_in_run(run, peak, spikes)?;
        let is_gone = *self == Moment::Peak && peak.is_gone;
        match &run.checkpoint {
            // Before the first event there is nothing to know.
            Some(checkpoint)
                if is_gone || cut != Cut::Nothing && cut.time_ns() < checkpoint.time_ns =>
            {
                Err(MomentError::NotKept {
                    moment: self.clone(),
                    at_ns: cut.time_ns(),
                    from_ns: checkpoint.time_ns,
                })
            }
            _ => Ok(cut),
        }
    }

    /// A time of day as an instant: on the day of that one (nanoseconds since 1970), or else on the
    /// next. Other moments as they are.
    pub fn on_the_day_of(&self, wall_ns: u64) -> Moment {
        if let Moment::PeakNear(near) = self {
            return Moment::PeakNear(Box::new(near.on_the_day_of(wall_ns)));
        }
        let Moment::TimeOfDay(time_ns) = self else {
            return self.clone();
        };
        let that_day = (wall_ns / DAY * DAY).saturating_add(*time_ns);
        Moment::Wall(match that_day < wall_ns {
            true => that_day.saturating_add(DAY),
            false => that_day,
        })
    }

    /// Returns true if it is one of the spikes.
    pub fn is_spike(&self) -> bool {
        matches!(self, Moment::PeakNear(_))
    }

    /// Returns true if it is a time that is counted from the start, or of the clock on the wall:
    /// other processes may not have it.
    pub(crate) fn may_be_outside(&self) -> bool {
        match self {
            Moment::Wall(_) | Moment::After(_) => true,
            Moment::PeakNear(near) => near.may_be_outside(),
            _ => false,
        }
    }

    fn find_in_run(&self, run: &Run, peak: &Peak, spikes: &[Spike]) -> Result<Cut, MomentError> {
        let last_ns = run.duration_ns;
        let at = |time_ns: u64| {
            if time_ns > last_ns {
                return Err(MomentError::AfterEnd {
                    moment: self.clone(),
                    last_ns,
                });
            }
            Ok(Cut::Time(time_ns))
        };
        let wall = |wall_ns: u64| {
            if run.start_wall_ns == 0 {
                return Err(MomentError::NoWallClock(self.clone()));
            }
            match wall_ns.checked_sub(run.start_wall_ns) {
                Some(time_ns) => at(time_ns),
                None => Err(MomentError::BeforeStart {
                    moment: self.clone(),
                    start_wall_ns: run.start_wall_ns,
                }),
            }
        };
        match self {
            // Blocks from its parent were in use before its own first event.
            Moment::Start if begins_with_inherited(run) => Ok(Cut::Time(0)),
            Moment::Start => Ok(Cut::Nothing),
            Moment::End => Ok(Cut::Time(last_ns)),
            Moment::Peak => Ok(Cut::Record {
                number: peak.record,
                time_ns: peak.time_ns,
            }),
            Moment::PeakRss => match run.most_resident {
                Some(reading) => Ok(Cut::Record {
                    number: reading.record,
                    time_ns: reading.time_ns,
                }),
                None => Err(MomentError::NoReading),
            },
            Moment::PeakNear(near) => {
                let near_ns = near.find_in_run(run, peak, spikes)?.time_ns();
                let away = |point: &Point| point.time_ns.abs_diff(near_ns);
                let nearest = spikes.iter().map(|spike| spike.peak).min_by_key(away);
                let is_near = |point: &Point| away(point) <= last_ns / NEAR;
                match nearest.filter(is_near) {
                    Some(point) => Ok(point.cut()),
                    None => Err(MomentError::NoPeak {
                        near: (**near).clone(),
                        nearest_ns: nearest.map(|point| point.time_ns),
                    }),
                }
            }
            Moment::After(time_ns) => at(*time_ns),
            Moment::Part(part) => at((part * last_ns as f64).round().min(last_ns as f64) as u64),
            Moment::Wall(wall_ns) => wall(*wall_ns),
            Moment::TimeOfDay(time_ns) => {
                let that_day = (run.start_wall_ns / DAY * DAY).saturating_add(*time_ns);
                // A run that goes on after midnight meets it on the next day.
                let next_day = that_day.saturating_add(DAY);
                let is_met = next_day <= run.start_wall_ns.saturating_add(last_ns);
                wall(match that_day < run.start_wall_ns && is_met {
                    true => next_day,
                    false => that_day,
                })
            }
            Moment::Marker(name) => match marker(&run.markers, name) {
                Some(marker) => Ok(marker.cut()),
                None => Err(MomentError::NoMarker {
                    name: name.clone(),
                    // Those that somebody named come first: dumps may be many.
                    markers: (run.markers.iter().filter(|it| !it.is_of_dump()))
                        .chain(run.markers.iter().filter(|it| it.is_of_dump()))
                        .map(|marker| marker.name.clone())
                        .collect(),
                }),
            },
        }
    }
}

/// Returns the marker of a name: the first one, or with `#N` behind the name the Nth one, or with
/// `#last` the last one.
fn marker<'a>(markers: &'a [Marker], name: &str) -> Option<&'a Marker> {
    let first = named(markers, name).into_iter().next();
    first.or_else(|| {
        let (name, which) = name.rsplit_once('#')?;
        let all = named(markers, name);
        match which {
            "last" => all.last().copied(),
            _ => all
                .get(which.parse::<usize>().ok()?.checked_sub(1)?)
                .copied(),
        }
    })
}

/// Returns the markers of that very name, or else those with these words in their names.
fn named<'a>(markers: &'a [Marker], name: &str) -> Vec<&'a Marker> {
    let of = |test: &dyn Fn(&str) -> bool| -> Vec<&'a Marker> {
        markers.iter().filter(|it| test(&it.name)).collect()
    };
    match of(&|it| it == name) {
        exact if !exact.is_empty() => exact,
        _ => of(&|it| has_words(it, name)),
    }
}

/// Returns true if the text has these words, and not just letters of longer ones.
fn has_words(text: &str, words: &str) -> bool {
    let is_inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut places = text.match_indices(words);
    !words.is_empty()
        && places.any(|(at, found)| {
            let (before, after) = (&text[..at], &text[at + found.len()..]);
            let begins = !is_inner(before.chars().next_back()) || !is_inner(words.chars().next());
            let ends = !is_inner(after.chars().next()) || !is_inner(words.chars().next_back());
            begins && ends
        })
}

/// Any text is a moment: what is nothing else is a marker's name.
impl From<&str> for Moment {
    fn from(text: &str) -> Moment {
        match text.trim().strip_prefix("peak near ") {
            Some(near) => Moment::PeakNear(Box::new(plain(near))),
            None => plain(text),
        }
    }
}

/// A moment that no other is part of.
fn plain(text: &str) -> Moment {
    let text = text.trim();
    let known = match text {
        "start" => Some(Moment::Start),
        "end" => Some(Moment::End),
        "peak" => Some(Moment::Peak),
        "peak-rss" => Some(Moment::PeakRss),
        _ => None,
    };
    let percent = || {
        let part: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
        (0.0..=100.0)
            .contains(&part)
            .then_some(Moment::Part(part / 100.0))
    };
    known
        .or_else(|| duration_ns(text).map(Moment::After))
        .or_else(percent)
        .or_else(|| time_of_day_ns(text).map(Moment::TimeOfDay))
        .or_else(|| wall_ns(text).map(Moment::Wall))
        .unwrap_or_else(|| Moment::Marker(text.strip_prefix("marker:").unwrap_or(text).to_owned()))
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::Start => f.write_str("start"),
            Moment::End => f.write_str("end"),
            Moment::Peak => f.write_str("peak"),
            Moment::PeakRss => f.write_str("peak-rss"),
            Moment::PeakNear(near) => write!(f, "peak near {near}"),
            Moment::After(ns) => write!(f, "{} s", *ns as f64 / 1e9),
            Moment::Part(part) => write!(f, "{}%", part * 100.0),
            Moment::Wall(ns) => f.write_str(&utc(*ns)),
            Moment::TimeOfDay(ns) => {
                let s = ns / SECOND;
                write!(f, "{:02}:{:02}:{:02} UTC", s / 3600, s / 60 % 60, s % 60)
            }
            Moment::Marker(name) => write!(f, "marker {name:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::run::HighestReading;

    fn moment(text: &str) -> Moment {
        text.into()
    }

    #[test]
    fn a_marker_is_found_by_whole_words() {
        assert!(has_words("memory at 95 % of memory.max", "memory at 95"));
        assert!(has_words("dump: 1", "dump"));
        assert!(!has_words("r11", "r1") && !has_words("xr1", "r1") && has_words("r11 r1", "r1"));
        assert!(!has_words("r1", ""));
    }

    #[test]
    fn moments_are_read_as_people_write_them() {
        for (text, expected) in [
            ("12.5", Moment::After(12_500_000_000)),
            ("12.5s", Moment::After(12_500_000_000)),
            ("300ms", Moment::After(300_000_000)),
            ("2m", Moment::After(120_000_000_000)),
            ("50%", Moment::Part(0.5)),
            ("peak", Moment::Peak),
            ("peak-rss", Moment::PeakRss),
            ("10:00:01", Moment::TimeOfDay(36_001_000_000_000)),
            (
                "2026-01-01T00:00:01Z",
                Moment::Wall(1_767_225_601_000_000_000),
            ),
            ("1970-01-01T00:00:00Z", Moment::Wall(0)),
            ("2000-02-29 00:00", Moment::Wall(951_782_400_000_000_000)),
            ("loaded", Moment::Marker("loaded".into())),
            (
                " peak near 26s",
                Moment::PeakNear(Box::new(Moment::After(26_000_000_000))),
            ),
            ("peak near", Moment::Marker("peak near".into())),
            ("marker:peak near 1", Moment::Marker("peak near 1".into())),
            ("marker:peak", Moment::Marker("peak".into())),
            ("150%", Moment::Marker("150%".into())),
            ("25:00", Moment::Marker("25:00".into())),
            (
                "2026-01-01T02:00:01+02:00",
                Moment::Wall(1_767_225_601_000_000_000),
            ),
            (
                "2025-12-31T19:30:01-04:30",
                Moment::Wall(1_767_225_601_000_000_000),
            ),
            (
                "2026-02-29T10:00",
                Moment::Marker("2026-02-29T10:00".into()),
            ),
            ("", Moment::Marker("".into())),
        ] {
            assert_eq!(moment(text), expected, "{text}");
        }
    }

    #[test]
    fn a_time_of_day_may_be_after_midnight() {
        let run = Run {
            start_wall_ns: (1_767_225_600 - 3600) * SECOND, // 23:00
            duration_ns: 2 * 3600 * SECOND,
            ..Run::default()
        };
        let find = |text: &str| moment(text).find(&run, &Peak::default(), &[]);
        assert_eq!(find("23:30"), Ok(Cut::Time(1800 * SECOND)));
        assert_eq!(find("00:30"), Ok(Cut::Time(5400 * SECOND)));
        assert!(find("01:30").is_err() && find("22:59").is_err());
    }

    #[test]
    fn moments_outside_of_the_run_are_errors_that_say_so() {
        let marker = |time_ns, record, name: &str| Marker {
            time_ns,
            record,
            name: name.into(),
        };
        let run = Run {
            start_wall_ns: 1_767_225_600 * SECOND,
            duration_ns: 20 * SECOND,
            markers: vec![marker(5, 50, "dump: 1"), marker(7, 70, "dump")],
            ..Run::default()
        };
        let find = |text: &str| moment(text).find(&run, &Peak::default(), &[]);
        assert_eq!(find("00:00:15"), Ok(Cut::Time(15 * SECOND)));
        assert_eq!(find("50%"), Ok(Cut::Time(10 * SECOND)));
        assert_eq!(find("dump"), Ok(Cut::Time(7)), "the whole name first");
        assert_eq!(
            find("dump:"),
            Ok(Cut::Record {
                number: 50,
                time_ns: 5
            })
        );
        assert!(find("ump").is_err(), "letters of a word");
        let text = |error: Result<Cut, MomentError>| error.unwrap_err().to_string();
        assert_eq!(
            text(find("21")),
            "21 s is after the log's last record, at 20.000000 s"
        );
        assert!(text(find("2025-12-31T23:59:59Z")).contains("before the start"));
        assert!(text(find("lunch")).contains("its markers are dump, dump: 1"));
        assert!(text(find("")).contains("\"\" is neither a time"));
    }

    #[test]
    fn one_of_several_markers_is_chosen_by_its_number() {
        let marker = |time_ns, name: &str| Marker {
            time_ns,
            record: 0,
            name: name.into(),
        };
        let run = Run {
            markers: vec![
                marker(1, "batch"),
                marker(2, "batch"),
                marker(3, "other batch"),
                marker(4, "batch"),
                marker(5, "C#2"),
            ],
            ..Run::default()
        };
        let find = |text: &str| moment(text).find(&run, &Peak::default(), &[]).ok();
        for (text, time_ns) in [
            ("batch", 1),
            ("batch#1", 1),
            ("batch#2", 2),
            ("batch#3", 4),
            ("marker:batch#last", 4),
            ("other#1", 3),
            ("C#2", 5),
        ] {
            assert_eq!(find(text), Some(Cut::Time(time_ns)), "{text}");
        }
        for text in ["batch#0", "batch#4", "batch#", "batch#x", "#1"] {
            assert_eq!(find(text), None, "{text}");
        }
    }

    #[test]
    fn the_highest_resident_memory_is_a_reading_or_an_error() {
        let mut run = Run::default();
        let find = |run: &Run| moment("peak-rss").find(run, &Peak::default(), &[]);
        let none = find(&run).unwrap_err().to_string();
        assert!(
            none.starts_with("peak-rss: the log has no reading"),
            "{none}"
        );
        run.most_resident = Some(HighestReading {
            record: 9,
            time_ns: 5,
            resident: 7,
        });
        let (number, time_ns) = (9, 5);
        assert_eq!(find(&run), Ok(Cut::Record { number, time_ns }));
    }

    #[test]
    fn a_peak_is_near_or_an_error() {
        let run = Run {
            duration_ns: 100 * SECOND,
            ..Run::default()
        };
        let spike = |record, seconds: u64| Spike {
            peak: Point {
                record,
                time_ns: seconds * SECOND,
                ..Point::default()
            },
            ..Spike::default()
        };
        let spikes = [spike(5, 26), spike(9, 30), spike(12, 70)];
        let find = |text: &str, spikes: &[Spike]| {
            let found = moment(text).find(&run, &Peak::default(), spikes);
            found.map_err(|error| error.to_string())
        };
        let is = |text: &str, number, seconds: u64| {
            let time_ns = seconds * SECOND;
            assert_eq!(find(text, &spikes), Ok(Cut::Record { number, time_ns }));
        };
        is("peak near 27.9s", 5, 26);
        is("peak near 29s", 9, 30);
        is("peak near 60%", 12, 70);
        assert_eq!(
            find("peak near 59s", &spikes).unwrap_err(),
            "no peak is near 59 s: the nearest is at 70.000000 s; `heapprof timeline` lists the highest"
        );
        assert!(find("peak near 1s", &[]).unwrap_err().contains("nothing"));
        assert!(
            find("peak near 101s", &spikes)
                .unwrap_err()
                .contains("after the log")
        );
    }
}
