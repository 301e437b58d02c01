//! Filter: which stacks count, and which of their frames are shown. The words are pprof's.
//!
//! ```text
//! --focus RE    only stacks with a matching frame    main;serve;parse   --focus parse   stays
//! --ignore RE   no stacks with a matching frame      main;log           --ignore log    goes
//! --hide RE     matching frames are taken out        main;serve;parse   --hide serve    main;parse
//! --where K=V   only stacks under that label
//! ```
//!
//! A frame matches by its function, its source file, or its module's path. A stack goes if all of
//! its frames are hidden. The filter changes a profile and its names, so all readers (tables,
//! trees, exporters) see the same. The profile's conditions say that it is filtered, and its
//! account says what went.

use std::collections::{HashMap, HashSet};

use heapprof_core::Row;
use regex::Regex;

use crate::model::metric::Numbers;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only stacks that match.
    pub focus: Option<Regex>,
    /// No stacks that match.
    pub ignore: Option<Regex>,
    /// No frames that match.
    pub hide: Option<Regex>,
    /// Only stacks with all of these labels: keys and values.
    pub labels: Vec<(String, String)>,
}

impl Filter {
    /// Returns true if it lets everything through.
    pub fn is_empty(&self) -> bool {
        let has_regex = self.focus.is_some() || self.ignore.is_some() || self.hide.is_some();
        !has_regex && self.labels.is_empty()
    }

    /// Leaves of the profile what the filter lets through.
    pub fn apply(&self, profile: &mut Profile, symbols: &mut Symbols) {
        if self.is_empty() {
            return;
        }
        let before = profile.numbers().in_use_bytes;
        let verdicts = self.verdicts(profile, symbols);
        let stays = |stack: &CallStack| {
            let verdict = |place: Place| verdicts.get(&place).copied().unwrap_or_default();
            let ignored = profile.places(stack).any(|place| verdict(place).ignored);
            let focused =
                self.focus.is_none() || profile.places(stack).any(|place| verdict(place).focused);
            let shown = self.hide.is_none()
                || stack.frames.is_empty()
                || profile.places(stack).any(|place| !verdict(place).hidden);
            focused && !ignored && shown && stack.labels.have(&self.labels)
        };
        let kept: Vec<bool> = profile.stacks.iter().map(stays).collect();

        let hidden: HashSet<Place> = verdicts
            .iter()
            .filter(|(_, verdict)| verdict.hidden)
            .map(|(place, _)| *place)
            .collect();
        retain(profile, &kept, &hidden);
        if let Some(hide) = &self.hide {
            symbols.retain_frames(profile, |module, function, file| {
                !matches(hide, module, function, file)
            });
        }

        let words = with_earlier(profile, &self.to_string());
        state_filter(profile, before, &words);
    }

    /// Returns the verdict of the expressions for each place.
    fn verdicts(&self, profile: &Profile, symbols: &Symbols) -> HashMap<Place, FilterVerdict> {
        let mut verdicts = HashMap::new();
        for stack in &profile.stacks {
            for place in profile.places(stack) {
                verdicts.entry(place).or_insert_with(|| {
                    let module = profile.module_of(place).map_or("", |m| m.path.as_str());
                    let frames: Vec<(String, &Frame)> = symbols
                        .frames(place)
                        .iter()
                        .map(|frame| (symbols.function(profile, place, frame), frame))
                        .collect();
                    let hit = |regex: &Option<Regex>, (function, frame): &(String, &Frame)| {
                        regex.as_ref().is_some_and(|regex| {
                            matches(regex, module, function, frame.file.as_deref())
                        })
                    };
                    FilterVerdict {
                        focused: frames.iter().any(|frame| hit(&self.focus, frame)),
                        ignored: frames.iter().any(|frame| hit(&self.ignore, frame)),
                        hidden: frames.iter().all(|frame| hit(&self.hide, frame)),
                    }
                });
            }
        }
        verdicts
    }
}

/// Leaves in the profile the stacks that are kept, and states the filter by those words. `kept` has
/// an element for each stack.
pub fn retain_stacks(profile: &mut Profile, kept: &[bool], words: &str) {
    let before = profile.numbers().in_use_bytes;
    retain(profile, kept, &HashSet::new());
    let words = with_earlier(profile, words);
    state_filter(profile, before, &words);
}

/// Returns the words of the filters that a profile has passed, and these.
fn with_earlier(profile: &Profile, words: &str) -> String {
    match profile.filtered.as_str() {
        "" => words.to_owned(),
        earlier => format!("{earlier}, {words}"),
    }
}

/// Leaves the stacks that are kept, without the hidden places.
fn retain(profile: &mut Profile, kept: &[bool], hidden: &HashSet<Place>) {
    let mut new_index = vec![None; kept.len()];
    let mut stacks = Vec::new();
    for (index, stack) in profile.stacks.iter().enumerate() {
        if kept[index] {
            new_index[index] = Some(stacks.len() as u32);
            stacks.push(without(profile, stack, hidden));
        }
    }
    let renumbered = |row: &Row| {
        let stack = *new_index.get(row.stack as usize)?;
        Some(Row {
            stack: stack?,
            ..*row
        })
    };
    profile.coarse = Vec::new(); // it is of all stacks
    let extras = &mut profile.extras;
    if let Some(threads) = &mut extras.threads {
        threads.retain_mut(|part| renumbered(&part.row).map(|row| part.row = row).is_some());
    }
    if let Some(events) = &mut extras.events {
        let mut gone = HashSet::new();
        events.retain_mut(|event| match &mut event.allocated {
            Some(block) => match new_index.get(block.stack as usize).copied().flatten() {
                Some(stack) => {
                    block.stack = stack;
                    true
                }
                None => {
                    gone.insert(event.id);
                    false
                }
            },
            None => !gone.remove(&event.id),
        });
    }
    // Pasts run beside rows, lifetimes and courses beside stacks.
    let mut row_stays = profile.rows.iter().map(|row| renumbered(row).is_some());
    profile.pasts.retain(|_| row_stays.next().unwrap_or(true));
    let mut stack_stays = kept.iter();
    let courses = &mut profile.courses.stacks;
    courses.retain(|_| stack_stays.next().copied().unwrap_or(true));
    let mut stack_stays = kept.iter();
    profile
        .lifetimes
        .retain(|_| stack_stays.next().copied().unwrap_or(true));
    profile.rows = profile.rows.iter().filter_map(renumbered).collect();
    profile.stacks = stacks;
}

/// States in the profile that it is filtered. `before` are the bytes in use of the whole.
fn state_filter(profile: &mut Profile, before: u64, words: &str) {
    // They were of the whole.
    profile.stated_errors = None;
    profile.peak = None;
    words.clone_into(&mut profile.filtered);
    let shown: Numbers = profile.numbers();
    profile.account.remarks.push(format!(
        "filtered ({words}): shown are {} of {before} bytes in use",
        shown.in_use_bytes
    ));
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("focus", &self.focus),
            ("ignore", &self.ignore),
            ("hide", &self.hide),
        ];
        let mut between = "";
        for (name, regex) in parts {
            if let Some(regex) = regex {
                write!(f, "{between}{name} {regex}")?;
                between = ", ";
            }
        }
        for (key, value) in &self.labels {
            write!(f, "{between}where {key}={value}")?;
            between = ", ";
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct FilterVerdict {
    focused: bool,
    ignored: bool,
    /// All of its frames.
    hidden: bool,
}

fn matches(regex: &Regex, module: &str, function: &str, file: Option<&str>) -> bool {
    regex.is_match(function)
        || file.is_some_and(|file| regex.is_match(file))
        || regex.is_match(module)
}

/// Returns the stack without those places. The remaining addresses are those of the calls
/// themselves.
fn without(profile: &Profile, stack: &CallStack, hidden: &HashSet<Place>) -> CallStack {
    if !profile.places(stack).any(|place| hidden.contains(&place)) {
        return stack.clone();
    }
    let frames: Vec<u64> = profile
        .places(stack)
        .filter(|place| !hidden.contains(place))
        .map(|place| place.avma)
        .collect();
    let first = profile.places(stack).next();
    let keeps_first = first.is_some_and(|place| !hidden.contains(&place));
    CallStack {
        interrupted: (0..frames.len() as u32).collect(),
        frames,
        begins_with_ours: stack.begins_with_ours && keeps_first,
        ..stack.clone()
    }
}
