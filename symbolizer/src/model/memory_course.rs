//! Memory course: numbers of the readings of the memory, over the time of a run.

use heapprof_format::{MemoryField as Field, MemoryReading};

/// Most moments that are kept. Beyond that, every second one is left out, and so on.
const MOST: usize = 512;

/// The numbers of a reading. `None`: it does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryMoment {
    /// When it was taken.
    pub time_ns: u64,
    /// Resident bytes that are in no block of malloc: mappings and shared memory.
    pub mappings: Option<u64>,
    /// Address space.
    pub address_space: Option<u64>,
    /// Memory of the cgroup that the kernel cannot take back.
    pub cgroup: Option<u64>,
}

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryCourse {
    moments: Vec<MemoryMoment>,
    /// Readings so far.
    readings: u64,
    /// Readings that are left out behind each moment.
    left_out: u64,
}

impl MemoryMoment {
    fn of(reading: &MemoryReading) -> MemoryMoment {
        let get = |field| reading.get(field);
        // The blocks of the program's own allocator lie in mappings that are not recorded.
        let others = match get(Field::HeapActive) {
            Some(_) => get(Field::MappedUnrecorded),
            None => Some(0),
        };
        let shared = get(Field::Shared).unwrap_or(0);
        let shared = shared.saturating_sub(get(Field::OwnShared).unwrap_or(0));
        let mappings = get(Field::Mapped).zip(others);
        MemoryMoment {
            time_ns: reading.time_ns,
            mappings: mappings
                .map(|(recorded, others)| recorded.saturating_add(others).saturating_add(shared)),
            address_space: get(Field::Virtual),
            cgroup: reading.cgroup_held(),
        }
    }
}

impl MemoryCourse {
    /// Adds the next reading.
    pub(crate) fn add(&mut self, reading: &MemoryReading) {
        if self.readings.is_multiple_of(self.left_out + 1) {
            self.moments.push(MemoryMoment::of(reading));
        }
        self.readings += 1;
        if self.moments.len() >= MOST {
            let mut place = 0usize..;
            self.moments
                .retain(|_| place.next().is_some_and(|it| it.is_multiple_of(2)));
            self.left_out = 2 * self.left_out + 1;
        }
    }

    /// Returns the moments, in order.
    pub fn moments(&self) -> &[MemoryMoment] {
        &self.moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_moments_of_all_its_time() {
        let mut course = MemoryCourse::default();
        for second in 0..10_000 {
            let mut reading = MemoryReading::at(second);
            reading.set(Field::Virtual, second);
            course.add(&reading);
        }
        let moments = course.moments();
        assert!(
            (MOST / 2..MOST).contains(&moments.len()),
            "{}",
            moments.len()
        );
        let steps: Vec<u64> = moments
            .windows(2)
            .map(|it| it[1].time_ns - it[0].time_ns)
            .collect();
        assert!(steps.iter().all(|&step| step == steps[0]), "{steps:?}");
        assert_eq!(moments[0].address_space, Some(0));
        assert!(moments[moments.len() - 1].time_ns > 9_900);
    }

    #[test]
    fn blocks_of_the_programs_own_allocator_are_no_mappings() {
        let mut reading = MemoryReading::at(0);
        reading.set(Field::Mapped, 10);
        reading.set(Field::MappedUnrecorded, 100);
        reading.set(Field::Shared, 7);
        reading.set(Field::OwnShared, 2);
        assert_eq!(MemoryMoment::of(&reading).mappings, Some(15));
        reading.set(Field::HeapActive, 50);
        assert_eq!(MemoryMoment::of(&reading).mappings, Some(115));
        assert_eq!(MemoryMoment::of(&MemoryReading::at(0)).mappings, None);
        // A log may claim any number.
        reading.set(Field::Mapped, u64::MAX);
        assert_eq!(MemoryMoment::of(&reading).mappings, Some(u64::MAX));
    }
}
