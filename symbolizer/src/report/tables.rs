//! Tables: the texts and the frames of a page, each once. Others name them by number.

use std::collections::HashMap;

use crate::model::printable::Printable;
use crate::model::profile::{Place, Profile};
use crate::naming::site::SiteKey;
use crate::naming::symbols::Symbols;
use crate::resolve::Frame;

/// Function, file, line and module of a frame. Texts by number; -1 and line 0: unknown.
pub(super) type FrameWords = (i64, i64, u32, i64);

/// See the module's text.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) texts: Vec<String>,
    text_of: HashMap<String, i64>,
    pub(super) frames: Vec<FrameWords>,
    frame_of: HashMap<FrameWords, usize>,
    /// Thousands of stacks pass each place.
    place_of: HashMap<Place, Vec<usize>>,
}

impl Tables {
    pub(super) fn text(&mut self, text: Option<&str>) -> i64 {
        let Some(text) = text else { return -1 };
        let text = Printable(text).to_string();
        *self.text_of.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            self.texts.len() as i64 - 1
        })
    }

    pub(super) fn frame(
        &mut self,
        function: &str,
        file: Option<&str>,
        line: Option<u32>,
        module: Option<&str>,
    ) -> usize {
        let frame = (
            self.text(Some(function)),
            self.text(file),
            line.unwrap_or(0),
            self.text(module),
        );
        *self.frame_of.entry(frame).or_insert_with(|| {
            self.frames.push(frame);
            self.frames.len() - 1
        })
    }

    /// The values of a stack's labels, by key.
    pub(super) fn labels(&mut self, profile: &Profile, keys: &[&str], stack: u32) -> Vec<i64> {
        let labels = &profile.stacks[stack as usize].labels;
        keys.iter()
            .map(|key| self.text(Some(labels.value(key))))
            .collect()
    }

    /// The frame of a site.
    pub(super) fn site(&mut self, site: &SiteKey) -> usize {
        let module = Some(&*site.module).filter(|module| !module.is_empty());
        self.frame(&site.function, site.file.as_deref(), site.line, module)
    }

    /// The frames of a stack, outermost first.
    pub(super) fn stack(&mut self, profile: &Profile, symbols: &Symbols, stack: u32) -> Vec<usize> {
        let mut all = Vec::new();
        for place in profile.places(&profile.stacks[stack as usize]) {
            if !self.place_of.contains_key(&place) {
                let module = profile.module_of(place).map(|module| module.path.as_str());
                let frame = |frame: &Frame| {
                    let function = symbols.function(profile, place, frame);
                    self.frame(&function, frame.file.as_deref(), frame.line, module)
                };
                let those = symbols.frames(place).iter().map(frame).collect();
                self.place_of.insert(place, those);
            }
            all.extend_from_slice(&self.place_of[&place]);
        }
        all.reverse();
        all
    }
}
