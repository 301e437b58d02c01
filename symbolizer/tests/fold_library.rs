//! Folded stacks: what an exporter gets of stacks without the inside of libraries, against a naive
//! fold of their names.

use crate::common::{LogBuilder, frame, heapprof, json, named, ok, stderr, write};
use heapprof_symbolizer::export::{Format, Options};
use heapprof_symbolizer::resolve::Frame;
use heapprof_symbolizer::{Profile, Symbols, WantedExtras, fold_library, profile_of_log};
use proptest::prelude::*;

/// The innermost address of all stacks, which is no return address.
const HOOK: u64 = 0x9000;

/// The frames of a stack, outermost first.
fn names(profile: &Profile, symbols: &Symbols, stack: usize) -> Vec<String> {
    let mut names: Vec<String> = profile
        .places(&profile.stacks[stack])
        .flat_map(|place| {
            let frames = symbols.frames(place).iter();
            let names = frames.map(move |frame| symbols.function(profile, place, frame));
            names.collect::<Vec<String>>()
        })
        .collect();
    names.reverse();
    names
}

/// The path with only the first one of the library's frames that call each other.
fn naive(names: &[String]) -> Vec<String> {
    let is_library = |name: &String| name.starts_with("std::");
    let pairs = (0..names.len()).filter(|&n| {
        let is_below = n > 0 && is_library(&names[n - 1]);
        !(is_below && is_library(&names[n]))
    });
    pairs.map(|n| names[n].clone()).collect()
}

proptest! {
    /// A few places, each with frames that are inlined into each other, in any order.
    #[test]
    fn any_stacks_are_folded_as_a_list_of_names(
        places in prop::collection::vec(prop::collection::vec(any::<bool>(), 1..5), 1..8),
        stacks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..10), 1..8),
    ) {
        let address = |place: usize| 0x2001 + 16 * place as u64;
        let mut log = LogBuilder::new(1);
        log.module("/bin/server", 0x1000, 0x100_000);
        for stack in &stacks {
            let frames = stack.iter().map(|it| address(it.index(places.len())));
            let frames: Vec<u64> = [HOOK].into_iter().chain(frames).collect();
            let stack = log.stack(&frames);
            log.alloc(stack, 100);
        }
        let mut profile = profile_of_log(&log.end(), |_| {}).expect("a good log");
        let given = profile.stacks.iter().flat_map(|stack| profile.places(stack).collect::<Vec<_>>());
        let of_place = |avma: u64| -> Vec<Frame> {
            if avma == HOOK {
                return vec![frame("std::hook", "a.cc", 1, false)];
            }
            let place = (avma + 1 - 0x2001) as usize / 16;
            let kinds = places[place].iter().enumerate();
            kinds.map(|(n, is_library)| {
                let name = format!("{}f{place}_{n}", if *is_library { "std::" } else { "" });
                frame(&name, "a.cc", 1, n + 1 < places[place].len())
            }).collect()
        };
        let given: Vec<_> = given.map(|place| (place, of_place(place.avma))).collect();
        let mut symbols = Symbols::given(&profile, given);
        let before: Vec<_> = (0..profile.stacks.len()).map(|n| names(&profile, &symbols, n)).collect();
        let rows = profile.rows.clone();
        fold_library(&mut profile, &mut symbols);
        for (n, before) in before.iter().enumerate() {
            prop_assert_eq!(names(&profile, &symbols, n), naive(before));
        }
        prop_assert_eq!(&profile.rows, &rows);
    }
}

#[test]
fn formats_with_names_have_the_function_that_the_program_calls() {
    let (mut profile, mut symbols) = named(&[
        "main",
        "std::for_each<int*, Visit>(int*, int*, Visit)",
        "Visit::operator()(int)",
        "std::string::_M_create(unsigned long&, unsigned long)",
        "std::allocator<char>::allocate(unsigned long)",
        "operator new(unsigned long)",
        "malloc",
    ]);
    fold_library(&mut profile, &mut symbols);
    // Those that show blocks in time need more of a log than there is here.
    let is_shown =
        |format: &Format| format.has_names() && format.wants() == WantedExtras::default();
    for format in Format::ALL.into_iter().filter(is_shown) {
        let mut out = Vec::new();
        format
            .write(&profile, &symbols, &Options::default(), &mut out)
            .unwrap();
        if format.is_binary() {
            continue;
        }
        let text = String::from_utf8(out).unwrap();
        // Some write `<` otherwise, and CSV has sites alone.
        let is_there = |part: &str| text.contains(part);
        assert!(is_there("Visit"), "{}: {text}", format.name());
        assert!(
            is_there("_M_create") || format == Format::Csv,
            "{}: {text}",
            format.name()
        );
        for inside in ["allocate(", "operator new"] {
            assert!(!is_there(inside), "{}: {inside} in {text}", format.name());
        }
    }
}

#[test]
fn export_and_report_have_the_switch() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x10, 0x1001, 0x2001, 0x3001]);
    log.alloc(stack, 4096);
    let log = write(folder.path(), "s.heaplog", &log.end());
    let map = write(
        folder.path(),
        "perf.map",
        b"10 8 malloc\n1000 10 std::inner\n2000 10 std::outer\n3000 10 main\n",
    );
    let [log, map] = [&log, &map].map(|path| path.to_str().unwrap());
    let folded = |args: &[&str]| {
        let all = ["export", "-f", "folded", log, "--perf-map", map];
        let text = ok(&[&all[..], args].concat());
        let last = text.lines().last().unwrap();
        last.to_owned()
    };
    assert_eq!(folded(&[]), "main;std::outer;std::inner;malloc 4096");
    assert_eq!(folded(&["--fold-library"]), "main;std::outer 4096");
    // Filters see the whole stack.
    let focused = folded(&["--fold-library", "--focus", "inner"]);
    assert_eq!(focused, "main;std::outer 4096");
    let page = folder.path().join("page.html");
    let out = page.to_str().unwrap();
    for (args, expected) in [(&[] as &[&str], true), (&["--fold-library"], false)] {
        ok(&[&["report", log, "--perf-map", map, "-o", out][..], args].concat());
        let page = std::fs::read_to_string(&page).unwrap();
        assert_eq!(page.contains("std::inner"), expected);
        assert!(page.contains("std::outer"));
    }
    let refused = heapprof(&["export", "-f", "jemalloc", log, "--fold-library"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("addresses alone"));
    let document = json(&[
        "export",
        "-f",
        "json",
        log,
        "--perf-map",
        map,
        "--fold-library",
    ]);
    assert_eq!(document["totals"]["in-use-bytes"], 4096);
}
