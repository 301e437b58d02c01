//! How much of a profile has names, and how the commands say so.

use crate::common::{
    SERVER_TRUTH, frame, heapprof, server_log, server_profile, server_symbols, stderr, stdout,
    write,
};
use heapprof_symbolizer::resolve::Frame;
use heapprof_symbolizer::{Coverage, CoverageShare, Profile, Symbols};

const ALL: u64 = SERVER_TRUTH[3];

fn share(bytes: u64, named_bytes: u64, lines_bytes: u64) -> CoverageShare {
    CoverageShare {
        bytes,
        named_bytes,
        lines_bytes,
    }
}

/// The server's names and what libc's place has.
fn with_libc(profile: &Profile, libc: Frame) -> Symbols {
    let known = server_symbols(profile);
    let mut frames = Vec::new();
    for stack in &profile.stacks {
        for place in profile.places(stack) {
            let is_libc = profile
                .module_of(place)
                .is_some_and(|m| m.path.contains("libc"));
            let those = if is_libc {
                vec![libc.clone()]
            } else {
                known.frames(place).to_vec()
            };
            frames.push((place, those));
        }
    }
    Symbols::given(profile, frames)
}

/// Every stack of the server begins in libc, whose place has no name.
#[test]
fn a_stack_is_named_when_each_of_its_frames_is() {
    let profile = server_profile(1);
    let unnamed = Coverage::of(&profile, &server_symbols(&profile));
    assert_eq!(unnamed.whole, share(ALL, 0, 0));
    assert_eq!(unnamed.modules[&Some(0)], share(ALL, ALL, ALL));
    assert_eq!(unnamed.modules[&Some(1)], share(ALL, 0, 0));
    assert_eq!(unnamed.worst_first()[0].0, Some(1));

    let without_line = Frame {
        file: None,
        line: None,
        ..frame("__libc_start_main", "", 0, false)
    };
    let named = Coverage::of(&profile, &with_libc(&profile, without_line));
    assert_eq!(named.whole, share(ALL, ALL, 0));
    assert_eq!(named.modules[&Some(1)], share(ALL, ALL, 0));

    let lines = with_libc(
        &profile,
        frame("__libc_start_main", "libc-start.c", 7, false),
    );
    assert_eq!(Coverage::of(&profile, &lines).whole, share(ALL, ALL, ALL));
}

/// The signal handler's two blocks of 64 bytes are in a stack that was too deep.
#[test]
fn cut_stacks_are_counted_in_bytes() {
    let profile = server_profile(1);
    assert_eq!(
        Coverage::of(&profile, &server_symbols(&profile)).cut_bytes,
        128
    );
}

#[test]
fn info_and_symbolize_say_what_is_missing_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let log = write(folder.path(), "a.heaplog", &server_log(1));
    let log = log.to_str().unwrap();

    let info = stdout(&heapprof(&["info", log]));
    assert!(info.contains("Names, by allocated bytes"), "{info}");
    assert!(
        info.contains("0.0% in stacks in which every frame has a name"),
        "{info}"
    );

    let said = stderr(&heapprof(&["symbolize", log]));
    for words in [
        "the stacks of 0.0% of the allocated bytes were cut",
        "0.0% of the allocated bytes are fully named",
        "/bin/server: no name for frames in 100.0% of its bytes",
        "/bin/server was not found",
        "--sysroot",
    ] {
        assert!(said.contains(words), "{words:?} in {said}");
    }
}
