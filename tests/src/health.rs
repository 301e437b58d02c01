//! Health: whether the samples stand for the bytes that threads have counted.

use heapprof_symbolizer::{Health, Profile};

/// The part of the tolerance that is allowed. By chance, once in a thousand runs the difference
/// exceeds the tolerance. It exceeds half as much again once in 100,000.
const ALLOWED: f64 = 1.5;

/// Asserts that the samples stand for the bytes that threads have counted, but for chance.
///
/// # Panics
/// If they do not, or if there is no count.
#[track_caller]
pub fn assert_health(profile: &Profile, what: &str) -> Health {
    let health = Health::of(profile).expect("a count");
    let difference = (health.samples - health.counted).abs();
    assert!(
        difference <= ALLOWED * health.tolerance,
        "{what}: {health:?}"
    );
    health
}
