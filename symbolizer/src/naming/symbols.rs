//! Symbols: the names of all places of a profile, which `resolve` is asked for once, module by
//! module.
//!
//! A place has one or more frames, innermost inlined function first. A place without a name has a
//! frame without a function, which is shown as module and offset. Names that come with the input (a
//! symbolized dump) are used where the files on this machine have none.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heapprof_format::Code;
use object::{Object, ObjectSegment};

use crate::model::loaded_module::LoadedModule;
use crate::model::merged_address::process_and_address;
use crate::model::profile::{Place, Profile};
use crate::resolve::{
    Frame, Identity, KeptNames, MOST_INLINED, ModuleKey, ModuleQuery, ModuleRef, ModuleReport,
    ModuleSymbols, Name, PerfMapReport, Role, SearchPath, Usable, perf_map, resolve_all,
};

/// See the module's text.
#[derive(Debug, Default)]
pub struct Symbols {
    frames: HashMap<Place, Vec<Frame>>,
    /// By index of the module; modules without an address in any stack were not asked.
    reports: BTreeMap<u32, ModuleReport>,
    /// avma minus svma, by index of the module.
    biases: Vec<u64>,
    outside: u64,
    /// How places outside every module were named; `None` when there are none.
    perf_map: Option<PerfMapReport>,
    /// Below which files were sought.
    sysroot: Option<PathBuf>,
    /// Folders and bundles that the user named: files there are used on the user's word.
    given_roots: Vec<PathBuf>,
}

static UNNAMED: [Frame; 1] = [Frame {
    function: None,
    file: None,
    line: None,
    column: None,
    inlined: false,
}];

impl Symbols {
    /// The names of all places in the profile's stacks.
    pub fn of(profile: &Profile, search: &SearchPath) -> Symbols {
        let mut symbols = Symbols::none(profile);
        symbols.sysroot.clone_from(&search.sysroot);
        let roots = search.sysroot.iter().chain(&search.binary_dirs);
        symbols.given_roots = roots.cloned().collect();
        for (module, bias) in profile.modules.iter().zip(&mut symbols.biases) {
            *bias = module.bias.unwrap_or_else(|| bias_by_file(module, search));
        }

        let mut svmas: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        let mut outside = Vec::new();
        for place in places(profile) {
            if let Some(code) = profile.module_of(place).and_then(|it| it.code.as_deref()) {
                let frames = &mut symbols.frames;
                frames
                    .entry(place)
                    .or_insert_with(|| vec![frame_of_code(code, place.avma)]);
                continue;
            }
            match place.module {
                Some(module) => svmas.entry(module).or_default().push(symbols.svma(place)),
                None => outside.push(place),
            }
        }
        outside.sort_unstable();
        outside.dedup();
        symbols.outside = outside.len() as u64;

        for svmas in svmas.values_mut() {
            svmas.sort_unstable();
            svmas.dedup();
        }
        let asked: Vec<ModuleQuery<'_>> = svmas
            .iter()
            .map(|(&module, svmas)| {
                let module = &profile.modules[module as usize];
                let build_id = (!module.build_id.is_empty()).then_some(&module.build_id[..]);
                let path = Path::new(&module.path);
                ModuleQuery {
                    module: ModuleRef { path, build_id },
                    svmas,
                }
            })
            .collect();
        let answers = resolve_all(&asked, search);
        for (&module, mut answer) in svmas.keys().zip(answers) {
            let loaded = &profile.modules[module as usize];
            if let Some(key) = loaded.key().filter(|_| !search.kept.is_empty()) {
                let mut is_it = !loaded.build_id.is_empty() || is_stamped(loaded, &answer.report);
                for kept in &search.kept {
                    is_it |= kept.complete(&key, is_it, &mut answer);
                }
            }
            symbols.take(module, answer, loaded.is_profiler());
        }
        symbols.name_by_perf_map(profile, &outside, search);
        symbols.name_by_input(profile);
        symbols.name_emergency_pool(profile);
        symbols
    }

    /// No names: all places are shown as module and offset.
    pub fn none(profile: &Profile) -> Symbols {
        let bias = |module: &LoadedModule| module.bias.unwrap_or_else(|| guessed_bias(module));
        Symbols {
            biases: profile.modules.iter().map(bias).collect(),
            ..Symbols::default()
        }
    }

    /// Names that were found elsewhere; for tests, and for those who have other sources.
    pub fn given(
        profile: &Profile,
        frames: impl IntoIterator<Item = (Place, Vec<Frame>)>,
    ) -> Symbols {
        Symbols {
            frames: frames
                .into_iter()
                .filter(|(_, frames)| !frames.is_empty())
                .collect(),
            ..Symbols::none(profile)
        }
    }

    /// Adds the names of further places of the same process, whose list of modules may have grown.
    pub(crate) fn absorb(&mut self, other: Symbols) {
        self.frames.extend(other.frames);
        self.reports.extend(other.reports);
        self.biases = other.biases;
        self.outside += other.outside;
    }

    /// The frames of a place, innermost first; at least one.
    pub fn frames(&self, place: Place) -> &[Frame] {
        self.frames.get(&place).map_or(&UNNAMED, |frames| frames)
    }

    /// A frame's function as people read it, or else its module and offset.
    pub fn function(&self, profile: &Profile, place: Place, frame: &Frame) -> String {
        match &frame.function {
            Some(name) => name.demangled().to_owned(),
            None => self.unnamed(profile, place).to_string(),
        }
    }

    /// How a place without a name is shown.
    pub fn unnamed<'a>(&self, profile: &'a Profile, place: Place) -> Unnamed<'a> {
        match profile.module_of(place) {
            Some(module) => Unnamed {
                module: Some(module.name()),
                pid: None,
                address: self.svma(place),
            },
            None => {
                // Each of several processes has addresses of its own.
                let home = process_and_address(place.avma)
                    .and_then(|(part, avma)| Some((profile.parts.get(part)?, avma)));
                Unnamed {
                    module: None,
                    pid: home.map(|(part, _)| part.run.pid),
                    address: home.map_or(place.avma, |(_, avma)| avma),
                }
            }
        }
    }

    /// The address as the module's file states it.
    pub fn svma(&self, place: Place) -> u64 {
        let bias = place
            .module
            .and_then(|module| self.biases.get(module as usize));
        place.avma.wrapping_sub(bias.copied().unwrap_or(0))
    }

    /// The report on each module that was asked, by index of the module.
    pub fn reports(&self) -> &BTreeMap<u32, ModuleReport> {
        &self.reports
    }

    /// Adds the names of all modules whose files are known to be those that ran. Returns true if
    /// any says more than what `kept` has.
    pub fn keep_in(&self, profile: &Profile, kept: &mut KeptNames) -> bool {
        let keys: HashMap<u32, ModuleKey> = (self.reports.iter())
            .filter_map(|(&index, report)| {
                let module = profile.modules.get(index as usize)?;
                let is_known = report.identity == Identity::Verified || is_stamped(module, report);
                Some((index, module.key().filter(|_| is_known)?))
            })
            .collect();
        let mut is_more = false;
        for (&place, frames) in &self.frames {
            // Names that come with the input stay with it.
            let is_inputs = profile.frames.contains_key(&place.avma) || profile.names.is_some();
            let key = place.module.and_then(|module| keys.get(&module));
            if let Some(key) = key.filter(|_| !is_inputs) {
                is_more |= kept.insert(key, self.svma(place), frames);
            }
        }
        is_more
    }

    /// Places outside every module.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// How places outside every module were named; `None` when there are none.
    pub fn perf_map(&self) -> Option<&PerfMapReport> {
        self.perf_map.as_ref()
    }

    /// Returns true if a file is used on the user's word, who named a folder around it.
    pub(crate) fn is_given(&self, path: &Path) -> bool {
        self.given_roots.iter().any(|root| path.starts_with(root))
    }

    /// A path below the sysroot as the process saw it; any other as it is.
    pub(crate) fn as_seen<'a>(&self, path: &'a Path) -> &'a Path {
        let root = self.sysroot.as_deref();
        root.and_then(|root| path.strip_prefix(root).ok())
            .unwrap_or(path)
    }

    /// Returns how many places were asked for, and how many of these have no name.
    pub fn asked_and_unnamed(&self) -> (u64, u64) {
        let named = self.perf_map.as_ref().map_or(0, |report| report.named);
        let outside = (self.outside, self.outside.saturating_sub(named));
        let add = |sum: (u64, u64), report: &ModuleReport| {
            let quality = &report.quality;
            (sum.0 + quality.asked, sum.1 + quality.unresolved)
        };
        self.reports.values().fold(outside, add)
    }

    /// Takes frames out: `keep` is asked with module, function and source file. A place keeps at
    /// least the frame without a name.
    pub fn retain_frames(
        &mut self,
        profile: &Profile,
        keep: impl Fn(&str, &str, Option<&str>) -> bool,
    ) {
        for (place, frames) in &mut self.frames {
            let module = profile.module_of(*place).map_or("", |m| m.path.as_str());
            frames.retain(|frame| {
                frame
                    .function
                    .as_ref()
                    .is_none_or(|name| keep(module, name.demangled(), frame.file.as_deref()))
            });
        }
        self.frames.retain(|_, frames| !frames.is_empty());
    }

    /// Gives a place these frames, in place of those that it has.
    pub(crate) fn replace_frames(&mut self, place: Place, frames: Vec<Frame>) {
        self.frames.insert(place, frames);
    }

    fn take(&mut self, module: u32, answer: ModuleSymbols, is_ours: bool) {
        let bias = self.biases.get(module as usize).copied().unwrap_or(0);
        for (svma, frames) in answer.iter().filter(|(_, frames)| !frames.is_empty()) {
            let place = Place {
                module: Some(module),
                avma: svma.wrapping_add(bias),
            };
            let frames = match frames {
                [.., entry] if is_ours => vec![entry_point(entry)],
                frames => frames.to_vec(),
            };
            self.frames.insert(place, frames);
        }
        self.reports.insert(module, answer.report);
    }

    /// Names code that was made at run time.
    fn name_by_perf_map(&mut self, profile: &Profile, outside: &[Place], search: &SearchPath) {
        if outside.is_empty() {
            return;
        }
        if !profile.parts.is_empty() {
            return self.name_by_perf_maps(profile, outside, search);
        }
        let avmas: Vec<u64> = outside.iter().map(|place| place.avma).collect();
        let process = perf_map::Process {
            pid: profile.run.pid,
            start_wall_ns: profile.run.start_wall_ns,
        };
        let (frames, report) = perf_map::resolve(&avmas, process, search);
        for (avma, frame) in frames {
            self.frames
                .insert(Place { module: None, avma }, vec![frame]);
        }
        self.perf_map = Some(report);
    }

    /// Names code of several processes by their maps, one for each.
    fn name_by_perf_maps(&mut self, profile: &Profile, outside: &[Place], search: &SearchPath) {
        let mut homes: BTreeMap<usize, Vec<(u64, Place)>> = BTreeMap::new();
        for &place in outside {
            if let Some((part, avma)) = process_and_address(place.avma) {
                homes.entry(part).or_default().push((avma, place));
            }
        }
        let mut sum = PerfMapReport::default();
        for (part, places) in homes {
            let Some(part) = profile.parts.get(part) else {
                continue;
            };
            let process = perf_map::Process {
                pid: part.run.pid,
                start_wall_ns: part.run.start_wall_ns,
            };
            let avmas: Vec<u64> = places.iter().map(|(avma, _)| *avma).collect();
            let (frames, report) = perf_map::resolve(&avmas, process, search);
            let place_of: HashMap<u64, Place> = places.into_iter().collect();
            for (avma, frame) in frames {
                if let Some(&place) = place_of.get(&avma) {
                    self.frames.insert(place, vec![frame]);
                }
            }
            sum.tried.extend(report.tried);
            sum.used.extend(report.used);
            sum.asked += report.asked;
            sum.named += report.named;
            sum.ambiguous += report.ambiguous;
        }
        self.perf_map = Some(sum);
    }

    fn name_by_input(&mut self, profile: &Profile) {
        if !profile.frames.is_empty() {
            // They were found where the program ran, lines and all; what is found here is no
            // better.
            for place in places(profile) {
                if let Some(frames) = profile.frames.get(&place.avma) {
                    self.frames.insert(place, frames.clone());
                }
            }
        }
        let Some(names) = &profile.names else { return };
        let by_address: HashMap<u64, &Vec<String>> = names
            .names
            .iter()
            .map(|(address, names)| (*address, names))
            .collect();
        for place in places(profile) {
            let is_named = |frames: &Vec<Frame>| frames.iter().any(|f| f.function.is_some());
            if self.frames.get(&place).is_some_and(is_named) {
                continue;
            }
            // Some write a name for the call, some for the return address behind it.
            let found = by_address.get(&place.avma);
            let Some(names) = found.or_else(|| by_address.get(&(place.avma.wrapping_add(1))))
            else {
                continue;
            };
            // Outermost first in the file; the outermost is the one that was not inlined.
            let frame = |name: &&String, inlined| Frame {
                function: Some(Arc::new(Name::new(name))),
                inlined,
                ..UNNAMED[0].clone()
            };
            let mut names = names.iter().filter(|name| !name.starts_with("0x"));
            let physical = names.next();
            let mut innermost_first = names.rev();
            let inlined = innermost_first.by_ref().take(MOST_INLINED);
            let mut frames: Vec<Frame> = inlined.map(|name| frame(&name, true)).collect();
            frames.extend(innermost_first.next().map(|_| Frame::left_out()));
            frames.extend(physical.map(|name| frame(&name, false)));
            if !frames.is_empty() {
                self.frames.insert(place, frames);
            }
        }
    }
}

/// The frame of an interpreter's function, at one of its instructions.
fn frame_of_code(code: &Code, avma: u64) -> Frame {
    let text = |text: &str| (!text.is_empty()).then_some(text).map(Arc::from);
    Frame {
        function: (!code.name.is_empty()).then(|| Arc::new(Name::of_source(&code.name))),
        file: text(&code.file),
        line: code.line_at(avma),
        column: None,
        inlined: false,
    }
}

/// The allocation function that was called: what is inlined into it is our own business, and of its
/// several names (`malloc`, `__libc_malloc`) people know one.
fn entry_point(frame: &Frame) -> Frame {
    let known = frame
        .function
        .as_ref()
        .and_then(|name| name.raw().strip_prefix("__libc_"));
    Frame {
        function: match known {
            Some(known) => Some(Arc::new(Name::new(known))),
            None => frame.function.clone(),
        },
        inlined: false,
        ..frame.clone()
    }
}

/// A place without a name: `[libc.so.6+0x1234]`, or outside every module `[0x7f0012345678]`, and
/// where several processes are added up `[pid 4711 0x7f0012345678]`.
#[derive(Debug, Clone, Copy)]
pub struct Unnamed<'a> {
    module: Option<&'a str>,
    pid: Option<u32>,
    address: u64,
}

impl fmt::Display for Unnamed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.module, self.pid) {
            (Some(module), _) => write!(f, "[{module}+{:#x}]", self.address),
            (None, Some(pid)) => write!(f, "[pid {pid} {:#x}]", self.address),
            (None, None) => write!(f, "[{:#x}]", self.address),
        }
    }
}

fn places(profile: &Profile) -> impl Iterator<Item = Place> + '_ {
    profile
        .stacks
        .iter()
        .flat_map(|stack| profile.places(stack))
}

/// Returns true if the file that gave names has the stamp of the one that ran.
fn is_stamped(module: &LoadedModule, report: &ModuleReport) -> bool {
    let mut used = report.opened();
    let binary = used.find_map(|(path, role)| (role == Role::Binary).then_some(path));
    let file = binary.and_then(|path| Usable::open(path).ok());
    let stamp = module.stamp.as_ref();
    file.is_some_and(|file| stamp.is_some_and(|stamp| file.has_stamp(stamp)))
}

/// The bias of a module of a dump, from the program headers of its file: mappings say where a part
/// of the file is, the headers what address it states for itself.
fn bias_by_file(module: &LoadedModule, search: &SearchPath) -> u64 {
    let build_id = (!module.build_id.is_empty()).then_some(&module.build_id[..]);
    let file = Usable::binary(Path::new(&module.path), build_id, search);
    file.and_then(|file| bias_by_headers(module, &file.object()?))
        .unwrap_or_else(|| guessed_bias(module))
}

fn bias_by_headers(module: &LoadedModule, object: &object::File<'_>) -> Option<u64> {
    let code = module
        .segments
        .iter()
        .find(|segment| segment.flags & 1 != 0)?;
    // Only segments with code: a page of the file that holds the end of one segment and the start
    // of the next is mapped for both, at different addresses.
    let mut executable = object.segments().filter(|segment| {
        matches!(segment.flags(), object::SegmentFlags::Elf { p_flags, .. } if p_flags.0 & 1 != 0)
    });
    executable.find_map(|segment| {
        let (offset, len) = segment.file_range();
        let within = offset % 4096;
        let (page_offset, page_address) = (offset - within, segment.address().wrapping_sub(within));
        let covers = (page_offset..offset.saturating_add(len)).contains(&code.file_offset);
        let svma = page_address.wrapping_add(code.file_offset.wrapping_sub(page_offset));
        covers.then(|| code.start.wrapping_sub(svma))
    })
}

/// Without its file: most are linked at 0, and programs at a fixed address state where they are.
fn guessed_bias(module: &LoadedModule) -> u64 {
    const FIXED: u64 = 0x40_0000;
    match module.segments.first() {
        Some(segment) if segment.start.wrapping_sub(segment.file_offset) == FIXED => 0,
        Some(segment) => segment.start.wrapping_sub(segment.file_offset),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_format::Segment;

    fn named(name: &str, inlined: bool) -> Frame {
        Frame {
            function: Some(Arc::new(Name::new(name))),
            inlined,
            ..UNNAMED[0].clone()
        }
    }

    #[test]
    fn our_own_entry_points_have_the_name_that_people_know() {
        let name = |name: &str| {
            entry_point(&named(name, false))
                .function
                .map(|n| n.raw().to_owned())
        };
        assert_eq!(name("__libc_malloc").as_deref(), Some("malloc"));
        assert_eq!(name("posix_memalign").as_deref(), Some("posix_memalign"));
    }

    #[test]
    fn a_place_without_a_name_is_its_module_and_offset() {
        let mut profile = Profile::default();
        profile.modules.push(LoadedModule {
            path: "/lib/libx.so.1".into(),
            bias: Some(0x7000),
            segments: vec![Segment {
                start: 0x8000,
                len: 0x1000,
                file_offset: 0,
                flags: 5,
            }],
            ..LoadedModule::default()
        });
        let symbols = Symbols::none(&profile);
        let shown = |avma| {
            let place = profile.place(avma, 0);
            symbols.function(&profile, place, &symbols.frames(place)[0])
        };
        assert_eq!(shown(0x8123), "[libx.so.1+0x1123]");
        assert_eq!(shown(0x123), "[0x123]");
    }

    /// A dump does not state the bias; without the file it is guessed from where the file begins.
    #[test]
    fn a_program_at_a_fixed_address_has_no_bias() {
        let module = |start, file_offset| LoadedModule {
            segments: vec![Segment {
                start,
                len: 0x1000,
                file_offset,
                flags: 5,
            }],
            ..LoadedModule::default()
        };
        assert_eq!(guessed_bias(&module(0x40_1000, 0x1000)), 0);
        assert_eq!(
            guessed_bias(&module(0x5555_5555_6000, 0x1000)),
            0x5555_5555_5000
        );
    }
}
