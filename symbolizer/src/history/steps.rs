//! Steps of a stack's course, of which those without an event take no memory: most stacks of a long
//! run have events in few of its steps.

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps<T> {
    /// Equal steps in a row, with their end: the number of the next step. In order of time.
    runs: Vec<(u32, T)>,
}

impl<T> Default for Steps<T> {
    fn default() -> Self {
        Steps { runs: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Steps<T> {
    /// Returns the number of steps.
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |run| run.0 as usize)
    }

    /// Returns true if there is no step.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the steps.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut begin = 0;
        self.runs.iter().flat_map(move |(end, step)| {
            let count = end - begin;
            begin = *end;
            std::iter::repeat_n(step, count as usize)
        })
    }

    /// Adds copies of a step until there are so many.
    pub(super) fn extend_to(&mut self, len: usize, step: T) {
        let (had, len) = (self.len(), len as u32);
        if had >= len as usize {
            return;
        }
        match self.runs.last_mut().filter(|last| last.1 == step) {
            Some(last) => last.0 = len,
            None => self.runs.push((len, step)),
        }
    }

    /// Returns a step, which becomes one of its own. It must be there.
    #[inline]
    pub(super) fn at(&mut self, index: usize) -> &mut T {
        // Runs of one step each, up to that step or altogether.
        let is_own = |run: &(u32, T)| run.0 as usize == index + 1;
        let is_after = |run: &(u32, T)| run.0 as usize == index;
        if self.runs.get(index).is_some_and(is_own) {
            return &mut self.runs[index].1;
        }
        // Most events are in the last step.
        if let [.., before, last] = &self.runs[..]
            && is_after(before)
            && is_own(last)
        {
            let last = self.runs.len() - 1;
            return &mut self.runs[last].1;
        }
        self.divided_at(index)
    }

    #[inline(never)]
    fn divided_at(&mut self, index: usize) -> &mut T {
        let index = index as u32;
        let mut run = self.runs.len() - 1;
        let begin_of = |runs: &[(u32, T)], run: usize| match run {
            0 => 0,
            _ => runs[run - 1].0,
        };
        // Events come in order, but for a few.
        if begin_of(&self.runs, run) > index {
            run = self.runs.partition_point(|run| run.0 <= index);
        }
        let (end, step) = self.runs[run];
        if end > index + 1 {
            self.runs[run].0 = index + 1;
            self.runs.insert(run + 1, (end, step));
        }
        if begin_of(&self.runs, run) < index {
            self.runs.insert(run, (index, step));
            run += 1;
        }
        // With a run for every other step, the number of a step is to be the place of its run.
        if 2 * self.runs.len() >= self.len() {
            self.divide_all();
            run = index as usize;
        }
        &mut self.runs[run].1
    }

    /// Makes each step a run of its own.
    fn divide_all(&mut self) {
        let steps = self.iter().zip(1..);
        self.runs = steps.map(|(step, end)| (end, *step)).collect();
    }

    /// Makes one step of each two. `merge` adds the second one to the first one.
    pub(super) fn merge_pairs(&mut self, merge: impl Fn(&mut T, &T)) {
        let mut merged = Steps::default();
        {
            let mut steps = self.iter();
            let mut len = 0;
            while let Some(&(mut step)) = steps.next() {
                if let Some(second) = steps.next() {
                    merge(&mut step, second);
                }
                len += 1;
                merged.extend_to(len, step);
            }
        }
        *self = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of all steps.
        #[test]
        fn they_are_a_list(changes in prop::collection::vec((0u8..4, 0usize..40, 0u8..3), 0..60)) {
            let (mut steps, mut list) = (Steps::<u32>::default(), Vec::new());
            for (kind, index, high) in changes {
                let new = u32::from(high);
                match kind {
                    0 => {
                        steps.extend_to(index, new);
                        if index > list.len() {
                            list.resize(index, new);
                        }
                    }
                    1 if list.len() > 20 => {
                        let merge = |first: &mut u32, second: &u32| *first += second;
                        steps.merge_pairs(merge);
                        list = list
                            .chunks(2)
                            .map(|pair| pair.iter().sum())
                            .collect();
                    }
                    _ if index < list.len() => {
                        *steps.at(index) += new;
                        list[index] += new;
                    }
                    _ => {}
                }
                prop_assert_eq!(steps.len(), list.len());
                prop_assert_eq!(steps.iter().copied().collect::<Vec<_>>(), list.clone());
            }
        }
    }

    #[test]
    fn steps_without_an_event_take_no_memory() {
        let mut steps = Steps::default();
        steps.extend_to(100, 1);
        *steps.at(99) = 2;
        steps.extend_to(128, 2);
        assert_eq!((steps.len(), steps.runs.len()), (128, 2));
    }
}
