//! `heapprof at`: the blocks that held an address, from readings of pages with addresses.

use std::collections::BTreeMap;
use std::path::Path;

use heapprof_format::{
    Alloc, Checkpoint, Encoder, FILE_HEADER, FORKED_AT, Free, PARENT_LOG, PageReading,
    PagesOfBlock, Record, Slab, Touch,
};
use heapprof_symbolizer::{AddressBlock, HeldAddress, search_addresses};
use proptest::prelude::*;

use crate::common::encoded;
use crate::common::history::S;
use crate::common::{LogBuilder, heapprof, json, ok, stderr, write};
use crate::json_documents::are_documented_but;

/// Where the blocks of these tests lie: in slabs of one page with 36 places of 112 bytes.
const BASE: u64 = 0x7f00_0000_1000;

fn alloc(log: &mut LogBuilder, id: u64, thread: u32, size: u64) {
    log.record(|time_ns| {
        Record::Alloc(Alloc {
            time_ns,
            thread,
            id,
            stack: (id % 2) as u32,
            size,
            slack: 112 - size,
            interval: 1,
        })
    });
}

fn free(log: &mut LogBuilder, id: u64, thread: u32) {
    log.record(|time_ns| {
        Record::Free(Free {
            time_ns,
            thread,
            id,
        })
    });
}

fn part(time_ns: u64, blocks: &[(u64, u64)]) -> PageReading {
    PageReading {
        time_ns,
        is_last: true,
        knows_slabs: true,
        blocks: blocks
            .iter()
            .map(|&(id, _)| PagesOfBlock {
                id,
                touch: Touch::Resident,
                slab: None,
            })
            .collect(),
        addresses: Some(blocks.iter().map(|&(_, address)| address).collect()),
        ..PageReading::default()
    }
}

fn reading(log: &mut LogBuilder, blocks: &[(u64, u64)]) {
    log.record(|time_ns| Record::Pages(part(time_ns, blocks)));
}

/// Stacks of even and odd ids, and a second thread.
fn begun(interval: u64) -> LogBuilder {
    let mut log = LogBuilder::new(interval);
    log.module("/bin/server", 0x1000, 0x1000);
    log.thread(1, "worker");
    log.stack(&[0x1010, 0x1101]);
    log.stack(&[0x1010, 0x1201]);
    log
}

/// ```text
///    1 ms  block 1, 100 bytes, by the server at BASE      3 ms  reading
///    4 ms  the worker frees it    5 ms  and allocates block 2 there, of 80 bytes
///    6 ms  reading                7 ms  block 3, behind it
///    8 ms  reading of both        9 ms  the end
/// ```
fn lives() -> LogBuilder {
    let mut log = begun(1);
    alloc(&mut log, 1, 0, 100);
    log.wait(1_000_000);
    reading(&mut log, &[(1, BASE)]);
    free(&mut log, 1, 1);
    alloc(&mut log, 2, 1, 80);
    reading(&mut log, &[(2, BASE)]);
    alloc(&mut log, 3, 0, 112);
    reading(&mut log, &[(2, BASE), (3, BASE + 112)]);
    log.wait(1_000_000);
    log
}

fn file(folder: &Path, name: &str, log: LogBuilder) -> String {
    write(folder, name, &log.end()).display().to_string()
}

#[test]
fn each_block_that_held_it_is_told_the_last_one_first() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(folder.path(), "lives.heaplog", lives());
    let document = json(&["at", &format!("{:x}", BASE + 90), &log, "--json"]);
    let blocks = &document["addresses"][0]["blocks"];
    let numbers = |block: &serde_json::Value| {
        let ms = |key: &str| block[key].as_u64().map(|ns| ns / 1_000_000);
        (
            [block["offset"].as_u64(), block["size_bytes"].as_u64()],
            [ms("allocated_ns"), ms("freed_ns"), ms("age_ns")],
            [ms("first_read_ns"), ms("last_read_ns")],
        )
    };
    assert_eq!(blocks.as_array().unwrap().len(), 2);
    assert_eq!(
        numbers(&blocks[0]),
        (
            [Some(90), Some(80)],
            [Some(5), None, Some(4)],
            [Some(6), Some(8)]
        )
    );
    assert_eq!(
        numbers(&blocks[1]),
        (
            [Some(90), Some(100)],
            [Some(1), Some(4), Some(3)],
            [Some(3), Some(3)]
        )
    );
    assert_eq!(blocks[0]["thread"], "worker (tid 78)");
    assert_eq!(blocks[1]["thread"], "server (tid 77)");
    assert_eq!(blocks[1]["freed_by"], "worker (tid 78)");
    assert_eq!(blocks[1]["stack"][1]["function"], "[server+0x200]");
    assert_eq!(blocks[0]["stack"][1]["function"], "[server+0x100]");
    assert_eq!(document["has_all_blocks"], true);
    assert_eq!(document["readings"], 3);

    let text = ok(&["at", &format!("{:#x}", BASE + 90), &log, "--width", "0"]);
    for line in [
        "0x7f000000105a: 2 blocks held it, the last one first",
        "  offset 90 in a block of 80 bytes, behind these, in its 32 bytes of slack",
        "  0x7f0000001000 to 0x7f0000001070, 80 bytes requested and 112 usable, in the readings from 0.006 s to 0.008 s",
        "  allocated at 0.005 s by worker (tid 78)",
        "  in use up to the end, 0.009 s, 0.004 s old",
        "  offset 90 in a block of 100 bytes",
        "  freed at 0.004 s by worker (tid 78), 0.003 s old",
    ] {
        assert!(
            text.lines().any(|it| it == line),
            "{line:?} is not in\n{text}"
        );
    }
}

#[test]
fn several_addresses_are_answered_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(folder.path(), "lives.heaplog", lives());
    let wanted = format!("{:#x},{:x},{:#x}", BASE + 112, BASE, BASE + 112);
    let document = json(&["at", &wanted, &log, "--json"]);
    let answers = document["addresses"].as_array().unwrap();
    let blocks = |answer: &serde_json::Value| answer["blocks"].as_array().unwrap().len();
    let shown: Vec<_> = answers
        .iter()
        .map(|it| (it["address"].as_str().unwrap(), blocks(it)))
        .collect();
    let (first, second) = ("0x7f0000001070", "0x7f0000001000");
    assert_eq!(shown, [(first, 1), (second, 2), (first, 1)]);
}

/// The last reading tells the neighbours of an address that no block held.
#[test]
fn without_a_block_the_nearest_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = begun(1);
    for id in 1..=3 {
        alloc(&mut log, id, 0, 100);
    }
    let blocks = [(1, BASE + 112), (2, BASE + 4 * 112), (3, BASE + (1 << 20))];
    let slab = Some(Slab { free: 30, live: 6 });
    log.record(|time_ns| {
        let mut part = part(time_ns, &blocks);
        part.blocks[1].slab = slab;
        Record::Pages(part)
    });
    free(&mut log, 3, 1);
    let log = file(folder.path(), "near.heaplog", log);
    let at = |address: u64| format!("{address:#x}");
    let document = json(&["at", &at(BASE + 230), &log, "--json"]);
    let answer = &document["addresses"][0];
    assert_eq!(answer["blocks"].as_array().unwrap().len(), 0);
    assert_eq!(answer["below"]["address"], at(BASE + 112));
    assert_eq!(answer["below"]["offset"], 118);
    assert_eq!(answer["above"]["offset"], 230 - 4 * 112);
    // A page has 36 places and a rest, which no slab of jemalloc's has.
    assert!(answer["slab"].is_null());
    let text = ok(&["at", &at(BASE + 230), &log, "--width", "0"]);
    for words in [
        ": no block at a reading\n",
        "\n  6 bytes behind the nearest block below\n",
        "\n  218 bytes before the nearest block above\n",
        "a block that came and went between two readings is not found",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    // Beyond all blocks, and the free of a neighbour after the reading.
    let document = json(&["at", &at(BASE + (2 << 20)), &log, "--json"]);
    let answer = &document["addresses"][0];
    assert!(answer["above"].is_null());
    assert_eq!(answer["below"]["freed_by"], "worker (tid 78)");
    let text = ok(&["at", "1", &log]);
    assert!(
        text.contains("no sampled block below it at 0.004 s"),
        "{text}"
    );
    let text = ok(&["at", "0x1100", &log]);
    assert!(
        text.contains("it is in /bin/server, which is no heap"),
        "{text}"
    );
}

#[test]
fn the_place_in_a_slab_is_told_by_a_neighbour() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = begun(1);
    // 256 places of 112 bytes are seven pages.
    alloc(&mut log, 1, 0, 100);
    log.record(|time_ns| {
        let mut part = part(time_ns, &[(1, BASE + 112)]);
        part.blocks[0].slab = Some(Slab {
            free: 55,
            live: 201,
        });
        Record::Pages(part)
    });
    let log = file(folder.path(), "slab.heaplog", log);
    let document = json(&["at", &format!("{:x}", BASE + 250), &log, "--json"]);
    let slab = &document["addresses"][0]["slab"];
    let expected = serde_json::json!({
        "address": format!("{:#x}", BASE + 224), "block_bytes": 112, "free": 55, "live": 201
    });
    assert_eq!(slab, &expected);
    let text = ok(&["at", &format!("{:x}", BASE + 250), &log, "--width", "0"]);
    let words = "  at 0.002 s it was in a slab of blocks of 112 bytes, in the place from 0x7f00000010e0 on; 55 places of the slab were free, and 201 in use or in caches of threads\n";
    assert!(text.contains(words), "{text}");
}

#[test]
fn of_a_sampled_heap_nothing_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = begun(1 << 19);
    let id = log.alloc(0, 100);
    reading(&mut log, &[(id, BASE)]);
    let log = file(folder.path(), "sampled.heaplog", log);
    let text = ok(&["at", &format!("{:x}", BASE + 4096), &log, "--width", "0"]);
    for words in [
        ": no sampled block at a reading\n",
        "not every block is recorded (sampled every 512.0 KiB on average): another block may have held an address",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    let document = json(&["at", &format!("{BASE:x}"), &log, "--json"]);
    assert_eq!(document["has_all_blocks"], false);
    assert_eq!(document["addresses"][0]["blocks"][0]["offset"], 0);
}

/// A reading that leaves blocks out denies nothing either, nor one with a block that the log has
/// no allocation of.
#[test]
fn a_reading_that_was_cut_denies_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = begun(1);
    alloc(&mut log, 1, 0, 100);
    log.record(|time_ns| {
        Record::Pages(PageReading {
            left_out: 1,
            ..part(time_ns, &[])
        })
    });
    let cut = file(folder.path(), "cut.heaplog", log);
    let mut log = begun(1);
    reading(&mut log, &[(9, BASE)]);
    let unknown = file(folder.path(), "unknown.heaplog", log);
    for log in [cut, unknown] {
        let text = ok(&["at", &format!("{BASE:x}"), &log]);
        assert!(text.contains("no sampled block at a reading"), "{text}");
        assert!(
            text.contains("blocks are missing from the readings"),
            "{text}"
        );
    }
}

/// Events come between the parts, and the last part may be missing.
#[test]
fn a_part_counts_for_the_blocks_that_it_names() {
    let mut log = begun(1);
    for id in 1..=3 {
        alloc(&mut log, id, 0, 100);
    }
    let whole = |log: &mut LogBuilder, is_last: bool| {
        log.record(|time_ns| {
            Record::Pages(PageReading {
                is_last: false,
                ..part(time_ns, &[(1, BASE)])
            })
        });
        free(log, 2, 1);
        log.record(|time_ns| {
            Record::Pages(PageReading {
                part: 1,
                is_last,
                time_ns: time_ns - 2_000_000,
                ..part(0, &[(2, BASE + 112), (3, BASE + 224)])
            })
        });
    };
    whole(&mut log, false);
    let bytes = log.cut();
    let (_, found) = search_addresses(&bytes, &[BASE + 112, BASE + 500], |_| {}).unwrap();
    assert_eq!((found.readings, found.is_partial), (0, true));
    let held = &found.addresses[0].blocks[0];
    assert_eq!((held.id, held.freed), (2, Some((5_000_000, 1))));
    assert_eq!(
        found.addresses[1].below, None,
        "the reading is not complete"
    );

    let mut log = begun(1);
    for id in 1..=3 {
        alloc(&mut log, id, 0, 100);
    }
    whole(&mut log, true);
    let (_, found) = search_addresses(&log.cut(), &[BASE + 112, BASE + 500], |_| {}).unwrap();
    assert_eq!((found.readings, found.is_partial), (1, false));
    assert_eq!(found.addresses[1].below.unwrap().id, 3);
}

/// The child's reading has the block by its id in the parent.
#[test]
fn a_forked_child_has_the_blocks_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let mut parent = Encoder::new();
    encoded::start(&mut parent, 30, 30 * S, vec![]);
    encoded::stack(&mut parent);
    encoded::alloc(&mut parent, S / 2, 7, 1000);
    let bytes = [&FILE_HEADER[..], parent.finish()].concat();
    let parent = write(folder.path(), "parent.heaplog", &bytes);
    let mut child = Encoder::new();
    let settings = vec![
        (FORKED_AT.into(), (31 * S).to_string()),
        (PARENT_LOG.into(), parent.display().to_string()),
    ];
    encoded::start(&mut child, 31, 31 * S, settings);
    let mut bytes = [&FILE_HEADER[..], child.finish()].concat();
    child.record(&Record::Pages(part(S, &[(7, BASE)])));
    encoded::free(&mut child, 2 * S, 7);
    bytes.extend_from_slice(child.finish());
    let child = write(folder.path(), "child.heaplog", &bytes);
    let text = ok(&[
        "at",
        &format!("{:x}", BASE + 999),
        &child.display().to_string(),
    ]);
    for words in [
        "offset 999 in a block of 1,000 bytes",
        "allocated before the fork, by the parent",
        "freed at 2.000 s by",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
}

/// A log that rotated begins with the blocks that were in use then.
#[test]
fn a_log_that_rotated_has_the_blocks_of_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = Encoder::new();
    encoded::start(&mut log, 31, 31 * S, vec![]);
    let mut bytes = [&FILE_HEADER[..], log.finish()].concat();
    log.record(&Record::Checkpoint(Checkpoint {
        segment: 2,
        time_ns: 5 * S,
        intervals: (1, 1),
        ..Checkpoint::default()
    }));
    encoded::stack(&mut log);
    encoded::alloc(&mut log, 4 * S, 7, 1000);
    log.record(&Record::CheckpointEnd { time_ns: 5 * S });
    log.record(&Record::Pages(part(6 * S, &[(7, BASE)])));
    bytes.extend_from_slice(log.finish());
    let log = write(folder.path(), "s.heaplog", &bytes);
    let document = json(&[
        "at",
        &format!("{BASE:x}"),
        &log.display().to_string(),
        "--json",
    ]);
    let block = &document["addresses"][0]["blocks"][0];
    assert_eq!(
        (&block["size_bytes"], &block["allocated_ns"]),
        (&1000.into(), &(4 * S).into())
    );
}

#[test]
fn a_log_without_addresses_says_how_to_make_one() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |log: &str, words: &[&str]| {
        let output = heapprof(&["at", "7f00", log]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for word in words.iter().chain(&[log, "heapprof: "]) {
            assert!(said.contains(word), "{word} is not in: {said}");
        }
    };
    let without = file(folder.path(), "without.heaplog", begun(1));
    let way_out = [
        "HEAPPROF_ADDRESSES=1",
        "HEAPPROF_PAGES=1",
        "heapprof at ADDRESS PID",
    ];
    refused(&without, &[&way_out[..], &["no reading of pages"]].concat());
    let mut log = begun(1);
    alloc(&mut log, 1, 0, 100);
    log.record(|time_ns| {
        Record::Pages(PageReading {
            addresses: None,
            ..part(time_ns, &[(1, BASE)])
        })
    });
    let without = file(folder.path(), "pages.heaplog", log);
    refused(&without, &[&way_out[..], &["were taken without"]].concat());
    // A joined log has several processes' blocks, and no addresses.
    let [a, b] = ["a.heaplog", "b.heaplog"].map(|name| file(folder.path(), name, lives()));
    let joined = folder.path().join("joined.heaplog").display().to_string();
    ok(&["join", &a, &b, "-o", &joined]);
    refused(
        &joined,
        &["joins several processes", "the log of one process"],
    );
    let dump = "heap profile: 1: 2 [3: 4] @ heapprofile\n1: 2 [3: 4] @ 0x1\n\nMAPPED_LIBRARIES:\n";
    let dump = write(folder.path(), "a.heap", dump.as_bytes());
    refused(&dump.display().to_string(), &["a dump"]);
}

#[test]
fn what_is_no_address_is_refused_and_digits_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(folder.path(), "lives.heaplog", lives());
    for (wrong, word) in [
        ("main", "hexadecimal"),
        ("139637976727552", "write 0x7f0000000000"),
    ] {
        let output = heapprof(&["at", wrong, &log]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    }
    let output = heapprof(&["at", "700000001000", &log]);
    assert!(output.status.success());
    let words = "700000001000 is taken for hexadecimal, 0x700000001000";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

#[test]
fn the_document_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let log = file(folder.path(), "lives.heaplog", lives());
    let mut slab = begun(1);
    for id in 1..=2 {
        alloc(&mut slab, id, 0, 100);
    }
    slab.record(|time_ns| {
        let mut part = part(time_ns, &[(1, BASE), (2, BASE + 224)]);
        part.blocks[0].slab = Some(Slab {
            free: 55,
            live: 201,
        });
        Record::Pages(part)
    });
    free(&mut slab, 1, 0);
    free(&mut slab, 2, 0);
    let slab = file(folder.path(), "slab.heaplog", slab);
    let documents = [
        json(&["at", &format!("{:x}", BASE), &log, "--json"]),
        json(&["at", &format!("{:x},1100", BASE + 112), &slab, "--json"]),
    ];
    // No source of these names is here, and nothing qualifies the record.
    let excused = [
        "caveats",
        "addresses[].blocks[].stack[].file",
        "addresses[].blocks[].stack[].line",
    ];
    are_documented_but("heapprof at --json", &documents, &excused);
}

/// A step of a heap whose blocks have places of 64 bytes.
#[derive(Debug, Clone)]
enum Step {
    /// Frees what is in a place, if there is something, or else allocates so many bytes there.
    Change(u64, u64),
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0u64..12, 0u64..65).prop_map(|(place, size)| Step::Change(place, size)),
        1 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..60)
}

/// A block of the model: id, address, usable bytes, and whether it was freed.
type Modelled = (u64, u64, u64, bool);

proptest! {
    /// Against a list of all blocks that were in use at a reading.
    #[test]
    fn the_answers_are_those_of_a_list(steps in steps(), wanted in prop::collection::vec(0u64..900, 1..8)) {
        let mut log = begun(1);
        let (mut live, mut last) = (BTreeMap::new(), Vec::new());
        let mut seen: BTreeMap<u64, (u64, u64, bool)> = BTreeMap::new();
        for (id, step) in (1u64..).zip(&steps) {
            match *step {
                Step::Change(place, size) => match live.remove(&place) {
                    Some((id, _)) => {
                        free(&mut log, id, 0);
                        if let Some((.., is_free)) = seen.get_mut(&id) {
                            *is_free = true;
                        }
                    }
                    None => {
                        log.record(|time_ns| Record::Alloc(Alloc {
                            time_ns, thread: 0, id, stack: 0, size, slack: (64 - size) / 2, interval: 1,
                        }));
                        live.insert(place, (id, size + (64 - size) / 2));
                    }
                },
                Step::Read => {
                    let blocks = live.iter().map(|(place, (id, usable))| (*id, 64 * (place + 1), *usable));
                    last = blocks.collect::<Vec<_>>();
                    for &(id, address, usable) in &last {
                        seen.insert(id, (address, usable, false));
                    }
                    let addresses: Vec<_> = last.iter().map(|it| (it.0, it.1)).collect();
                    reading(&mut log, &addresses);
                }
            }
        }
        let (_, found) = search_addresses(&log.cut(), &wanted, |_| {}).unwrap();
        let all: Vec<Modelled> = seen.iter().map(|(id, it)| (*id, it.0, it.1.max(1), it.2)).collect();
        let mut sorted = wanted.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(found.addresses.len(), sorted.len());
        for (answer, address) in found.addresses.iter().zip(sorted) {
            prop_assert_eq!(answer.address, address);
            holds(answer, &all, &last);
        }
    }
}

fn holds(answer: &HeldAddress, all: &[Modelled], last: &[(u64, u64, u64)]) {
    let address = answer.address;
    let held = all
        .iter()
        .filter(|it| it.1 <= address && address < it.1 + it.2);
    let mut expected: Vec<_> = held.map(|it| (it.0, it.3)).collect();
    let mut found: Vec<_> = answer
        .blocks
        .iter()
        .map(|block| (block.id, block.freed.is_some()))
        .collect();
    // In use first, and then by their ends.
    assert!(found.is_sorted_by_key(|it| it.1));
    let ends = answer.blocks.iter().filter_map(|block| block.freed);
    assert!(ends.map(|it| std::cmp::Reverse(it.0)).is_sorted());
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "at {address}");
    let id = |block: Option<AddressBlock>| block.map(|block| block.id);
    let below = last.iter().rfind(|it| it.1 <= address).map(|it| it.0);
    let above = last.iter().find(|it| it.1 > address).map(|it| it.0);
    assert_eq!(
        (id(answer.below), id(answer.above)),
        (below, above),
        "at {address}"
    );
}
