//! Difference: what changed between two profiles, site by site, and whether it is more than noise.
//!
//! ```text
//!   two runs      A: all that was there     B: all that was there        both noisy, variances add
//!   one log       T1 ──────────────────────> T2
//!                 ├─ stays ────────────────┤                            the same samples: cancels
//!                 ├─ freed ─────┘  counts as minus
//!                      └─ came ────────────┤  counts as plus
//! ```
//!
//! Plus and minus rest on different samples, so their variances add: `z = (plus - minus) / sqrt(var
//! plus + var minus)`. With one log that is the variance of what changed, not of everything.
//! Between two profiles it is at least the variance between two profiles of equal heaps (`noise`),
//! because a site without a sample may be there all the same.

mod sites;
mod variants;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::analysis::completeness::Recorded;
use crate::analysis::noise::Sampling;
use crate::model::change::Change;
use crate::model::loaded_module::LoadedModule;
use crate::model::measure::Measure;
use crate::model::noise::Noise;
use crate::model::precision::Precision;
use crate::model::profile::Profile;
use crate::naming::group::{By, label_of};
use crate::naming::paths::{Namer, Paths};
use crate::naming::selection::Subject;
use crate::naming::site::SiteMap;
use crate::naming::suppressions::Suppressions;
use crate::naming::symbols::Symbols;

pub use sites::DiffSite;
use sites::Homonyms;
use variants::Variants;

/// A line of source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLine {
    /// The file, as the debug information names it.
    pub file: String,
    /// The line.
    pub line: u32,
}

/// The lines of a site: one line, or several of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    /// The file, as the debug information names it.
    pub file: String,
    /// `None`: several lines, or an unknown one.
    pub line: Option<u32>,
}

impl fmt::Display for SourcePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// All changes, in no order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diff {
    /// By site.
    pub changes: BTreeMap<DiffSite, Change>,
    /// The line of a site that has the most afterwards, if it is known.
    pub lines: HashMap<DiffSite, SourceLine>,
    /// The file and line of a site of one line, and the file of a site of several. They are those
    /// of the second profile, if the site is in it.
    pub places: HashMap<DiffSite, SourcePlace>,
    /// The change of everything.
    pub total: Change,
}

/// The files and lines of a site on one side.
type Places = BTreeSet<(String, Option<u32>)>;

/// Returns the line that all of them are, or the file; `None`: they are several files.
fn place_of(places: &Places) -> Option<SourcePlace> {
    let (file, line) = places.first()?;
    let is_one_file = places.iter().all(|(other, _)| other == file);
    is_one_file.then(|| SourcePlace {
        file: file.clone(),
        line: line.filter(|_| places.len() == 1),
    })
}

/// The parts of a difference, before they are added up by site or by stack.
#[derive(Debug)]
pub struct Differences<'a> {
    /// The first and the second profile; both are one profile for two moments of a log.
    sides: [(&'a Profile, &'a Symbols); 2],
    /// The side of a stack, and its number there.
    parts: Vec<(usize, u32, Change)>,
    /// True if a filter may have left in what it would leave out by its name.
    is_unsure: bool,
}

impl<'a> Differences<'a> {
    /// Between two profiles that share no samples.
    pub fn of_two(
        before: (&'a Profile, &'a Symbols),
        after: (&'a Profile, &'a Symbols),
        measure: Measure,
    ) -> Differences<'a> {
        let sides = [before, after];
        let mut parts = Vec::new();
        let precisions = sides.map(|(profile, _)| profile.precision());
        let is_unsure = precisions.contains(&Precision::Stated);
        // Mappings are no samples. Their pages are read now and then.
        let is_sampled = !measure.is_mapped();
        let may_be_missed = match measure {
            Measure::Mapped => false,
            Measure::MappedResident => sides.iter().any(|(side, _)| !side.has_mappings_of_end()),
            _ => precisions.contains(&Precision::Sampled),
        };
        let is_in_parts = |(profile, _): &(&Profile, _)| profile.recorded() == Recorded::InParts;
        let is_in_parts = sides.iter().any(is_in_parts);
        let samplings = sides.map(|(profile, _)| Sampling::of(profile));
        for (side, (profile, _)) in sides.into_iter().enumerate() {
            let other = &samplings[1 - side];
            for (index, row) in profile.rows.iter().enumerate() {
                let amount = measure.of_row(profile, index);
                let mut change = Change {
                    noise: match is_sampled {
                        true => Noise::implied(profile, index, &amount, other),
                        false => Noise::default(),
                    },
                    is_unsure,
                    may_be_missed,
                    is_in_parts,
                    ..Change::default()
                };
                match side {
                    0 => {
                        (change.before, change.minus) = (amount.value, amount);
                        change.before_variance = amount.variance;
                    }
                    _ => (change.after, change.plus) = (amount.value, amount),
                }
                parts.push((side, row.stack, change));
            }
        }
        Differences {
            sides,
            parts,
            is_unsure: false,
        }
    }

    /// Between two views of one log, that
    /// [`paired_difference_of_log`](crate::paired_difference_of_log) read.
    pub fn of_views(profile: &'a Profile, symbols: &'a Symbols) -> Differences<'a> {
        let changes = profile.changes.iter().enumerate();
        Differences {
            parts: changes
                .map(|(stack, change)| (1, stack as u32, *change))
                .collect(),
            sides: [(profile, symbols), (profile, symbols)],
            is_unsure: false,
        }
    }

    /// A module's name as both sides have it: two programs that are compared by force are one
    /// program of two names, as builds often are.
    fn common_name<'n>(&'n self, side: usize, module: &'n str) -> &'n str {
        let [before, after] = self.sides.map(|(profile, _)| profile.run.name());
        match side == 0 && module == before && !after.is_empty() {
            true => after,
            false => module,
        }
    }

    /// The modules whose functions cannot all be compared by name, though nothing else of two
    /// builds can be.
    fn unnamed_modules(&self) -> Vec<UnnamedModule> {
        let [(a, of_a), (b, of_b)] = self.sides;
        let unnamed = |symbols: &Symbols, index: usize| {
            let report = symbols.reports().get(&(index as u32));
            report.map_or(0, |report| report.quality.unresolved)
        };
        let others = by_name(&b.modules);
        let mut unnamed_modules: Vec<UnnamedModule> = Vec::new();
        let mut place_of: HashMap<&str, usize> = HashMap::new();
        for (index, module) in a.modules.iter().enumerate() {
            let name = self.common_name(0, module.name());
            let Some(&other) = others.get(name) else {
                continue;
            };
            let addresses = [unnamed(of_a, index), unnamed(of_b, other)];
            if module.build_id == b.modules[other].build_id || addresses == [0, 0] {
                continue;
            }
            let place = *place_of.entry(name).or_insert_with(|| {
                unnamed_modules.push(UnnamedModule {
                    module: name.to_owned(),
                    before: module.name().to_owned(),
                    addresses: [0, addresses[1]],
                });
                unnamed_modules.len() - 1
            });
            unnamed_modules[place].addresses[0] += addresses[0];
        }
        unnamed_modules
    }

    /// Returns what must be known about the names on both sides.
    pub fn remarks(&self) -> Vec<String> {
        let unnamed_modules = self.unnamed_modules();
        let each = unnamed_modules.iter().flat_map(|UnnamedModule { module, addresses, .. }| {
            let sides = addresses.iter().zip(["first", "second"]).filter(|(n, _)| **n > 0);
            sides.map(move |(n, which)| {
                format!(
                    "the {which} has no names for {n} of its addresses in {module}, which was rebuilt: a site that only one \
                     has may be there in the other without a name, and is called unknown (the {which}'s own files, or a bundle, name it)"
                )
            })
        });
        each.collect()
    }

    /// By site.
    pub fn by_site(&self) -> Diff {
        let maps = self
            .sides
            .map(|(profile, symbols)| SiteMap::of(profile, symbols));
        let mut diff = Diff {
            total: self.total(),
            ..Diff::default()
        };
        let mut most: HashMap<DiffSite, f64> = HashMap::new();
        let sites = || {
            self.parts.iter().filter_map(|(side, stack, change)| {
                let key = maps[*side].own_of(*stack)?;
                let module = key.module.rsplit('/').next().unwrap_or(&key.module);
                Some((*side, key, self.common_name(*side, module), change))
            })
        };
        let mut homonyms = Homonyms::default();
        for (side, key, module, _) in sites() {
            homonyms.add(side, key, module);
        }
        let mut variants = Variants::default();
        for (side, key, module, _) in sites() {
            variants.add(side, &homonyms.site(key, module), key.file.as_deref());
        }
        let common_sites = variants.common_sites();
        let mut places: HashMap<DiffSite, [Places; 2]> = HashMap::new();
        for (side, key, module, change) in sites() {
            let place = homonyms.site(key, module);
            let place = common_sites.get(&place).cloned().unwrap_or(place);
            if let Some(file) = &key.file {
                let of_sides = places.entry(place.clone()).or_default();
                of_sides[side].insert((file.to_string(), key.line));
            }
            if let (1, Some(file), Some(line)) = (side, &key.file, key.line) {
                let most = most.entry(place.clone()).or_insert(0.0);
                if change.after > *most {
                    *most = change.after;
                    let file = file.to_string();
                    diff.lines.insert(place.clone(), SourceLine { file, line });
                }
            }
            diff.changes.entry(place).or_default().merge(change);
        }
        let places = places.into_iter();
        diff.places = places
            .filter_map(|(site, [before, after])| {
                let of_side = if after.is_empty() { before } else { after };
                Some((site, place_of(&of_side)?))
            })
            .collect();
        let unnamed_modules = self.unnamed_modules();
        let of_module: HashMap<&str, &UnnamedModule> = unnamed_modules
            .iter()
            .map(|unnamed| (&*unnamed.module, unnamed))
            .collect();
        for (place, change) in &mut diff.changes {
            let unnamed = of_module.get(&*place.module);
            change.is_unsure |= unnamed.is_some_and(|unnamed| unnamed.may_hide(place, change));
            change.is_unsure |= self.is_unsure && place.function.starts_with('[');
        }
        diff
    }

    /// The profiles that are compared.
    pub fn profiles(&self) -> [&'a Profile; 2] {
        self.sides.map(|(profile, _)| profile)
    }

    /// Returns true if nothing is left to compare.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Leaves what was allocated under these labels: keys and values.
    pub fn retain_labels(&mut self, labels: &[(String, String)]) {
        let sides = self.sides;
        self.parts.retain(|(side, stack, _)| {
            let stack = sides[*side].0.stacks.get(*stack as usize);
            labels.is_empty() || stack.is_some_and(|stack| stack.labels.have(labels))
        });
    }

    /// Leaves out the stacks that are suppressed. Returns how many each suppression covers, on each
    /// side.
    pub fn retain_unsuppressed(&mut self, suppressions: &Suppressions) -> Vec<[usize; 2]> {
        let of = self
            .sides
            .map(|(profile, symbols)| suppressions.of_stacks(profile, symbols));
        let mut stacks = vec![[0; 2]; suppressions.all().len()];
        self.parts.retain(|(side, stack, _)| {
            let by = of[*side].get(*stack as usize).copied().flatten();
            if let Some(by) = by {
                stacks[by][*side] += 1;
            }
            by.is_none()
        });
        stacks
    }

    /// Returns what a suppression may have left in for want of a name. `stacks` is what
    /// [`retain_unsuppressed`](Self::retain_unsuppressed) returned. The difference is then unsure.
    pub fn doubts_of_suppressions(&mut self, stacks: &[[usize; 2]]) -> Vec<String> {
        let mut unnamed = [0, 0];
        for (side, (profile, symbols)) in self.sides.into_iter().enumerate() {
            let sites = SiteMap::of(profile, symbols);
            let of_side = self.parts.iter().filter(|(of, _, change)| {
                *of == side && (change.before != 0.0 || change.after != 0.0)
            });
            let sites = of_side.filter_map(|(_, stack, _)| sites.own_of(*stack));
            let sites: BTreeSet<_> = sites
                .filter(|site| site.function.starts_with('['))
                .collect();
            unnamed[side] = sites.len();
        }
        let is_two = !std::ptr::eq(self.sides[0].0, self.sides[1].0);
        let mut doubts = Vec::new();
        for (side, which) in ["first", "second"].into_iter().enumerate() {
            let (profile, symbols) = self.sides[side];
            let is_on_other_only = |stacks: &[usize; 2]| stacks[side] == 0 && stacks[1 - side] > 0;
            let of_what = if is_two {
                format!("of the {which}, ")
            } else {
                String::new()
            };
            let why = "a suppression may not match there (`heapprof info` says why)";
            if unnamed[side] > 0 {
                let n = unnamed[side];
                doubts.push(format!("{of_what}{n} sites have no names: {why}"));
            } else if is_two
                && stacks.iter().any(is_on_other_only)
                && Subject::Function.lacks_names(profile, symbols)
            {
                doubts.push(format!("{of_what}not all frames have names: {why}"));
            }
        }
        self.is_unsure |= !doubts.is_empty();
        doubts
    }

    /// By the value of a label, which stands in the place of the function. `by` is a grouping by
    /// label.
    pub fn by_label(&self, by: By) -> Diff {
        let mut diff = Diff {
            total: self.total(),
            ..Diff::default()
        };
        for (side, stack, change) in &self.parts {
            let place = DiffSite {
                function: label_of(self.sides[*side].0, by.name(), *stack),
                module: String::new(),
                file: None,
            };
            diff.changes.entry(place).or_default().merge(change);
        }
        diff
    }

    /// The change of everything.
    pub fn total(&self) -> Change {
        let mut total = Change::default();
        for (_, _, change) in &self.parts {
            total.merge(change);
        }
        total.is_unsure |= self.is_unsure;
        total
    }

    /// By stack, as folded stacks and flame graphs have them.
    pub fn by_stack(&self) -> Paths<Change> {
        let mut namer = Namer::default();
        let mut paths: HashMap<(usize, u32), Option<Box<[u32]>>> = HashMap::new();
        let mut all = Vec::new();
        for (side, stack, change) in &self.parts {
            let path = paths.entry((*side, *stack)).or_insert_with(|| {
                let (profile, symbols) = self.sides[*side];
                let stack = profile.stacks.get(*stack as usize)?;
                Some(namer.path(*side, profile, symbols, stack))
            });
            if let Some(path) = path {
                all.push((path.clone(), *change));
            }
        }
        Paths::of(namer, all, |sum, change| sum.merge(&change))
    }
}

/// A module that was rebuilt between two profiles, and has addresses without a name in at least one
/// of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UnnamedModule {
    /// Without folders.
    module: String,
    /// The name in the first profile.
    before: String,
    /// How many addresses of it have no name, on each side.
    addresses: [u64; 2],
}

impl UnnamedModule {
    /// Returns true if a site of that function in this module, that one side has and the other has
    /// not, may be there under another name: addresses of one build say nothing of another's.
    fn may_hide(&self, place: &DiffSite, change: &Change) -> bool {
        let [has_before, has_after] = [change.before != 0.0, change.after != 0.0];
        let is_address = |name: &str| {
            let rest = place.function.strip_prefix('[');
            let rest = rest.and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.starts_with("+0x"))
        };
        let is_unnamed = is_address(&self.module) || is_address(&self.before);
        let other = match (has_before, has_after) {
            (true, false) => self.addresses[1],
            (false, true) => self.addresses[0],
            _ => 0,
        };
        is_unnamed || other > 0
    }
}

/// The first module of each name, by its place.
fn by_name(modules: &[LoadedModule]) -> HashMap<&str, usize> {
    let mut first = HashMap::new();
    for (index, module) in modules.iter().enumerate() {
        first.entry(module.name()).or_insert(index);
    }
    first
}

/// Why two profiles may not be comparable, in words; the first kind forbids it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparability {
    /// They are of different programs.
    pub programs: Option<String>,
    /// Other things that a reader must know.
    pub remarks: Vec<String>,
    /// Caveats of the two: what their numbers lack, and what a metric does not mean.
    pub caveats: Vec<String>,
    /// True if something is missing from the record of one of the runs.
    pub is_incomplete: bool,
}

impl Comparability {
    /// Returns what differs between two profiles besides their numbers.
    pub fn between(a: &Profile, b: &Profile) -> Comparability {
        let mut comparability = Comparability::default();
        let (of_a, of_b) = (a.run.name(), b.run.name());
        if of_a != of_b && !of_a.is_empty() && !of_b.is_empty() {
            comparability.programs = Some(format!("the first is of {of_a}, the second of {of_b}"));
        }
        if a.run.interval != b.run.interval {
            let interval = |profile: &Profile| match profile.run.interval {
                Some(interval) => format!("{interval} bytes"),
                None => "not stated".into(),
            };
            comparability.remarks.push(format!(
                "sampling intervals differ ({} and {}): errors take that into account, \
                 and that a small site may be seen in one only",
                interval(a),
                interval(b)
            ));
        }
        let seen = |profile: &Profile| {
            profile
                .run
                .intervals_seen
                .filter(|(least, most)| least != most)
        };
        for (profile, which) in [(a, "first"), (b, "second")] {
            if let Some((least, most)) = seen(profile) {
                comparability.remarks.push(format!(
                    "the interval of the {which} changed while it ran ({least} to {most} bytes): errors take that \
                     into account"
                ));
            }
        }
        let others = by_name(&b.modules);
        let mut told = HashSet::new();
        for module in a.modules.iter().filter(|it| it.code.is_none()) {
            let Some(&other) = others.get(module.name()) else {
                continue;
            };
            let other = &b.modules[other];
            let differ = module.build_id != other.build_id && told.insert(module.name());
            if differ && !module.build_id.is_empty() && !other.build_id.is_empty() {
                comparability.remarks.push(format!(
                    "{} was rebuilt in between (build-ids differ): functions are compared by name",
                    module.name()
                ));
            }
        }
        let (of_a, of_b) = (
            a.run.duration_ns as f64 / 1e9,
            b.run.duration_ns as f64 / 1e9,
        );
        let is_longer = of_a > 0.0 && of_b > 0.0 && (of_a / of_b > 1.5 || of_b / of_a > 1.5);
        let shown = [of_a, of_b].map(|seconds| format!("{seconds:.1} s"));
        // Between two runs of a few milliseconds, half of one is no remarkable difference.
        if is_longer && shown[0] != shown[1] {
            comparability.remarks.push(format!(
                "the runs lasted {} and {}: what was allocated differs for that alone",
                shown[0], shown[1]
            ));
        }
        comparability.stopped([a.stopped_ns(), b.stopped_ns()]);
        for (profile, which) in [(a, "first"), (b, "second")] {
            comparability.is_incomplete |= !profile.is_complete();
            let caveats = profile.caveats().into_iter();
            comparability
                .caveats
                .extend(caveats.map(|caveat| format!("of the {which}: {caveat}")));
        }
        for (profile, which) in [(a, "first"), (b, "second")] {
            if profile.precision() == Precision::Stated {
                comparability.remarks.push(format!(
                    "the {which} is a dump that does not state the errors of its lines: no verdicts"
                ));
            }
        }
        comparability
    }

    /// For how long nothing was recorded of the first and of the second.
    pub fn stopped(&mut self, for_ns: [u64; 2]) {
        for (ns, which) in for_ns.into_iter().zip(["first", "second"]) {
            if ns > 0 {
                self.remarks.push(format!(
                    "recording was stopped for {:.3} s of the {which}: what was allocated then is missing",
                    ns as f64 / 1e9
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_of_one_line_is_shown_at_it_and_one_of_several_in_its_file() {
        let words = |places: &[(&str, u32)]| {
            let places = places.iter().map(|&(file, line)| {
                let line = Some(line).filter(|&line| line > 0);
                (file.to_owned(), line)
            });
            place_of(&places.collect()).map(|place| place.to_string())
        };
        assert_eq!(words(&[("a.c", 7)]).as_deref(), Some("a.c:7"));
        assert_eq!(words(&[("a.c", 7), ("a.c", 9)]).as_deref(), Some("a.c"));
        assert_eq!(words(&[("a.c", 0)]).as_deref(), Some("a.c"));
        assert_eq!(words(&[("a.c", 7), ("b.c", 9)]), None);
        assert_eq!(words(&[]), None);
    }
}
