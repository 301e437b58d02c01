//! Block type: the type of the blocks of each stack.

use std::collections::HashMap;

use crate::model::profile::Profile;
use crate::naming::group::{By, GroupMap};
use crate::naming::symbols::Symbols;
use crate::naming::type_name::UNKNOWN;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockTypes {
    names: Vec<String>,
    of_stack: HashMap<u32, usize>,
}

impl BlockTypes {
    /// Those of a profile.
    pub fn of_profile(profile: &Profile, symbols: &Symbols) -> BlockTypes {
        let map = GroupMap::of(profile, symbols, By::Type);
        let rows = profile.rows.iter().enumerate();
        BlockTypes {
            names: map.names().to_vec(),
            of_stack: rows.map(|(row, it)| (it.stack, map.own(row))).collect(),
        }
    }

    /// The type of the blocks of a stack.
    pub fn of(&self, stack: u32) -> &str {
        let name = self.of_stack.get(&stack).map(|&name| &self.names[name]);
        name.map_or(UNKNOWN, String::as_str)
    }
}
