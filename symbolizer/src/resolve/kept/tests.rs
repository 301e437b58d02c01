//! The bytes of kept names, whole and damaged, and which names count.

use super::*;
use crate::resolve::frame::Name;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::sync::Arc;

fn key(byte: u8) -> ModuleKey {
    ModuleKey::of("/bin/x", &[byte; 20], None).unwrap()
}

fn frame(function: Option<Name>, line: Option<u32>, inlined: bool) -> Frame {
    Frame {
        function: function.map(Arc::new),
        file: line.map(|_| "/src/ü/x.c".into()),
        line,
        column: line.map(|line| line + 7),
        inlined,
    }
}

fn function(name: &str) -> [Frame; 1] {
    [frame(Some(Name::new(name)), None, false)]
}

fn line(name: &str, line: u32) -> [Frame; 1] {
    [frame(Some(Name::new(name)), Some(line), false)]
}

/// One of each kind: inlined, generic, mangled, without a function, and keys of both kinds.
fn names() -> KeptNames {
    let stamp = FileStamp {
        inode: 5,
        size: 6,
        modified_ns: u64::MAX,
    };
    let stamped = ModuleKey::of("/bin/old", &[], Some(stamp)).unwrap();
    let generic = Name::with_source_name("_ZN5alloc3vec8Vec4push17h0E", "push<u8, Global>");
    let long = Name::new(&"x".repeat(1 << 20));
    let mut names = KeptNames::default();
    let chain = [
        frame(Some(generic), Some(3), true),
        frame(None, Some(4), true),
        frame(Some(long), Some(5), false),
    ];
    assert!(names.insert(&key(1), 0x1234, &chain));
    assert!(names.insert(&key(1), u64::MAX, &function("_ZN2ns4drawEi")));
    assert!(names.insert(&key(2), 0x1234, &line("main", 9)));
    assert!(names.insert(&stamped, 0, &function("old")));
    names
}

#[test]
fn what_is_written_is_read_and_is_the_same_bytes() {
    let names = names();
    let bytes = names.encode();
    let read = KeptNames::decode(&bytes).unwrap();
    assert_eq!(read, names);
    assert_eq!(read.encode(), bytes);
    assert_eq!(read.len(), 4);
    let generic = &read.frames_of(&key(1), 0x1234).unwrap()[0];
    let name = generic.function.as_ref().unwrap();
    assert_eq!(name.generic_arguments(), Some("u8, Global"));
}

/// A name that says more counts, and another build's names are never found.
#[test]
fn names_only_grow_better_and_belong_to_one_build() {
    let mut names = KeptNames::default();
    assert!(names.insert(&key(1), 1, &function("f")));
    assert!(!names.insert(&key(1), 1, &function("g")));
    assert!(names.insert(&key(1), 1, &line("f", 3)));
    assert!(!names.insert(&key(1), 1, &function("f")));
    assert!(!names.insert(&key(1), 2, &[]));
    assert_eq!(names.frames_of(&key(1), 1), Some(&line("f", 3)[..]));
    assert_eq!(names.frames_of(&key(2), 1), None);
    assert_eq!(names.frames_of(&key(1), 2), None);
    assert_eq!(ModuleKey::of("/bin/x", &[], None), None);
    assert_eq!(ModuleKey::of("/bin/x", &[0; 65], None), None);
    names.retain(|key| *key != self::key(1));
    assert!(names.is_empty());
}

#[test]
fn damage_is_found_and_never_makes_other_names() {
    let names = names();
    let bytes = names.encode();
    for at in 0..bytes.len() {
        let cut = KeptNames::decode(&bytes[..at]);
        assert!(cut.is_err(), "cut at {at}");
        for bit in [1, 0x80] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            // The time and the system in gzip's header say nothing.
            if let Ok(read) = KeptNames::decode(&flipped) {
                assert_eq!(read, names, "at {at}");
            }
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(KeptNames::decode(&longer), Err(NamesError::Damaged));
    let mut later = bytes;
    later[7] += 1;
    assert_eq!(KeptNames::decode(&later), Err(NamesError::Version));
    assert_eq!(KeptNames::decode(b"HPNAMES"), Err(NamesError::Foreign));
    assert_eq!(KeptNames::decode(b"#!/bin/sh"), Err(NamesError::Foreign));
}

fn file_of(content: &[u8]) -> Vec<u8> {
    let mut file = b"HPNAMES\x01".to_vec();
    let mut gzip = GzEncoder::new(&mut file, Compression::best());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap();
    file
}

/// Whole by its checksum, and written by somebody else.
#[test]
fn hostile_content_is_refused_before_it_takes_memory() {
    let bomb = file_of(&vec![0; 17 << 20]);
    assert!(bomb.len() < 100_000);
    assert_eq!(KeptNames::decode(&bomb), Err(NamesError::TooLarge));
    let words = |numbers: &[u32]| -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        bytes.collect()
    };
    let build_id = u32::from_le_bytes(*b"abcd");
    for content in [
        // Counts without what is counted: strings, names, modules, addresses, frames.
        words(&[u32::MAX]),
        words(&[0, u32::MAX]),
        words(&[0, 0, u32::MAX]),
        words(&[0, 0, 1, 0, 4, build_id, u32::MAX]),
        words(&[0, 0, 1, 0, 4, build_id, 1, 0x10, 0, u32::MAX]),
        // A string longer than the file, one that is no text.
        words(&[1, u32::MAX]),
        words(&[1, 4, u32::MAX, 0, 0]),
        // An unknown key, an empty build-id, one that is too long.
        words(&[0, 0, 1, 7, 0]),
        words(&[0, 0, 1, 0, 0, 0]),
        words(&[0, 0, 1, 0, 65]),
        // A frame whose name, and whose file, there is not.
        [
            words(&[0, 0, 1, 0, 4, build_id, 1, 0x10, 0, 1, 1, 0, 0, 0]),
            vec![0],
        ]
        .concat(),
        [
            words(&[0, 0, 1, 0, 4, build_id, 1, 0x10, 0, 1, 0, 9, 0, 0]),
            vec![0],
        ]
        .concat(),
        // A name whose string there is not; neither inlined nor not.
        [
            words(&[0, 1, 0, 0, 1, 0, 4, build_id, 1, 0x10, 0, 1, 1, 0, 0, 0]),
            vec![0],
        ]
        .concat(),
        [
            words(&[0, 0, 1, 0, 4, build_id, 1, 0x10, 0, 1, 0, 0, 0, 0]),
            vec![2],
        ]
        .concat(),
    ] {
        let read = KeptNames::decode(&file_of(&content));
        assert_eq!(read, Err(NamesError::Damaged), "{content:?}");
    }
    // The same, as it is written.
    let sound = [
        words(&[0, 0, 1, 0, 4, build_id, 1, 0x10, 0, 1, 0, 0, 0, 0]),
        vec![0],
    ]
    .concat();
    assert_eq!(KeptNames::decode(&file_of(&sound)).unwrap().len(), 1);
}

#[test]
fn what_finds_no_room_is_left_out() {
    let mut names = KeptNames::default();
    for svma in 0..1000 {
        names.insert(&key(1), svma, &line(&format!("function_{svma}"), 1));
    }
    let content = |bytes: &[u8]| {
        let mut content = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(&bytes[8..]);
        io::Read::read_to_end(&mut gzip, &mut content).unwrap();
        content.len()
    };
    let bytes = encoding::encode_within(&names, 10_000);
    assert!((5_000..=10_000).contains(&content(&bytes)));
    let read = KeptNames::decode(&bytes).unwrap();
    assert!((100..1000).contains(&read.len()), "{}", read.len());
    let first = read.frames_of(&key(1), 0);
    assert_eq!(first, Some(&line("function_0", 1)[..]));
}

/// A link leads to a file that somebody else chose, and a folder is none.
#[test]
fn a_link_and_a_folder_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // SAFETY: a question without arguments.
    let user = unsafe { libc::geteuid() };
    std::fs::write(at("names"), names().encode()).unwrap();
    std::os::unix::fs::symlink(at("names"), at("link")).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    let opened = KeptFile::open(&at("names"), user).unwrap();
    assert_eq!((opened.names.len(), opened.refused), (4, None));
    for name in ["link", "folder"] {
        let opened = KeptFile::open(&at(name), user).unwrap();
        assert!(
            opened.names.is_empty() && opened.refused.is_some(),
            "{name}"
        );
    }
    assert_eq!(KeptFile::open(&at("none"), user), None);
}
