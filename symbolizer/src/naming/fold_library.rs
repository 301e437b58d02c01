//! Folding: stacks without the frames inside standard libraries and allocators.
//!
//! The outermost one of frames there that call each other stays: the function that the program
//! calls. The tree shows stacks so, and formats for other programs can have them so.
//!
//! ```text
//!   main  std::for_each  main::{lambda}  std::vector::push_back  std::allocator  operator new
//!   main  std::for_each  main::{lambda}  std::vector::push_back
//! ```
//!
//! Formats take frames by place. A place whose outermost frames are the library's has fewer frames
//! below such a frame than below another one, so it becomes two places. The second one is the byte
//! before, which belongs to the same call instruction.

use std::collections::{HashMap, HashSet};

use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::site::is_library_code;
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// Keeps of a path, outermost first, the elements that are shown: all but library code below
/// library code, unless they are wanted.
pub(crate) fn fold<T>(
    path: &mut Vec<T>,
    is_library_code: impl Fn(&T) -> bool,
    is_wanted: impl Fn(&T) -> bool,
) {
    let mut is_inside = false;
    path.retain(|step| {
        let is_library_code = is_library_code(step);
        let is_below = std::mem::replace(&mut is_inside, is_library_code);
        !(is_below && is_library_code) || is_wanted(step)
    });
}

/// A place, as its caller decides.
#[derive(Debug, Clone, Copy)]
struct Folded {
    /// The place below a frame of the program; it always has a frame.
    below_program: Place,
    /// The place below a frame of the library, if it has a frame there.
    below_library: Option<Place>,
    /// True if the innermost frame is the library's.
    ends_inside: bool,
}

/// Folds the stacks of a profile. Numbers stay as they are.
pub fn fold_library(profile: &mut Profile, symbols: &mut Symbols) {
    let mut taken: HashSet<Place> = HashSet::new();
    for stack in &profile.stacks {
        taken.extend(profile.places(stack));
    }
    let mut folded: HashMap<Place, Folded> = HashMap::new();
    let mut frames_of: HashMap<Place, Vec<Frame>> = HashMap::new();
    let mut stacks = Vec::with_capacity(profile.stacks.len());
    for stack in &profile.stacks {
        let places: Vec<Place> = profile.places(stack).collect();
        let mut is_inside = false;
        let mut kept = Vec::with_capacity(places.len());
        for (depth, &place) in places.iter().enumerate().rev() {
            let it = *folded.entry(place).or_insert_with(|| {
                folded_place(profile, symbols, place, &mut taken, &mut frames_of)
            });
            let shown = match is_inside {
                true => it.below_library,
                false => Some(it.below_program),
            };
            kept.extend(shown.map(|place| (depth, place)));
            is_inside = it.ends_inside;
        }
        kept.reverse();
        stacks.push(with_places(stack, &places, &kept));
    }
    profile.stacks = stacks;
    for (place, frames) in frames_of {
        symbols.replace_frames(place, frames);
    }
}

fn folded_place(
    profile: &Profile,
    symbols: &Symbols,
    place: Place,
    taken: &mut HashSet<Place>,
    frames_of: &mut HashMap<Place, Vec<Frame>>,
) -> Folded {
    let module = profile.module_of(place);
    let all: Vec<(&Frame, bool)> = (symbols.frames(place).iter().rev())
        .map(|frame| {
            let function = symbols.function(profile, place, frame);
            (
                frame,
                is_library_code(module, &function, frame.file.as_deref()),
            )
        })
        .collect();
    let shown = |below_library: bool| -> Vec<Frame> {
        let mut path: Vec<(Option<&Frame>, bool)> = Vec::new();
        path.extend(below_library.then_some((None, true)));
        path.extend(
            all.iter()
                .map(|&(frame, is_library_code)| (Some(frame), is_library_code)),
        );
        fold(
            &mut path,
            |(_, is_library_code)| *is_library_code,
            |_| false,
        );
        let frames = path.into_iter().rev().filter_map(|(frame, _)| frame);
        frames.cloned().collect()
    };
    let (program, library) = (shown(false), shown(true));
    let below_library = match library.len() {
        0 => None,
        _ if library == program => Some(place),
        // Without a second place it has a frame too many.
        _ => second_place(profile, place, taken).or(Some(place)),
    };
    if let Some(second) = below_library.filter(|second| *second != place) {
        frames_of.insert(second, library);
    }
    if program.len() < all.len() {
        frames_of.insert(place, program);
    }
    Folded {
        below_program: place,
        below_library,
        ends_inside: all
            .last()
            .is_some_and(|(_, is_library_code)| *is_library_code),
    }
}

/// The byte before, if no stack has it and it lies in the same module.
fn second_place(profile: &Profile, place: Place, taken: &mut HashSet<Place>) -> Option<Place> {
    let second = Place {
        avma: place.avma.checked_sub(1)?,
        ..place
    };
    let module = profile.module_of(place);
    let is_inside = module.is_none_or(|module| module.contains(second.avma));
    (is_inside && taken.insert(second)).then_some(second)
}

/// The stack with these places alone. `kept` says how deep each was.
fn with_places(stack: &CallStack, places: &[Place], kept: &[(usize, Place)]) -> CallStack {
    let is_same = kept.len() == places.len() && kept.iter().zip(places).all(|(a, b)| a.1 == *b);
    if is_same {
        return stack.clone();
    }
    CallStack {
        interrupted: (0..kept.len() as u32).collect(),
        frames: kept.iter().map(|(_, place)| place.avma).collect(),
        begins_with_ours: stack.begins_with_ours && kept.first().is_some_and(|it| it.0 == 0),
        ..stack.clone()
    }
}
