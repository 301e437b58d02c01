//! Joined mappings: the mappings of all members, as if one process had made them.
//!
//! ```text
//!   addresses   those of member n are moved to n << 48, so no two members' meet
//!   moments     the last one of each member, added up by stack and name
//! ```
//!
//! A member's moment does not say anything of the others. So the joined log has sums, of all
//! members that have not ended. Many members have many moments, so sums are spaced.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;

use heapprof_core::AddressMap;
use heapprof_format::{MappedMemory, MappedPart, MappingChange, Record};

use super::writing::Writing;

/// Most ranges that are kept, as the library keeps them.
const MOST_RANGES: usize = 1 << 16;
/// Most sums that a joined log has, about.
const MOST_SUMS: u64 = 1000;
/// Most parts of a sum. The rest is one part.
const MOST_PARTS: usize = 256;
/// Name of that part.
const REST: &str = "[others]";
/// Bits of an address.
const ADDRESS_BITS: u32 = 48;
/// Number of a thread that is not known.
const NO_THREAD: u32 = u32::MAX;

/// See the module's text. All stacks and times are the joined log's.
pub(super) struct JoinedMappings {
    /// The stack that mapped a range.
    ranges: AddressMap<u32>,
    /// The parts of each member's last moment.
    moments: Vec<Vec<MappedPart>>,
    /// Mapped and resident bytes of all moments together.
    sums: BTreeMap<(Option<u32>, String), [u64; 2]>,
    spacing_ns: u64,
    /// When the last sum was written.
    written_ns: Option<u64>,
    /// True if a moment came behind that.
    has_changed: bool,
}

impl JoinedMappings {
    /// Returns what that many members have, for a joined log of that duration: nothing yet.
    pub(super) fn new(members: usize, duration_ns: u64) -> JoinedMappings {
        JoinedMappings {
            ranges: AddressMap::new(MOST_RANGES),
            moments: vec![Vec::new(); members],
            sums: BTreeMap::new(),
            spacing_ns: duration_ns / MOST_SUMS,
            written_ns: None,
            has_changed: false,
        }
    }

    /// Takes a member's change. Returns it with moved addresses. `None`: the addresses cannot be.
    pub(super) fn change(&mut self, member: usize, change: MappingChange) -> Option<MappingChange> {
        let range = change.start..change.start.checked_add(change.len)?;
        let all = addresses_of(member)?;
        if range.end > all.end - all.start {
            return None; // damage
        }
        let moved = all.start + range.start..all.start + range.end;
        match change.stack {
            Some(stack) => {
                self.ranges.map(moved.clone(), stack);
            }
            None => self.ranges.unmap(moved.clone()),
        }
        Some(MappingChange {
            start: moved.start,
            ..change
        })
    }

    /// Takes the parts of a member's moment.
    pub(super) fn moment(&mut self, member: usize, parts: Vec<MappedPart>) {
        let key = |part: &MappedPart| (part.stack, part.name.clone());
        let before = std::mem::take(&mut self.moments[member]);
        for part in &before {
            if let Some(sums) = self.sums.get_mut(&key(part)) {
                sums[0] = sums[0].saturating_sub(part.mapped);
                sums[1] = sums[1].saturating_sub(part.resident);
            }
        }
        for part in &parts {
            let sums = self.sums.entry(key(part)).or_default();
            sums[0] = sums[0].saturating_add(part.mapped);
            sums[1] = sums[1].saturating_add(part.resident);
        }
        self.sums.retain(|_, sums| *sums != [0, 0]);
        self.moments[member] = parts;
        self.has_changed = true;
    }

    /// Takes the end of a member, and with it of all its mappings. Returns the change, if it had
    /// any.
    pub(super) fn leave(&mut self, member: usize, time_ns: u64) -> Option<MappingChange> {
        if !self.moments[member].is_empty() {
            self.moment(member, Vec::new());
        }
        let all = addresses_of(member)?;
        let mut has_some = false;
        self.ranges
            .divide(all.clone(), &mut |_, stack| has_some |= stack.is_some());
        self.ranges.unmap(all.clone());
        let end = MappingChange {
            time_ns,
            thread: NO_THREAD,
            start: all.start,
            len: all.end - all.start,
            stack: None,
        };
        has_some.then_some(end)
    }

    /// Returns all ranges as changes of that time.
    pub(super) fn all(&self, time_ns: u64) -> Vec<MappingChange> {
        let change = |(range, stack): (Range<u64>, u32)| MappingChange {
            time_ns,
            thread: NO_THREAD,
            start: range.start,
            len: range.end - range.start,
            stack: Some(stack),
        };
        self.ranges.iter().map(change).collect()
    }

    /// Returns the sum of all moments, if one is due at that time, or at the log's end.
    pub(super) fn sum(&mut self, time_ns: u64, is_end: bool) -> Option<MappedMemory> {
        let next_ns = self
            .written_ns
            .map_or(0, |it| it.saturating_add(self.spacing_ns));
        if !self.has_changed || time_ns < next_ns && !is_end {
            return None;
        }
        self.has_changed = false;
        self.written_ns = Some(time_ns);
        let part = |((stack, name), sums): (&(Option<u32>, String), &[u64; 2])| MappedPart {
            stack: *stack,
            name: name.clone(),
            mapped: sums[0],
            resident: sums[1],
        };
        let mut parts: Vec<MappedPart> = self.sums.iter().map(part).collect();
        parts.sort_by_key(|part| std::cmp::Reverse((part.resident, part.mapped)));
        if parts.len() > MOST_PARTS {
            let mut rest = MappedPart {
                name: REST.to_owned(),
                ..MappedPart::default()
            };
            for part in parts.drain(MOST_PARTS - 1..) {
                rest.mapped = rest.mapped.saturating_add(part.mapped);
                rest.resident = rest.resident.saturating_add(part.resident);
            }
            parts.push(rest);
        }
        Some(MappedMemory { time_ns, parts })
    }
}

impl<W: Write> Writing<'_, W> {
    /// Writes a change of the mappings. Those before all logs have detail come at the end of that
    /// time.
    pub(super) fn mapping(
        &mut self,
        index: usize,
        time_ns: u64,
        change: MappingChange,
    ) -> io::Result<()> {
        let member = &self.members[index];
        let stack = change.stack.map(|number| member.stacks.get(&number));
        if stack.is_some_and(|stack| stack.is_none()) {
            return Ok(()); // its own log does not have the stack
        }
        let change = MappingChange {
            time_ns,
            thread: member.thread(change.thread),
            stack: stack.flatten().copied(),
            ..change
        };
        match self.mappings.change(index, change) {
            Some(change) if self.before.is_none() => self.put_mapping(change),
            _ => Ok(()),
        }
    }

    fn put_mapping(&mut self, change: MappingChange) -> io::Result<()> {
        if let Some(stack) = change.stack {
            self.stack(stack)?;
        }
        self.put(&Record::MappingChange(change))
    }

    /// Writes the sum of the mappings, if one is due.
    pub(super) fn mapped_memory(&mut self, time_ns: u64, is_end: bool) -> io::Result<()> {
        if self.before.is_some() {
            return Ok(());
        }
        let Some(sum) = self.mappings.sum(time_ns, is_end) else {
            return Ok(());
        };
        for stack in sum.parts.iter().filter_map(|part| part.stack) {
            self.stack(stack)?;
        }
        self.put(&Record::MappedMemory(sum))
    }

    /// Takes a member's moment.
    pub(super) fn mapped(&mut self, index: usize, moment: MappedMemory) {
        let stacks = &self.members[index].stacks;
        let joined = |number: u32| stacks.get(&number).copied();
        let mut parts = moment.parts;
        for part in &mut parts {
            part.stack = part.stack.and_then(joined);
        }
        self.mappings.moment(index, parts);
    }

    /// Writes the end of all mappings of a process that is over.
    pub(super) fn leave_mappings(&mut self, index: usize, time_ns: u64) -> io::Result<()> {
        match self.mappings.leave(index, time_ns) {
            Some(end) if self.before.is_none() => self.put_mapping(end),
            _ => Ok(()),
        }
    }

    /// Writes all mappings, where all logs have their detail from then on.
    pub(super) fn put_all_mappings(&mut self, time_ns: u64) -> io::Result<()> {
        let mappings = self.mappings.all(time_ns);
        mappings.into_iter().try_for_each(|it| self.put_mapping(it))
    }
}

/// Returns the addresses of a member. `None`: there are too many members.
fn addresses_of(member: usize) -> Option<Range<u64>> {
    let number = u16::try_from(member).ok().filter(|&it| it < u16::MAX)?;
    let start = u64::from(number) << ADDRESS_BITS;
    Some(start..start + (1 << ADDRESS_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(start: u64, len: u64, stack: Option<u32>) -> MappingChange {
        MappingChange {
            time_ns: 1,
            thread: 3,
            start,
            len,
            stack,
        }
    }

    fn part(stack: Option<u32>, mapped: u64, resident: u64) -> MappedPart {
        MappedPart {
            stack,
            name: "[anonymous]".into(),
            mapped,
            resident,
        }
    }

    #[test]
    fn equal_addresses_of_two_members_are_two_mappings() {
        let mut joined = JoinedMappings::new(2, 0);
        for member in [0, 1] {
            assert!(joined.change(member, change(4096, 8192, Some(7))).is_some());
        }
        let moved = joined.change(1, change(4096, 4096, None)).unwrap();
        assert_eq!((moved.start, moved.len), ((1 << 48) + 4096, 4096));
        let ranges: Vec<_> = joined.all(9).iter().map(|it| (it.start, it.len)).collect();
        assert_eq!(ranges, [(4096, 8192), ((1 << 48) + 8192, 4096)]);
        // The end of a member is that of its mappings alone.
        let end = joined.leave(1, 5).unwrap();
        assert_eq!((end.start, end.len, end.stack), (1 << 48, 1 << 48, None));
        assert_eq!(joined.all(9).len(), 1);
        assert_eq!(joined.leave(1, 6), None);
        // Damage, and more members than there are places.
        assert_eq!(joined.change(0, change(1 << 48, 4096, Some(7))), None);
        assert_eq!(joined.change(0, change(u64::MAX, 2, Some(7))), None);
        assert_eq!(joined.change(1 << 16, change(0, 2, Some(7))), None);
    }

    #[test]
    fn the_sum_has_the_last_moment_of_each_member() {
        let mut joined = JoinedMappings::new(2, MOST_SUMS * 100);
        let sum = |joined: &mut JoinedMappings, time_ns| {
            let sum = joined.sum(time_ns, false)?;
            let parts = sum.parts.iter();
            Some(
                parts
                    .map(|it| (it.stack, it.mapped, it.resident))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(sum(&mut joined, 0), None);
        joined.moment(0, vec![part(Some(1), 10, 5), part(None, 3, 3)]);
        assert_eq!(
            sum(&mut joined, 10),
            Some(vec![(Some(1), 10, 5), (None, 3, 3)])
        );
        joined.moment(1, vec![part(Some(1), 100, 50)]);
        joined.moment(0, vec![part(Some(1), 20, 6)]);
        assert_eq!(sum(&mut joined, 50), None, "sums are spaced");
        assert_eq!(sum(&mut joined, 110), Some(vec![(Some(1), 120, 56)]));
        assert_eq!(joined.leave(0, 120), None);
        assert_eq!(
            joined.sum(121, true).unwrap().parts,
            [part(Some(1), 100, 50)]
        );
        assert_eq!(joined.sum(122, true), None, "nothing has changed");
    }
}
