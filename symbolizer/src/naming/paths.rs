//! Paths: stacks as sequences of function names, outermost first. Folded stacks and flame graphs
//! consist of paths.
//!
//! ```text
//!   names   0 grow   1 main   2 push             in order: numbers compare as names do
//!   paths   [1] 32   [1 0] 4096   [1 0 2] 8192   in order: paths that begin alike are together
//! ```
//!
//! Each name is kept once, because the paths of a large program take gigabytes when written out.
//! Equal paths are one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::model::printable::Printable;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;

/// Gives names their numbers, in the order in which they come. Each place is looked at once,
/// because thousands of stacks pass it.
#[derive(Default)]
pub(crate) struct Namer {
    numbers: HashMap<String, u32>,
    /// By profile, if there are several.
    places: HashMap<(usize, Place), Box<[u32]>>,
}

impl Namer {
    /// A stack's path. `side` tells profiles apart.
    pub(crate) fn path(
        &mut self,
        side: usize,
        profile: &Profile,
        symbols: &Symbols,
        stack: &CallStack,
    ) -> Box<[u32]> {
        let places: Vec<Place> = profile.places(stack).collect();
        let mut path = Vec::new();
        for &place in places.iter().rev() {
            let numbers = self.places.entry((side, place)).or_insert_with(|| {
                let frames = symbols.frames(place).iter().rev();
                let names = frames.map(|frame| name(&symbols.function(profile, place, frame)));
                names.map(|name| number(&mut self.numbers, name)).collect()
            });
            path.extend_from_slice(numbers);
        }
        if path.is_empty() {
            path.push(number(&mut self.numbers, "(no stack)".into()));
        }
        path.into()
    }
}

fn number(numbers: &mut HashMap<String, u32>, name: String) -> u32 {
    let next = numbers.len() as u32;
    *numbers.entry(name).or_insert(next)
}

/// A name as it may stand in a folded line, which has no escapes.
fn name(function: &str) -> String {
    let name = Printable(function).to_string().replace(';', ":");
    // An empty frame, or one at whose end a reader would look for the number, would be misread.
    match name.trim() {
        "" => "??".into(),
        name => name.into(),
    }
}

/// See the module's text. `T` is what there is of a path.
#[derive(Debug, Clone)]
pub struct Paths<T> {
    names: Vec<String>,
    paths: Vec<(Box<[u32]>, T)>,
}

impl<T> Paths<T> {
    /// Creates the paths from numbers of that namer, and merges equal ones.
    pub(crate) fn of(
        namer: Namer,
        all: impl IntoIterator<Item = (Box<[u32]>, T)>,
        merge: impl Fn(&mut T, T),
    ) -> Self {
        let mut names: Vec<(String, u32)> = namer.numbers.into_iter().collect();
        names.sort_unstable();
        let mut ranks = vec![0; names.len()];
        for (rank, (_, number)) in names.iter().enumerate() {
            ranks[*number as usize] = rank as u32;
        }
        let mut paths: BTreeMap<Box<[u32]>, T> = BTreeMap::new();
        for (mut path, one) in all {
            for name in &mut path {
                *name = ranks[*name as usize];
            }
            match paths.get_mut(&path) {
                Some(sum) => merge(sum, one),
                None => drop(paths.insert(path, one)),
            }
        }
        Paths {
            names: names.into_iter().map(|(name, _)| name).collect(),
            paths: paths.into_iter().collect(),
        }
    }

    /// Creates the paths from texts as [`text`](Self::text) gives them.
    #[cfg(test)]
    pub(crate) fn of_texts(texts: Vec<(&str, T)>) -> Self {
        let mut namer = Namer::default();
        let mut path = |text: &str| {
            let names = text.split(';');
            names
                .map(|name| number(&mut namer.numbers, name.into()))
                .collect()
        };
        let all: Vec<_> = texts
            .into_iter()
            .map(|(text, one)| (path(text), one))
            .collect();
        Paths::of(namer, all, |_, _| panic!("a path twice"))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// The value of each path.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.paths.iter().map(|(_, one)| one)
    }

    /// The values of the paths in a range, in their order.
    pub(crate) fn values_in(&self, range: Range<usize>) -> impl Iterator<Item = &T> {
        self.paths[range].iter().map(|(_, one)| one)
    }

    /// The name at a depth of the path of that number; empty beyond its end.
    pub(crate) fn name_at(&self, index: usize, depth: usize) -> &str {
        let path = self.paths.get(index);
        let name = path.and_then(|(path, _)| path.get(depth));
        name.map_or("", |&name| &self.names[name as usize])
    }

    /// Each path as a line has it, `;` between its names, and what there is of it.
    pub fn lines(&self) -> impl Iterator<Item = (String, &T)> {
        let text = |path: &[u32]| {
            let names: Vec<&str> = path
                .iter()
                .map(|&name| &*self.names[name as usize])
                .collect();
            names.join(";")
        };
        self.paths.iter().map(move |(path, one)| (text(path), one))
    }

    /// Keeps those of which that holds.
    pub fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.paths.retain(|(_, one)| keeps(one));
    }

    /// Visits each beginning of a path once: the paths that begin so, by their order, and how many
    /// names it has. A longer one before those that it begins with.
    pub(crate) fn each_beginning(&self, mut visit: impl FnMut(Range<usize>, usize)) {
        // For each name of the path at hand: the first path that begins as this one does up to
        // there.
        let mut since: Vec<usize> = Vec::new();
        let mut last: &[u32] = &[];
        for index in 0..=self.paths.len() {
            let path = self.paths.get(index).map_or(&[][..], |(path, _)| path);
            let equal = last.iter().zip(path).take_while(|(a, b)| a == b).count();
            while since.len() > equal {
                let names = since.len();
                visit(since.pop().unwrap_or_default()..index, names);
            }
            since.resize(path.len(), index);
            last = path;
        }
    }
}

impl Paths<i64> {
    /// Those above zero.
    pub(crate) fn above_zero(self) -> Paths<u64> {
        let above = |(path, number)| Some((path, u64::try_from(number).ok().filter(|&n| n > 0)?));
        Paths {
            names: self.names,
            paths: self.paths.into_iter().filter_map(above).collect(),
        }
    }
}
