//! The memory probes of OpenTelemetry (`otel_memory`), as gdb sees them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Command;

use heapprof_format::Record;
use heapprof_tests::{Build, Finished, Run};

/// gdb's commands: from the moment when the library is loaded, each hit of a probe becomes a line.
const LISTENS: &str = r#"
set pagination off
set startup-with-shell off
set print thread-events off
catch load libheapprof
run
break -probe-stap otel_memory:alloc
commands
silent
printf "probed alloc %lu %lu %lu\n", $_probe_arg0, $_probe_arg1, $_probe_arg2
continue
end
break -probe-stap otel_memory:free
commands
silent
printf "probed free %lu 0 0\n", $_probe_arg0
continue
end
delete 1
continue
"#;

/// A run whose probes gdb listens to.
struct Heard {
    ran: Finished,
    allocs: Vec<[u64; 3]>,
    frees: u64,
    /// Sizes of the blocks that are in use at the end, by address.
    in_use: BTreeMap<u64, u64>,
}

fn listens_to(program: &str, interval: u64) -> Heard {
    let build = Build::get();
    let run = Run::tool("gdb").env("DEBUGINFOD_URLS", "");
    let commands = run.folder().join("commands");
    let settings = format!(
        "set environment LD_PRELOAD={}\nset environment HEAPPROF_SAMPLE_INTERVAL={interval}\n",
        build.library().display()
    );
    fs::write(&commands, settings + LISTENS).expect("a file in the run's folder");
    let ran = run
        .args(["--batch", "-nx", "-x"])
        .arg(&commands)
        .arg(build.fixture(program))
        .run()
        .well();
    let mut heard = Heard {
        ran,
        allocs: Vec::new(),
        frees: 0,
        in_use: BTreeMap::new(),
    };
    for line in heard.ran.stdout.clone().lines() {
        let Some((kind, numbers)) = line
            .strip_prefix("probed ")
            .and_then(|it| it.split_once(' '))
        else {
            continue;
        };
        let numbers: Vec<u64> = numbers.split(' ').map(|n| n.parse().unwrap()).collect();
        let [user, size, weighted] = numbers[..] else {
            panic!("{line}");
        };
        if kind == "alloc" {
            heard.allocs.push([user, size, weighted]);
            let was = heard.in_use.insert(user, size);
            assert_eq!(was, None, "{line}: the block before has not ended");
        } else {
            heard.frees += 1;
            let ended = heard.in_use.remove(&user);
            assert!(ended.is_some(), "{line}: there is no such block");
        }
    }
    heard
}

#[test]
fn a_listener_gets_the_sums_of_the_log() {
    for interval in [1, 5000] {
        let heard = listens_to("probed", interval);
        let log = heard.ran.log().whole();
        let numbers = log.profile.numbers();
        let context = format!("interval {interval}: {numbers:?}\n{}", heard.ran.stdout);
        let sum: u64 = heard.allocs.iter().map(|[_, _, weighted]| weighted).sum();
        // The log's sum before any rounding: reports are whole bytes, and carry the rest.
        let exact = log.profile.totals().allocated.bytes_f64();
        assert!(
            (sum as f64 - exact).abs() <= 0.51,
            "{sum} {exact}: {context}"
        );
        let is_sample = |record: &&Record| matches!(record, Record::Alloc(_));
        let samples = log.records.iter().filter(is_sample).count();
        assert_eq!(heard.allocs.len(), samples, "{context}");
        assert!(heard.allocs.len() > 20, "{context}");
        assert!(heard.frees > 10, "{context}");
        if interval == 1 {
            let sizes: u64 = heard.in_use.values().sum();
            assert_eq!(sizes, numbers.in_use_bytes, "{context}");
            assert_eq!(
                heard.in_use.len() as u64,
                numbers.in_use_objects,
                "{context}"
            );
            // The pool's blocks have their own addresses.
            let pool: Vec<u64> = heard.allocs.iter().map(|it| it[1]).rev().take(3).collect();
            assert_eq!(pool, [1500, 500, 1000]);
            assert!(
                heard
                    .allocs
                    .iter()
                    .all(|it| it[0] < 1 << 47 && it[1] == it[2])
            );
        }
    }
}

/// As the kernel does for a tracer that sets no trap: the semaphores alone change nothing.
#[test]
fn a_program_does_not_notice_that_somebody_listens() {
    let mut running = Run::fixture("probed").interval(1).arg("2").start();
    running.until("its wait", |it| it.stdout_so_far().contains("waits"));
    let maps = fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
    let library = maps
        .lines()
        .find(|line| line.ends_with("libheapprof.so"))
        .unwrap();
    let base = u64::from_str_radix(library.split_once('-').unwrap().0, 16).unwrap();
    let mut memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{}/mem", running.pid()))
        .unwrap();
    let semaphores = semaphores();
    assert_eq!(semaphores.len(), 2);
    for at in semaphores {
        let mut count = [0xff; 2];
        memory.seek(SeekFrom::Start(base + at)).unwrap();
        memory.read_exact(&mut count).unwrap();
        assert_eq!(count, [0, 0], "nobody listens");
        memory.seek(SeekFrom::Start(base + at)).unwrap();
        memory.write_all(&1u16.to_le_bytes()).unwrap();
    }
    let with = running.wait().well().log().whole().profile.numbers();
    let without = Run::fixture("probed").interval(1).arg("0").run().well();
    let without = without.log().whole().profile.numbers();
    assert_eq!(with.in_use_bytes, without.in_use_bytes);
}

/// Returns the addresses of the semaphores in the library's file.
fn semaphores() -> Vec<u64> {
    let library = Build::get().library();
    let notes = Command::new("readelf")
        .arg("-n")
        .arg(library)
        .output()
        .unwrap();
    let notes = String::from_utf8_lossy(&notes.stdout).into_owned();
    assert_eq!(notes.matches("Provider: otel_memory").count(), 2, "{notes}");
    for line in [
        "Name: alloc",
        "Name: free",
        "Arguments: 8@%rdi 8@%rsi 8@%rdx",
        "Arguments: 8@%rdi\n",
    ] {
        assert!(notes.contains(line), "{line}: {notes}");
    }
    let places = notes
        .lines()
        .filter_map(|line| line.split_once("Semaphore: 0x"));
    places
        .map(|(_, at)| u64::from_str_radix(at.trim(), 16).unwrap())
        .collect()
}
