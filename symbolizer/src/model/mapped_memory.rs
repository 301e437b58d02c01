//! Mapped memory: the program's mappings by stack and by name, at the end of a view.

use std::collections::BTreeMap;

use heapprof_core::NumberMap;

/// Key of the label that has a mapping's name, where mappings are shown as blocks.
pub const MAPPING: &str = "mapping";
/// The name of a mapping without a name, as a log has it.
pub(crate) const ANONYMOUS_MAPPING: &str = "[anonymous]";
/// Name of mappings that no reading has seen.
const UNREAD: &str = "[not read yet]";

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mappings {
    /// When the resident bytes and the names were read; `None`: never.
    pub read_ns: Option<u64>,
    /// The lines, in no order.
    pub lines: Vec<MappedLine>,
}

/// Mappings of one stack, or without a stack those of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappedLine {
    /// Index of the stack that mapped them. `None`: they were mapped past the recording.
    pub stack: Option<u32>,
    /// Their name, as the kernel tells it.
    pub name: String,
    /// Mapped bytes.
    pub mapped: u64,
    /// Resident bytes, at the reading.
    pub resident: u64,
}

impl Mappings {
    /// Adds a part of a reading, those with the most resident bytes first. Parts of one stack are
    /// one line, with the first one's name.
    pub(crate) fn add_read(
        &mut self,
        stack: Option<u32>,
        name: String,
        mapped: u64,
        resident: u64,
    ) {
        let is_same = |line: &&mut MappedLine| line.stack == stack;
        let same = self.lines.iter_mut().find(is_same);
        match same.filter(|_| stack.is_some()) {
            Some(line) => {
                line.mapped = line.mapped.saturating_add(mapped);
                line.resident = line.resident.saturating_add(resident);
            }
            None => self.lines.push(MappedLine {
                stack,
                name,
                mapped,
                resident,
            }),
        }
    }

    /// Returns the mapped and the resident bytes of each name, those with the most resident bytes
    /// first.
    pub fn by_name(&self) -> Vec<(&str, [u64; 2])> {
        let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for line in &self.lines {
            let sum = sums.entry(&line.name).or_default();
            sum[0] = sum[0].saturating_add(line.mapped);
            sum[1] = sum[1].saturating_add(line.resident);
        }
        let mut names: Vec<_> = sums.into_iter().collect();
        names.sort_by_key(|(_, [mapped, resident])| std::cmp::Reverse((*resident, *mapped)));
        names
    }

    /// Sets what each stack has mapped. A stack that has nothing mapped has no line. `names` are
    /// those that readings of other times have told.
    pub(crate) fn set_mapped(
        &mut self,
        mapped: &NumberMap<u32, u64>,
        names: &NumberMap<u32, String>,
    ) {
        let mut unread = mapped.clone();
        self.lines.retain_mut(|line| {
            let Some(stack) = line.stack else { return true };
            unread.remove(&stack);
            line.mapped = mapped.get(&stack).copied().unwrap_or(0);
            line.resident = line.resident.min(line.mapped);
            line.mapped > 0
        });
        let mut unread: Vec<_> = unread.into_iter().collect();
        unread.sort_unstable();
        self.lines
            .extend(unread.into_iter().map(|(stack, mapped)| MappedLine {
                stack: Some(stack),
                name: names.get(&stack).map_or(UNREAD, String::as_str).to_owned(),
                mapped,
                resident: 0,
            }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(stack: Option<u32>, name: &str, mapped: u64, resident: u64) -> MappedLine {
        MappedLine {
            stack,
            name: name.into(),
            mapped,
            resident,
        }
    }

    #[test]
    fn a_stack_has_one_line_and_what_has_no_stack_one_for_each_name() {
        let mut mappings = Mappings::default();
        for (stack, name, resident) in [
            (Some(1), "[anonymous]", 50),
            (None, "[heap]", 40),
            (Some(1), "/a", 30),
            (None, "[anonymous]", 20),
            (Some(2), "/b", 10),
        ] {
            mappings.add_read(stack, name.into(), 100, resident);
        }
        let mapped = NumberMap::from_iter([(1, 150), (3, 70), (4, 60)]);
        let names = NumberMap::from_iter([(1, "/old".to_owned()), (4, "/earlier".to_owned())]);
        mappings.set_mapped(&mapped, &names);
        assert_eq!(
            mappings.lines,
            [
                line(Some(1), "[anonymous]", 150, 80),
                line(None, "[heap]", 100, 40),
                line(None, "[anonymous]", 100, 20),
                line(Some(3), UNREAD, 70, 0),
                line(Some(4), "/earlier", 60, 0),
            ]
        );
    }
}
