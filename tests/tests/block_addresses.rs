//! Addresses of blocks: each address that the program itself prints is told with the function and
//! the size of its block, whether the block is in use or was freed.

use std::path::Path;

use heapprof_tests::{Json, Run, Running, ctl, ended, started};

/// Lines of the fixture; the last one is the mapping.
const LINES: usize = 11;

/// A line of the fixture: function, address, size.
struct PrintedBlock {
    function: String,
    address: u64,
    size: u64,
}

fn printed_blocks(stdout: &str) -> Vec<PrintedBlock> {
    let lines = stdout.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = words[1].strip_prefix("0x").expect("an address");
        PrintedBlock {
            function: words[0].to_owned(),
            address: u64::from_str_radix(address, 16).unwrap(),
            size: words[2].parse().unwrap(),
        }
    });
    lines.collect()
}

fn run(interval: u64) -> Run {
    Run::fixture("block_addresses")
        .interval(interval)
        .prefix("t")
        .env("HEAP_PROFILE_INUSE_INTERVAL", "0")
}

/// Asks for these addresses in a log or a process.
fn at(addresses: &[u64], source: &Path) -> serde_json::Value {
    let words: Vec<String> = addresses.iter().map(|it| format!("{it:x}")).collect();
    let shown = Run::heapprof()
        .args(["at", "--json", &words.join(",")])
        .arg(source)
        .run()
        .well();
    let Json(document) = Json::parse(&shown.stdout);
    document
}

fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// Returns the block of that size in an answer, if its stack has the function.
fn block_of<'a>(answer: &'a serde_json::Value, printed: &PrintedBlock) -> &'a serde_json::Value {
    let blocks = answer["blocks"].as_array().unwrap();
    let found = blocks.iter().find(|block| {
        let frames = block["stack"].as_array().unwrap();
        let is_of = |frame: &serde_json::Value| frame["function"] == printed.function.as_str();
        block["size_bytes"] == printed.size && frames.iter().any(is_of)
    });
    found.unwrap_or_else(|| panic!("no block of {}: {answer:#}", printed.function))
}

#[test]
fn each_address_is_told_with_its_block() {
    let ran = run(1).env("HEAPPROF_ADDRESSES", "1").run().well();
    let log = ran.folder().join("t.heaplog");
    let all = printed_blocks(&ran.stdout);
    assert_eq!(all.len(), LINES);
    let (blocks, mapping) = all.split_at(LINES - 1);
    for offset_of in [|_| 0, |size| size / 2, |size| size - 1] {
        let addresses: Vec<u64> = blocks
            .iter()
            .map(|it| it.address + offset_of(it.size))
            .collect();
        let document = at(&addresses, &log);
        assert_eq!(document["has_all_blocks"], true, "{document:#}");
        // At both dumps and at the end.
        assert_eq!(document["readings"], 3);
        for (number, it) in blocks.iter().enumerate() {
            let block = block_of(&document["addresses"][number], it);
            assert_eq!(block["address"], hex(it.address), "{block:#}");
            assert_eq!(block["offset"], offset_of(it.size));
            assert!(block["freed_ns"].as_u64() > block["allocated_ns"].as_u64());
            let reading = |key: &str| block[key].as_u64().unwrap();
            let is_of_one = reading("first_read_ns") == reading("last_read_ns");
            let was_resized_or_freed =
                ["frees_early", "grows_from", "grows_to"].contains(&it.function.as_str());
            assert_eq!(is_of_one, was_resized_or_freed, "{block:#}");
            assert!(reading("last_read_ns") <= block["freed_ns"].as_u64().unwrap());
        }
    }
    // One behind the usable bytes is another block, or none.
    let end = |it: &PrintedBlock| {
        let document = at(&[it.address], &log);
        let usable = block_of(&document["addresses"][0], it)["usable_bytes"].as_u64();
        it.address + usable.unwrap()
    };
    let ends: Vec<u64> = blocks.iter().map(end).collect();
    let document = at(&ends, &log);
    for (answer, it) in document["addresses"].as_array().unwrap().iter().zip(blocks) {
        let addresses = answer["blocks"].as_array().unwrap().iter();
        let is_other = |block: &serde_json::Value| block["address"] != hex(it.address);
        assert!(addresses.clone().all(is_other), "{answer:#}");
    }
    let shown = Run::heapprof()
        .args(["at", &hex(mapping[0].address + 5000)])
        .arg(&log)
        .run()
        .well();
    let words = "no block at a reading";
    assert!(shown.stdout.contains(words), "{}", shown.stdout);
}

fn waiting(interval: u64) -> Running {
    let run = run(interval);
    let told = run.folder().join("told");
    let mut running = started(run.arg(told));
    running.until("its lines", |running| {
        running.stdout_so_far().lines().count() == LINES
    });
    running
}

/// A reading without addresses tells nothing; the request brings one with them.
#[test]
fn a_process_that_runs_takes_a_reading_with_addresses() {
    let running = waiting(1);
    let all = printed_blocks(&running.stdout_so_far());
    let addresses: Vec<u64> = all.iter().map(|it| it.address).collect();
    let log = running.folder().join("t.heaplog");
    let refused = Run::heapprof().args(["at", "1"]).arg(&log).run();
    assert_eq!(refused.code(), 1);
    let words = "its readings of pages were taken without";
    assert!(refused.stderr.contains(words), "{}", refused.stderr);

    let pid = running.pid().to_string();
    let document = at(&addresses, Path::new(&pid));
    assert_eq!(document["readings"], 1);
    assert_eq!(document["has_all_blocks"], true, "{document:#}");
    for (number, it) in all.iter().enumerate() {
        let answer = &document["addresses"][number];
        match it.function.as_str() {
            "keeps" | "fills" | "aligns" | "grows_to" => {
                let block = block_of(answer, it);
                assert_eq!(block["address"], hex(it.address));
                assert!(block["freed_ns"].is_null(), "{block:#}");
            }
            // They were gone before.
            _ => assert_eq!(answer["blocks"].as_array().unwrap().len(), 0, "{answer:#}"),
        }
    }
    let answer = ctl(running.pid(), &["pages", "addresses"]).well().stdout;
    assert!(
        answer.contains("sampled blocks with their addresses"),
        "{answer}"
    );
    assert_eq!(at(&addresses, &log)["readings"], 2);
    // The other places of the slab of a block, a page, have no block.
    let kept = all.iter().find(|it| it.size == 1000).unwrap();
    let page = kept.address / 4096 * 4096;
    let places = (0..4).map(|place| page + 1024 * place);
    let free: Vec<u64> = places.filter(|&place| place != kept.address).collect();
    let inside: Vec<u64> = free.iter().map(|place| place + 77).collect();
    let document = at(&inside, Path::new(&pid));
    for (answer, place) in document["addresses"].as_array().unwrap().iter().zip(free) {
        let slab = &answer["slab"];
        assert_eq!(slab["block_bytes"], 1024, "{answer:#}");
        assert_eq!(slab["address"], hex(place));
        assert_eq!(
            slab["free"].as_u64().unwrap() + slab["live"].as_u64().unwrap(),
            4
        );
    }
    ended(running);
}

/// Blocks that are no samples are not denied. The large ones have samples, so there are readings.
#[test]
fn of_a_sampled_heap_a_block_without_a_sample_is_not_denied() {
    let ran = run(1 << 16).env("HEAPPROF_ADDRESSES", "1").run().well();
    let mapping = printed_blocks(&ran.stdout).pop().unwrap();
    let shown = Run::heapprof()
        .args(["at", &hex(mapping.address + 5000)])
        .arg(ran.folder().join("t.heaplog"))
        .run()
        .well();
    for words in [
        "no sampled block at a reading",
        "not every block is recorded",
    ] {
        assert!(shown.stdout.contains(words), "{}", shown.stdout);
    }
}

/// The setting alone takes a reading at the end, without dumps.
#[test]
fn the_setting_takes_a_reading_at_the_end_and_is_in_the_log() {
    let ran = Run::fixture("fp_chain")
        .interval(1)
        .env("HEAPPROF_ADDRESSES", "1")
        .run()
        .well();
    let log = ran.log();
    assert_eq!(log.page_readings().filter(|part| part.is_last).count(), 1);
    for part in log.page_readings() {
        let addresses = part.addresses.as_ref().expect("addresses");
        assert_eq!(addresses.len(), part.blocks.len());
        assert!(addresses.is_sorted());
    }
    let shown = Run::heapprof().arg("info").arg(ran.log_path()).run().well();
    assert!(
        shown.stdout.contains("HEAPPROF_ADDRESSES"),
        "{}",
        shown.stdout
    );
}
