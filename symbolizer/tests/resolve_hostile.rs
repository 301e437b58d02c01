//! Files that lie: damaged at random, cut short, or made to be read for ever. The promise is an
//! answer in bounded time, never a panic, whatever the answer.

use crate::resolve_fixture::{C_INLINES, CPP_INLINES, Fixture, lines};
use std::time::{Duration, Instant};

/// The same numbers every time, spread well (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn queried_addresses(fixture: &Fixture) -> Vec<u64> {
    let main = fixture.address_of("program", "main");
    (0x1000..main + 0x400)
        .step_by(3)
        .chain([0, u64::MAX, u64::MAX - 1])
        .collect()
}

#[test]
fn damaged_files_are_answered() {
    let rounds = if cfg!(debug_assertions) { 300 } else { 3000 };
    for (name, text, flags) in [
        ("program.c", C_INLINES, &["-g", "-gdwarf-4"][..]),
        ("program.c", C_INLINES, &["-g", "-gdwarf-5", "-gz=zlib"]),
        ("program.cc", CPP_INLINES, &["-g", "-gdwarf-5"]),
        (
            "program.c",
            C_INLINES,
            &["-g", "-gdwarf-5", "-gsplit-dwarf"],
        ),
    ] {
        let fixture = Fixture::new();
        fixture.compile(name, text, flags);
        let svmas = queried_addresses(&fixture);
        let split = flags.contains(&"-gsplit-dwarf");
        let victim = if split { "program.dwo" } else { "program" };
        if split {
            fixture.run(
                "sh",
                &[
                    "-c",
                    "for f in *.dwo; do test $f = program.dwo || mv $f program.dwo; done",
                ],
            );
        }
        let whole = std::fs::read(fixture.path(victim)).expect("the file");
        let mut numbers = Numbers(7);
        for round in 0..rounds {
            let mut bytes = whole.clone();
            // Debug information is in the last part of the file; headers are everywhere.
            for _ in 0..1 + numbers.below(8) {
                let at = if numbers.below(2) == 0 {
                    numbers.below(bytes.len())
                } else {
                    bytes.len() / 2 + numbers.below(bytes.len() / 2)
                };
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff, numbers.next() as u8][numbers.below(6)];
            }
            if numbers.below(8) == 0 {
                bytes.truncate(numbers.below(whole.len()));
            }
            fixture.write(victim, bytes);
            let begun = Instant::now();
            let symbols = fixture.resolve_as(&fixture.path("program"), None, &svmas);
            let quality = symbols.report.quality;
            assert_eq!(
                quality.asked,
                quality.by_dwarf + quality.by_symbols + quality.unresolved
            );
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "round {round} took {:?}",
                begun.elapsed()
            );
        }
    }
}

/// A unit by hand, in assembly: `deep` inlined functions, each inside of the one before, and `many`
/// functions that share one range list of `many` ranges.
fn assembly(deep: usize, many: usize) -> String {
    let mut text = String::from(
        ".globl main\n.text\nmain: .Lb: xor %eax,%eax\n nop\n ret\n.Le:\n\
         .section .debug_abbrev,\"\",@progbits\n\
         .uleb128 1,0x11\n.byte 1\n.uleb128 0x25,0x08,0x55,0x17,0x11,0x01,0,0\n\
         .uleb128 2,0x2e\n.byte 1\n.uleb128 0x03,0x08,0x11,0x01,0x12,0x07,0,0\n\
         .uleb128 3,0x1d\n.byte 1\n.uleb128 0x03,0x08,0x11,0x01,0x12,0x07,0,0\n\
         .uleb128 4,0x2e\n.byte 0\n.uleb128 0x55,0x17,0,0\n.byte 0\n\
         .section .debug_info,\"\",@progbits\n.long .Lie-.Lib\n.Lib: .short 4\n.long 0\n.byte 8\n\
         .uleb128 1\n.asciz \"hand\"\n.long .Lcu\n.quad 0\n",
    );
    for _ in 0..many {
        text.push_str(".uleb128 4\n.long 0\n");
    }
    text.push_str(".uleb128 2\n.asciz \"main\"\n.quad .Lb,.Le-.Lb\n");
    for _ in 0..deep {
        text.push_str(".uleb128 3\n.asciz \"f\"\n.quad .Lb,.Le-.Lb\n");
    }
    text.push_str(&format!(
        ".fill {},1,0\n.Lie:\n.section .debug_ranges,\"\",@progbits\n",
        deep + 2
    ));
    for i in 0..many {
        text.push_str(&format!(".quad {},{}\n", 0x10_0000 + i, 0x10_0001 + i));
    }
    text.push_str(".quad 0,0\n.Lcu: .quad .Lb,.Le,0,0\n.section .note.GNU-stack,\"\",@progbits\n");
    text
}

#[test]
fn nesting_costs_heap_and_never_the_stack() {
    let fixture = Fixture::new();
    let (main, symbols) = fixture.assemble(assembly(100_000, 0));
    // As many frames are kept as compilers ever nest, with a sign for the rest.
    let frames = symbols.frames_of(main).len();
    assert!((100..110).contains(&frames), "{frames}: {}", symbols.report);
}

#[test]
fn lists_that_are_referred_to_for_ever_end_with_a_reason() {
    let fixture = Fixture::new();
    // 100,000 functions of one list of 100,000 ranges: 10,000,000,000 ranges in 3 MB. The budget of
    // reads grows with the file, so a smaller file tests the same in a build that is not optimised.
    let many = if cfg!(debug_assertions) {
        10_000
    } else {
        100_000
    };
    let (main, symbols) = fixture.assemble(assembly(1, many));
    assert!(
        symbols
            .report
            .to_string()
            .contains("refers to the same data too often"),
        "{}",
        symbols.report
    );
    assert_eq!(
        lines(&symbols, main),
        ["main ?:0"],
        "the symbol table still names it"
    );
}

/// `deep` functions inlined into each other, each of whose names begins one byte later in one long
/// string; in a namespace of that name too.
fn names_for_ever(deep: usize, long: usize) -> String {
    let mut text = String::from(
        ".globl main\n.text\nmain: .Lb: xor %eax,%eax\n nop\n ret\n.Le:\n\
         .section .debug_abbrev,\"\",@progbits\n\
         .uleb128 1,0x11\n.byte 1\n.uleb128 0x13,0x0b,0x11,0x01,0x12,0x07,0,0\n\
         .uleb128 2,0x39\n.byte 1\n.uleb128 0x03,0x0e,0,0\n\
         .uleb128 3,0x2e\n.byte 1\n.uleb128 0x03,0x0e,0x11,0x01,0x12,0x07,0,0\n\
         .uleb128 4,0x1d\n.byte 1\n.uleb128 0x03,0x0e,0x11,0x01,0x12,0x07,0,0\n.byte 0\n\
         .section .debug_info,\"\",@progbits\n.long .Lie-.Lib\n.Lib: .short 4\n.long 0\n.byte 8\n\
         .uleb128 1\n.byte 4\n.quad .Lb,.Le-.Lb\n.uleb128 2\n.long 0\n.uleb128 3\n.long 0\n.quad .Lb,.Le-.Lb\n",
    );
    for i in 0..deep {
        text.push_str(&format!(".uleb128 4\n.long {i}\n.quad .Lb,.Le-.Lb\n"));
    }
    text.push_str(&format!(
        ".fill {},1,0\n.Lie:\n.section .debug_str,\"\",@progbits\n.fill {long},1,0x78\n.byte 0\n\
         .section .note.GNU-stack,\"\",@progbits\n",
        deep + 3
    ));
    text
}

#[test]
fn names_that_overlap_do_not_fill_the_memory() {
    let fixture = Fixture::new();
    // 20,000 names of 256 KiB, the most a name may have: 5 GB from a file of a megabyte.
    let (main, symbols) = fixture.assemble(names_for_ever(20_000, 300_000));
    let frames = symbols.frames_of(main);
    let text: usize = frames
        .iter()
        .filter_map(|frame| Some(frame.function.as_ref()?.raw().len()))
        .sum();
    let file = std::fs::metadata(fixture.path("program"))
        .expect("it")
        .len() as usize;
    assert!(text > 0, "some names are read: {}", symbols.report);
    assert!(
        text <= (1 << 20) + 64 * file,
        "{text} bytes of names of {file}"
    );
    assert!(
        symbols
            .report
            .to_string()
            .contains("refers to the same data too often"),
        "{}",
        symbols.report
    );
}
