//! Spelling: the known name that a misspelt one probably means.
//!
//! Nothing here allocates: the library asks before the program runs.

/// Longest name that is compared, in bytes.
const LONGEST: usize = 63;
/// Least letters of a word that is cut short, such as `ALLOC`.
const LEAST_OF_WORD: usize = 3;
/// Most edits from a name to the one that it means; in a long name, one of so many letters.
const MOST_EDITS: usize = 2;
const LETTERS_AN_EDIT: usize = 4;

/// Returns the name that is meant: the one whose words behind the beginning are the same, or the
/// one that has all these words and the fewest others, or the one that is reached by the fewest
/// edits. Among names that are equally near, the first one counts. `None`: no name is near.
pub fn nearest_name<'a>(
    misspelt: &[u8],
    names: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let rest = behind_beginning(misspelt);
    let is_of_family = rest.len() < misspelt.len();
    let family = || names.clone().filter(|_| is_of_family);
    let is_same = |name: &&str| letters(behind_beginning(name.as_bytes())).eq(letters(rest));
    let with_words = || {
        let with_all = family().filter(|name| !rest.is_empty() && has_words(name, rest));
        with_all.min_by_key(|name| words(behind_beginning(name.as_bytes())).count())
    };
    let with_edits = || {
        let most = MOST_EDITS.max(misspelt.len() / LETTERS_AN_EDIT);
        let with_edits = names.clone().filter_map(|name| {
            let edits = edits(misspelt, name.as_bytes())?;
            (edits <= most).then_some((edits, name))
        });
        let (_, name) = with_edits.min_by_key(|(edits, _)| *edits)?;
        Some(name)
    };
    (family().find(is_same))
        .or_else(with_words)
        .or_else(with_edits)
}

/// Returns what stands behind `HEAPPROF_`, `HEAPPROFILE`, `HEAP_PROFILE_` and their like. A user
/// who knows the words seldom knows which of these begins the name.
fn behind_beginning(name: &[u8]) -> &[u8] {
    let without = |name, part: &[u8]| <[u8]>::strip_prefix(name, part).unwrap_or(name);
    let Some(rest) = name.strip_prefix(b"HEAP") else {
        return name;
    };
    let Some(rest) = without(rest, b"_").strip_prefix(b"PROF") else {
        return name;
    };
    let rest = match rest.strip_prefix(b"ILE") {
        Some(rest) => without(rest, b"R"),
        None => rest,
    };
    without(rest, b"_")
}

fn words(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|&byte| byte == b'_')
}

/// Yields the letters of all words.
fn letters(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    name.iter().copied().filter(|&byte| byte != b'_')
}

/// Returns true if each word of the misspelt name is one of the name's, or the beginning of one, or
/// a longer form of it.
fn has_words(name: &str, misspelt: &[u8]) -> bool {
    let name = behind_beginning(name.as_bytes());
    words(misspelt).all(|word| {
        words(name).any(|known| {
            let is_long = word.len().min(known.len()) >= LEAST_OF_WORD;
            known == word || is_long && (known.starts_with(word) || word.starts_with(known))
        })
    })
}

/// Returns the number of letters to add, remove or change. `None`: a name is too long.
fn edits(from: &[u8], to: &[u8]) -> Option<usize> {
    if from.len() > LONGEST || to.len() > LONGEST {
        return None;
    }
    // Levenshtein's table, of which one row is kept: edits[i] leads to the first i letters of `to`.
    let mut edits = [0_usize; LONGEST + 1];
    for (i, edit) in edits.iter_mut().enumerate() {
        *edit = i;
    }
    for (row, letter) in from.iter().enumerate() {
        let mut diagonal = edits[0];
        edits[0] = row + 1;
        for (i, wanted) in to.iter().enumerate() {
            let change = diagonal + usize::from(letter != wanted);
            diagonal = edits[i + 1];
            edits[i + 1] = change.min(diagonal + 1).min(edits[i] + 1);
        }
    }
    Some(edits[to.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 9] = [
        "HEAPPROF_SAMPLE_INTERVAL",
        "HEAPPROF_STACK_DEPTH",
        "HEAPPROF_MAX_LOG",
        "HEAPPROF_MEMORY_INTERVAL_MS",
        "HEAPPROF_CONTROL",
        "HEAP_PROFILE_ALLOCATION_INTERVAL",
        "HEAP_PROFILE_INUSE_INTERVAL",
        "HEAP_PROFILE_TIME_INTERVAL",
        "HEAPPROFILE",
    ];

    fn meant(name: &str) -> Option<&'static str> {
        nearest_name(name.as_bytes(), NAMES.into_iter())
    }

    #[test]
    fn a_name_that_lacks_a_word_means_the_one_with_the_fewest_others() {
        assert_eq!(meant("HEAPPROF_INTERVAL"), Some("HEAPPROF_SAMPLE_INTERVAL"));
        assert_eq!(meant("HEAPPROF_DEPTH"), Some("HEAPPROF_STACK_DEPTH"));
        assert_eq!(meant("HEAPPROF_LOG"), Some("HEAPPROF_MAX_LOG"));
        assert_eq!(meant("HEAPPROF_STACKS"), Some("HEAPPROF_STACK_DEPTH"));
        assert_eq!(
            meant("HEAP_PROFILE_ALLOC_INTERVAL"),
            Some("HEAP_PROFILE_ALLOCATION_INTERVAL")
        );
        assert_eq!(
            meant("HEAP_PROFILE_TIME"),
            Some("HEAP_PROFILE_TIME_INTERVAL")
        );
    }

    /// The words count, and not the beginning, which gperftools' names have otherwise.
    #[test]
    fn a_name_with_another_beginning_means_the_one_with_its_words() {
        for beginning in [
            "HEAPPROF_",
            "HEAPPROFILE_",
            "HEAP_PROF_",
            "HEAP_PROFILE_",
            "HEAPPROFILER_",
            "HEAP_PROFILER_",
        ] {
            for (words, name) in [
                ("INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
                ("SAMPLE_INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
                ("TIME_INTERVAL", "HEAP_PROFILE_TIME_INTERVAL"),
                ("MEMORY_INTERVAL", "HEAPPROF_MEMORY_INTERVAL_MS"),
                ("MAXLOG", "HEAPPROF_MAX_LOG"),
                ("", "HEAPPROFILE"),
            ] {
                let misspelt = [beginning, words].concat();
                assert_eq!(meant(&misspelt), Some(name), "{misspelt}");
            }
        }
    }

    #[test]
    fn a_name_with_a_wrong_letter_means_the_nearest_one() {
        assert_eq!(meant("HEAPPROFFILE"), Some("HEAPPROFILE"));
        assert_eq!(meant("HEAPROFILE"), Some("HEAPPROFILE"));
        assert_eq!(meant("HEAPPROF_MAXLOG"), Some("HEAPPROF_MAX_LOG"));
        assert_eq!(
            meant("HEAPPROF_SAMPEL_INTERVAL"),
            Some("HEAPPROF_SAMPLE_INTERVAL")
        );
    }

    #[test]
    fn a_name_that_is_far_from_all_means_none() {
        assert_eq!(meant("HEAPPROF_COLOUR_SCHEME"), None);
        assert_eq!(meant(&"HEAPPROFILE".repeat(9)), None);
        assert_eq!(meant("HEAP"), None);
    }
}
