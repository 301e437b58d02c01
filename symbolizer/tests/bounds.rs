//! Bounds: inputs that claim much are read in little memory, or refused with a word (Law 12).

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use flate2::write::{GzEncoder, ZlibEncoder};
use heapprof_format::{Encoder, EndReason, FILE_HEADER, Module, Record, Segment, Start};

use crate::common::{LogBuilder, heapprof, stderr, stdout, write};
use crate::resolve_fixture::{C_INLINES, Fixture};

const MIB: u64 = 1 << 20;

/// A run of the program: how it ended, what it said, and the most memory that was resident.
struct Run {
    status: ExitStatus,
    said: String,
    peak: u64,
}

fn measured(folder: &Path, args: &[&str]) -> Run {
    let path = folder.join("stderr");
    let mut child = Command::new(env!("CARGO_BIN_EXE_heapprof"))
        .args(args)
        .current_dir(folder)
        .stdout(File::create(folder.join("stdout")).unwrap())
        .stderr(File::create(&path).unwrap())
        .spawn()
        .expect("heapprof can be started");
    // The peak that wait4 reports includes this process's memory, as the child has it before exec.
    let mut peak = 0;
    let status = loop {
        peak = resident_at_most(child.id()).unwrap_or(peak);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    Run {
        status,
        said: std::fs::read_to_string(path).unwrap(),
        peak,
    }
}

/// The most memory that a process ever had; `None`: it has none any more.
fn resident_at_most(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(1024 * kilobytes)
}

/// Ten times the input and 100 MB: more than any honest small input takes.
#[track_caller]
fn assert_in_proportion(run: &Run, input: usize) {
    let most = 10 * input as u64 + 100_000_000;
    assert!(
        run.peak <= most,
        "{} MiB of {}: {}",
        run.peak / MIB,
        most / MIB,
        run.said
    );
}

/// A message of protobuf, field by field.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3).varint(value)
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2).varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn of(fields: impl FnOnce(&mut Message) -> &mut Message) -> Vec<u8> {
        let mut message = Message::default();
        fields(&mut message);
        message.0
    }
}

/// A gzipped profile of pprof's with blocks in use, and what `fields` adds. Its last text is
/// `name`, number 5.
fn pprof(name: &str, fields: impl FnOnce(&mut Message)) -> Vec<u8> {
    let body = Message::of(|message| {
        let kind = |name, unit| Message::of(|kind| kind.number(1, name).number(2, unit));
        message.bytes(1, &kind(1, 2)).bytes(1, &kind(3, 4));
        fields(message);
        for text in ["", "inuse_objects", "count", "inuse_space", "bytes", name] {
            message.bytes(6, text.as_bytes());
        }
        message
    });
    let mut packer = GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packer, &body).unwrap();
    packer.finish().unwrap()
}

/// One location of 200,000 functions that are inlined into each other, all with one name of 100 KB.
#[test]
fn a_name_is_not_copied_for_each_line_of_a_location() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = pprof(&"f".repeat(100_000), |message| {
        let line = Message::of(|line| line.number(1, 1));
        let location = Message::of(|location| {
            location.number(1, 1);
            for _ in 0..200_000 {
                location.bytes(4, &line);
            }
            location
        });
        let sample = Message::of(|sample| sample.bytes(1, &[1; 2000]).bytes(2, &[1, 100]));
        let function = Message::of(|function| function.number(1, 1).number(2, 5));
        message.bytes(4, &location).bytes(5, &function);
        message.bytes(2, &sample);
    });
    let unpacked = 1_000_000;
    write(folder.path(), "p.pb.gz", &bytes);
    let run = measured(folder.path(), &["top", "p.pb.gz"]);
    assert!(run.status.success(), "{}", run.said);
    assert_in_proportion(&run, unpacked);
    let shown = std::fs::read_to_string(folder.path().join("stdout")).unwrap();
    assert!(
        shown.contains("fff…") && shown.len() < 20_000,
        "{}",
        shown.len()
    );
}

#[test]
fn gzip_unpacks_to_no_more_than_its_size_allows() {
    let folder = tempfile::tempdir().unwrap();
    // Samples without anything in them: two bytes each.
    let bytes = pprof("", |message| {
        message.0.extend(b"\x12\x00".repeat(10_000_000))
    });
    write(folder.path(), "p.pb.gz", &bytes);
    let run = measured(folder.path(), &["top", "p.pb.gz"]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        run.said.contains("p.pb.gz") && run.said.contains("unpacks to more than"),
        "{}",
        run.said
    );
    assert_in_proportion(&run, bytes.len());
}

/// A program with its own debug information, and a log with an address in its `outer`.
fn program_and_log() -> (Fixture, u64) {
    let fixture = Fixture::new();
    fixture.compile("program.c", C_INLINES, &["-gdwarf-5"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    (fixture, call)
}

fn write_log(fixture: &Fixture, svma: u64) {
    let mut log = LogBuilder::new(1);
    log.module_record(Module {
        number: 0,
        time_ns: 0,
        path: fixture.path("program").display().to_string(),
        build_id: fixture.build_id("program"),
        stamp: None,
        bias: 0x10_0000,
        segments: vec![Segment {
            start: 0x10_0000,
            len: 0x10_0000,
            file_offset: 0,
            flags: 5,
        }],
    });
    let stack = log.stack(&[0x10_0000 + svma]);
    log.alloc(stack, 1000);
    fixture.write("run.heaplog", log.end());
}

/// So many zeros, packed by that program.
fn zeros(fixture: &Fixture, mebibytes: u64, packer: &str) {
    let command = format!("head -c {mebibytes}M /dev/zero | {packer} > packed");
    fixture.run("sh", &["-c", &command]);
}

/// The names are those of the rest of the file, and the report says what is left out.
#[track_caller]
fn assert_named_without(fixture: &Fixture, call: u64, what: &str) {
    let report = fixture.resolve(call).report;
    let said = format!("{report}{:?}", report.tried);
    assert!(said.contains(what), "{said}");
    write_log(fixture, call);
    let run = measured(&fixture.path(""), &["top", "run.heaplog"]);
    assert!(run.status.success(), "{}", run.said);
    let size = std::fs::metadata(fixture.path("program")).unwrap().len();
    assert_in_proportion(&run, size as usize);
    let shown = std::fs::read_to_string(fixture.path("stdout")).unwrap();
    assert!(
        shown.contains("leaf") && shown.contains("program.c:3"),
        "{shown}"
    );
}

/// The bound does not lie behind a buffer of the decoder's own.
#[test]
fn xz_unpacks_to_no_more_than_its_size_allows() {
    let (fixture, call) = program_and_log();
    zeros(&fixture, 300, "xz -0");
    let section = ".gnu_debugdata=packed";
    fixture.run("objcopy", &["--add-section", section, "program"]);
    assert_named_without(
        &fixture,
        call,
        ".gnu_debugdata has more bytes when decompressed than",
    );
}

/// A section that is compressed as it says it is, a thousandfold.
#[test]
fn a_section_becomes_no_larger_than_its_size_allows() {
    let (fixture, call) = program_and_log();
    let size = 60 * MIB;
    // Elf64_Chdr: zlib, reserved, size, alignment.
    let mut section = [1u64, size, 1].map(u64::to_le_bytes).concat();
    let mut packer = ZlibEncoder::new(&mut section, flate2::Compression::fast());
    let megabyte = vec![0; MIB as usize];
    for _ in 0..size / MIB {
        std::io::Write::write_all(&mut packer, &megabyte).unwrap();
    }
    packer.finish().unwrap();
    fixture.write("packed", &section);
    let flags = ".debug_ranges=readonly,debug";
    fixture.run("objcopy", &["--remove-section", ".debug_ranges", "program"]);
    fixture.run(
        "objcopy",
        &[
            "--add-section",
            ".debug_ranges=packed",
            "--set-section-flags",
            flags,
            "program",
        ],
    );
    mark_compressed(&fixture.path("program"), section.len() as u64);
    let claimed = format!(".debug_ranges claims {size} bytes when decompressed");
    assert_named_without(&fixture, call, &claimed);
}

/// Sets SHF_COMPRESSED in the header of the one section that has that size.
fn mark_compressed(path: &Path, size: u64) {
    const SHF_COMPRESSED: u64 = 1 << 11;
    let mut bytes = std::fs::read(path).unwrap();
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let table = word(&bytes, 0x28) as usize;
    let headers = (bytes.len() - table) / 64;
    let is_it = |header: &usize| word(&bytes, table + 64 * header + 32) == size;
    let header = (0..headers).find(is_it).expect("the section");
    let flags = table + 64 * header + 8;
    let marked = word(&bytes, flags) | SHF_COMPRESSED;
    bytes[flags..flags + 8].copy_from_slice(&marked.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// Three hundred functions, each inlined into the next.
#[test]
fn of_many_inlined_functions_the_inner_and_the_outer_are_kept() {
    use std::fmt::Write as _;
    let mut text = String::from("extern int sink(int);\n");
    text += "static inline __attribute__((always_inline)) int f0(int x) { return sink(x) + 1; }\n";
    for i in 1..300 {
        let before = i - 1;
        let _ = writeln!(
            text,
            "static inline __attribute__((always_inline)) int f{i}(int x) {{ return f{before}(x) + 1; }}"
        );
    }
    text += "__attribute__((noinline)) int sink(int x) { __asm__ volatile(\"\" : \"+r\"(x)); return x; }\n";
    text += "__attribute__((noinline)) int outer(int x) { return f299(x) + 5; }\n";
    text += "int main(int argc, char **argv) { (void)argv; return outer(argc) == 0; }\n";
    let fixture = Fixture::new();
    fixture.compile("deep.c", &text, &["-g", "-O1"]);
    let call = fixture.call_site("program", "<outer>", "<sink>");
    let symbols = fixture.resolve(call);
    let names = symbols.frames_of(call).iter();
    let names: Vec<&str> = names
        .map(|frame| frame.function.as_ref().map_or("?", |name| name.demangled()))
        .collect();
    assert_eq!(names.len(), 103);
    assert_eq!(&names[..3], ["f0", "…", "f200"]);
    assert_eq!(&names[100..], ["f298", "f299", "outer"]);
    let first = &symbols.frames_of(call)[0];
    assert_eq!(first.line, Some(2));
}

/// So in a dump that brings its names.
#[test]
fn of_many_names_of_an_address_the_inner_and_the_outer_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let inlined: Vec<String> = (0..50_000).map(|i| format!("f{i}")).collect();
    let dump = format!(
        "--- symbol\nbinary=/bin/x\n0x1010 main--{}\n---\nheap profile: 1: 100 [1: 100] @ heapprofile\n\
         1: 100 [1: 100] @ 0x1010\nMAPPED_LIBRARIES:\n",
        inlined.join("--")
    );
    let dump = write(folder.path(), "a.heap", dump.as_bytes());
    let out = heapprof(&["export", "-f", "folded", dump.to_str().unwrap()]);
    let text = stdout(&out);
    let line = text
        .lines()
        .find(|line| line.ends_with(" 100"))
        .expect("a stack");
    let names: Vec<&str> = line.trim_end_matches(" 100").split(';').collect();
    assert_eq!(names.len(), 102, "{}", stderr(&out));
    assert_eq!(&names[..3], ["main", "…", "f49900"]);
    assert_eq!(names[101], "f49999");
}

#[test]
fn words_of_a_command_line_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut encoder = Encoder::new();
    encoder.record(&Record::Start(Start {
        program: "/bin/x".into(),
        args: vec![String::new(); 6_000_000],
        interval: 1,
        ..Start::default()
    }));
    let bytes = [&FILE_HEADER[..], encoder.finish()].concat();
    write(folder.path(), "run.heaplog", &bytes);
    let run = measured(folder.path(), &["info", "run.heaplog"]);
    assert!(run.status.success(), "{}", run.said);
    assert_in_proportion(&run, bytes.len());
    let shown = std::fs::read_to_string(folder.path().join("stdout")).unwrap();
    assert!(
        shown.contains('…') && shown.len() < 50_000,
        "{}",
        shown.len()
    );
}

/// 100 bytes that claim to be of 292 years.
#[test]
fn no_log_decides_how_many_dumps_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogBuilder::new(1);
    let stack = log.stack(&[0x1010]);
    log.alloc(stack, 100);
    log.record_at(u64::MAX >> 1, |time_ns| Record::End {
        time_ns,
        reason: EndReason::Exit,
    });
    write(folder.path(), "run.heaplog", &log.cut());
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let before = files() + 2; // with what the run says
    for (args, most) in [(&[][..], 1000), (&["--most-dumps", "1200"], 200)] {
        let from = files().max(before);
        let args = [&["dump", "--every", "1s", "run.heaplog"], args].concat();
        let run = measured(folder.path(), &args);
        assert_eq!(run.status.code(), Some(1));
        assert!(
            run.said.contains("dumps are written") && run.said.contains("--most-dumps"),
            "{}",
            run.said
        );
        assert!(files() - from <= most.max(1200), "{}", files());
    }
}

/// Memory that no decoder limits is limited by the bound of the run.
#[test]
fn a_run_that_passes_its_bound_ends_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let samples = |count| pprof("", |message| message.0.extend(b"\x12\x00".repeat(count)));
    let bytes = samples(5_000_000);
    write(folder.path(), "run.pb.gz", &bytes);
    let run = measured(folder.path(), &["top", "run.pb.gz"]);
    assert_eq!(run.status.code(), Some(1), "{}", run.said);
    let bound = 256 * MIB + 64 * bytes.len() as u64;
    let expected = format!(
        "heapprof: run.pb.gz: this takes more than {} MiB of memory (256 MiB, and 64 times the 1 MiB that were read): \
         is it damaged? --max-memory BYTES allows more\n",
        bound.div_ceil(MIB)
    );
    assert_eq!(run.said, expected);
    assert!(run.peak < bound + 40 * MIB, "{} MiB", run.peak / MIB);

    write(folder.path(), "run.pb.gz", &samples(500_000));
    let top = |args: &[&str]| measured(folder.path(), &[&["top", "run.pb.gz"], args].concat());
    for args in [&[][..], &["--max-memory", "4GiB"]] {
        let run = top(args);
        assert!(run.status.success(), "{}", run.said);
    }
    let run = top(&["--max-memory", "64MiB"]);
    assert_eq!(run.status.code(), Some(1));
    let expected = "64 MiB of memory, the most that --max-memory allows";
    assert!(run.said.contains(expected), "{}", run.said);
    assert!(run.peak < 104 * MIB, "{} MiB", run.peak / MIB);
}
