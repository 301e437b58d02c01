//! Growing names: the names of a profile whose stacks become more. Only places that were never
//! asked for are looked up.

use std::collections::HashSet;

use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;
use crate::resolve::SearchPath;

/// See the module's text.
#[derive(Debug, Default)]
pub struct GrowingNames {
    symbols: Symbols,
    asked: HashSet<Place>,
    /// Stacks whose places were asked for.
    stacks: usize,
    generation: u64,
}

/// Bytes of a place: its frames and, about, what it adds to names.
const PLACE: usize = 320;

impl GrowingNames {
    /// About the bytes that the names have in memory.
    pub(crate) fn bytes(&self) -> u64 {
        (self.asked.len() * PLACE) as u64
    }

    /// The names of all places of the profile. In another generation, numbers of stacks and modules
    /// mean other ones, and the names begin anew.
    pub fn of(&mut self, profile: &Profile, generation: u64, search: &SearchPath) -> &Symbols {
        if self.generation != generation || self.stacks == 0 {
            self.symbols = Symbols::none(profile);
            self.asked = HashSet::new();
            self.stacks = 0;
            self.generation = generation;
        }
        let mut news = Profile {
            run: profile.run.clone(),
            modules: profile.modules.clone(),
            ..Profile::default()
        };
        for stack in profile.stacks.iter().skip(self.stacks) {
            let calls = profile
                .places(stack)
                .filter(|place| self.asked.insert(*place));
            let frames: Vec<u64> = calls.map(|place| place.avma).collect();
            if !frames.is_empty() {
                news.stacks.push(CallStack {
                    interrupted: (0..frames.len() as u32).collect(),
                    frames,
                    time_ns: stack.time_ns,
                    ..CallStack::default()
                });
            }
        }
        self.stacks = profile.stacks.len();
        if !news.stacks.is_empty() {
            self.symbols.absorb(Symbols::of(&news, search));
        }
        &self.symbols
    }
}
