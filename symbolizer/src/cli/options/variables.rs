//! Variables: the environment variables of the library and of `heapprof`, for help, manual and
//! misspelt names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use heapprof_core::nearest_name;

/// The variables that the library reads in the program's environment
/// (`preload/src/state/settings.rs`), and `heapprof` in its own.
pub(crate) const LIST: &str = "\
Environment, as without `heapprof run`:
  HEAPPROF_SAMPLE_INTERVAL            bytes between samples on average; 1: all, 0: none [512K]
  HEAPPROFILE                         prefix of all files, or a folder/ for files named for each process;
                                      with it, dumps are written
  HEAPPROF_STACK_DEPTH                most frames of a stack, up to 2048 [512]
  HEAPPROF_MAX_SAMPLES_PER_SEC        a budget, which the interval follows; 0: none [0]
  HEAPPROF_RECORD_OVER                blocks of so many bytes are all recorded; 0: none [0]
  HEAPPROF_LABEL_VALUES               most values of a label; all others are one, (other) [1000]
  HEAPPROF_START                      running, or paused until somebody starts it [running]
  HEAPPROF_CONTROL                    `heapprof ctl`: 1, from the start; 0, never
  HEAPPROF_ALLOCATOR                  which allocator serves the program: jemalloc, that of heapprof, or
                                      program, its own [jemalloc; program if it calls functions that
                                      only its own allocator has]
  HEAPPROF_TAP                        0: allocators inside of the program are not recorded; or
                                      MODULE:malloc=FUNCTION,free=FUNCTION for an unknown one [1]
  HEAPPROF_PYTHON                     0: stacks have no frames of Python functions [1]
  HEAPPROF_FAST_PATH                  0: all allocations through the allocator's own functions
  HEAPPROF_MAX_LOG                    most bytes of log, which then rotates; 0: no bound [0]
  HEAPPROF_EXIT_WAIT_MS               most milliseconds by which the end is delayed [100]
  HEAPPROF_MEMORY_INTERVAL_MS         milliseconds between readings of the memory, see `heapprof rss`;
                                      0: none but those that it asks for [1000]
  HEAPPROF_PAGES                      seconds between readings of blocks' pages, see -m resident; 0: none [0]
  HEAPPROF_ADDRESSES                  1: these readings have addresses, see `heapprof at` [0]
  HEAPPROF_MMAP                       mappings of so many bytes are recorded with stacks; 0: none [64K]
  HEAPPROF_ONLY                       names of programs, with commas: no others are recorded
  HEAPPROF_VERBOSE                    1: a line at start, one at exit, and notices [0]
  HEAP_PROFILE_ALLOCATION_INTERVAL    a dump each time so many bytes were allocated [1G]
  HEAP_PROFILE_DEALLOCATION_INTERVAL  a dump each time so many were freed; 0: none [0]
  HEAP_PROFILE_INUSE_INTERVAL         a dump each so many bytes of growth in use [100M]
  HEAP_PROFILE_TIME_INTERVAL          a dump every so many seconds; 0: none [0]
  HEAPPROFILESIGNAL                   a dump on this signal (12, SIGUSR2)
  HEAPPROF_LIBRARY                    path of libheapprof.so, if it lies elsewhere than beside
                                      heapprof, in ../lib, ../lib64, ../lib/x86_64-linux-gnu or, that
                                      for programs of musl, ../lib/x86_64-linux-musl
  HEAPPROF_PUSH_HEADERS               for `heapprof push`: headers of its requests
  HEAPPROF_PUSH_BASIC_AUTH            for `heapprof push`: user:password
  HEAPPROF_SERVE_TOKEN                for `heapprof serve`: its token
  HEAPPROF_FOLDER                     set by `heapprof run`: where relative paths of files begin
  HEAPPROF_RUN                        set by `heapprof run`: which run a process is of
  HEAPPROF_TOLD                       set by `heapprof run`, which has told misspelt names";

/// Where the meaning of a variable stands.
const BEHIND_NAME: usize = 38;
/// gperftools' variables that change nothing here.
const OF_GPERFTOOLS: [&str; 5] = [
    "HEAP_PROFILE_CLEANUP",
    "HEAP_PROFILE_MMAP",
    "HEAP_PROFILE_MMAP_LOG",
    "HEAP_PROFILE_ONLY_MMAP",
    "HEAPPROFILE_USE_PID",
];

/// Returns each variable with its meaning.
pub(crate) fn entries() -> Vec<(&'static str, String)> {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for line in LIST.lines().skip(1) {
        let (name, meaning) = line.split_at(BEHIND_NAME.min(line.len()));
        match (name.trim(), entries.last_mut()) {
            ("", Some((_, text))) => {
                text.push(' ');
                text.push_str(meaning);
            }
            (name, _) => entries.push((name, meaning.to_owned())),
        }
    }
    entries
}

/// Returns a line for each name that is nearly that of a variable, with the name that is meant.
pub(crate) fn misspelt(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known: Vec<&str> = entries().iter().map(|(name, _)| *name).collect();
    let line = |name: OsString| {
        let bytes = name.as_bytes();
        let is_near = ["HEAPPROF", "HEAP_PROF", "HEAPROF"]
            .iter()
            .any(|near| bytes.starts_with(near.as_bytes()));
        let mut right = known.iter().chain(&OF_GPERFTOOLS);
        if !is_near || right.any(|right| right.as_bytes() == bytes) {
            return None;
        }
        let name = name.to_string_lossy();
        match nearest_name(bytes, known.iter().copied()) {
            Some(meant) => Some(format!(
                "{name} is no setting, and changes nothing; probably meant: {meant}"
            )),
            None if name.starts_with("HEAPPROF_") => {
                Some(format!("{name} is no setting, and changes nothing"))
            }
            None => None,
        }
    };
    names.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_has_a_meaning() {
        let entries = entries();
        assert!(entries.len() > 25, "{entries:?}");
        for (name, meaning) in &entries {
            let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
            assert!(name.chars().all(is_part), "{name}");
            assert!(
                meaning.len() > 10 && !meaning.contains("  "),
                "{name}: {meaning}"
            );
        }
        let (_, library) = entries
            .iter()
            .find(|(name, _)| *name == "HEAPPROF_LIBRARY")
            .unwrap();
        assert!(library.ends_with("x86_64-linux-musl"), "{library}");
    }

    #[test]
    fn a_misspelt_name_is_told_with_the_right_one() {
        let told = |name: &str| misspelt([OsString::from(name)].into_iter());
        for (wrong, right) in [
            ("HEAPPROF_INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
            ("HEAPPROFFILE", "HEAPPROFILE"),
            ("HEAP_PROFILE_INTERVAL", "HEAPPROF_SAMPLE_INTERVAL"),
            ("HEAP_PROFILE", "HEAPPROFILE"),
            ("HEAPPROF_TIME_INTERVAL", "HEAP_PROFILE_TIME_INTERVAL"),
            ("HEAPPROF_SIGNAL", "HEAPPROFILESIGNAL"),
            ("HEAP_PROFILE_INUSE", "HEAP_PROFILE_INUSE_INTERVAL"),
        ] {
            let expected =
                format!("{wrong} is no setting, and changes nothing; probably meant: {right}");
            assert_eq!(told(wrong), [expected]);
        }
        assert_eq!(told("HEAPPROF_COLOUR_SCHEME").len(), 1);
        for (name, _) in entries() {
            assert!(told(name).is_empty(), "{name}");
        }
        for foreign in [
            "HEAP_PROFILE_MMAP",
            "HEAPPROFILE_USE_PID",
            "HEAP_SIZE",
            "HEAPCHECK",
        ] {
            assert!(told(foreign).is_empty(), "{foreign}");
        }
    }
}
