//! Labels: what the program said of the work that a thread did while it allocated, by key.
//!
//! A stack has them: the same frames under other labels are another stack. Stacks share them, since
//! there are more stacks than sets of labels.

use std::sync::Arc;

use heapprof_format::{ANY_LABEL, FOLDED_LABEL};

/// Name of the group of blocks that have no label of a key.
pub const NO_LABEL: &str = "(none)";

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Option<Arc<Vec<(String, String)>>>);

impl Labels {
    /// No labels.
    pub const NONE: Labels = Labels(None);

    /// Returns labels from keys and values. If a key comes twice, its last value counts.
    pub fn new(mut labels: Vec<(String, String)>) -> Labels {
        labels.reverse();
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        labels.dedup_by(|a, b| a.0 == b.0);
        Labels((!labels.is_empty()).then(|| Arc::new(labels)))
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the keys, ascending, and their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        let labels = self.0.iter().flat_map(|labels| labels.iter());
        labels.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the value of a key. If the log does not know the value, because there were too many,
    /// it is [`FOLDED_LABEL`].
    pub fn get(&self, key: &str) -> Option<&str> {
        let of = |key: &str| {
            self.iter()
                .find(|(it, _)| *it == key)
                .map(|(_, value)| value)
        };
        of(key).or_else(|| of(ANY_LABEL).map(|_| FOLDED_LABEL))
    }

    /// Returns the value of a key, or [`NO_LABEL`].
    pub fn value(&self, key: &str) -> &str {
        self.get(key).unwrap_or(NO_LABEL)
    }

    /// Returns true if each of these keys has that value.
    pub fn have(&self, wanted: &[(String, String)]) -> bool {
        wanted.iter().all(|(key, value)| self.value(key) == value)
    }

    /// Returns keys and values as a log has them.
    pub fn to_vec(&self) -> Vec<(String, String)> {
        self.0.as_deref().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> Labels {
        Labels::new(labels.iter().map(|&(k, v)| (k.into(), v.into())).collect())
    }

    #[test]
    fn the_last_value_of_a_key_counts_in_any_order_of_keys() {
        let one = labels(&[("tenant", "a"), ("path", "/"), ("tenant", "b")]);
        assert_eq!(one, labels(&[("tenant", "b"), ("path", "/")]));
        assert_eq!(one.get("tenant"), Some("b"));
        assert_eq!((one.get("x"), one.value("x")), (None, NO_LABEL));
        assert_eq!(labels(&[]), Labels::default());
    }

    #[test]
    fn what_was_too_much_has_a_value_for_each_key() {
        let folded = labels(&[("tenant", "a"), (ANY_LABEL, FOLDED_LABEL)]);
        assert_eq!(folded.value("tenant"), "a");
        assert_eq!(folded.value("path"), FOLDED_LABEL);
    }
}
