//! Names for addresses on the command line:
//! `resolve [--raw] [--report] [--debug-dir DIR] FILE < ADDRESSES`, or names people read for
//! mangled ones: `resolve --names < NAMES`, one a line.
//!
//! One address a line on standard input, hexadecimal, as the file states it. For each, in the order
//! asked: the address, then two lines a frame, the function and `file:line:column`, innermost
//! first, then an empty line; what is not known is `??` and 0. That is how llvm-symbolizer and
//! addr2line write, so that scripts/compare-names and scripts/bench-resolve can set them side by
//! side. `--raw` leaves names mangled; `--report` writes to standard error which files were used.

use heapprof_symbolizer::resolve::{ModuleRef, SearchPath, demangle, resolve_module};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("resolve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let (mut raw, mut report, mut names, mut file) = (false, false, false, None);
    let mut search = SearchPath::default();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--raw") => raw = true,
            Some("--report") => report = true,
            Some("--names") => names = true,
            Some("--debug-dir") => {
                let dir = arguments.next().ok_or("--debug-dir needs a folder")?;
                search.debug_dirs.insert(0, PathBuf::from(dir));
            }
            _ => file = Some(argument),
        }
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let mut out = BufWriter::new(io::stdout().lock());
    if names {
        for name in text.lines() {
            writeln!(out, "{}", demangle(name).as_deref().unwrap_or(name))?;
        }
        return Ok(out.flush()?);
    }
    let file =
        file.ok_or("usage: resolve [--raw] [--report] [--debug-dir DIR] FILE < ADDRESSES")?;
    let asked = text
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<Vec<u64>, _>>()?;

    let module = ModuleRef {
        path: Path::new(&file),
        build_id: None,
    };
    let symbols = resolve_module(&module, &asked, &search);
    if report {
        eprint!("{}", symbols.report);
    }
    // Answers come in ascending order: a walk beside the questions saves a search for each.
    let mut order: Vec<usize> = (0..asked.len()).collect();
    order.sort_unstable_by_key(|&i| asked[i]);
    let mut answers = vec![&[][..]; asked.len()];
    let mut known = symbols.iter().peekable();
    for i in order {
        while known.next_if(|(svma, _)| *svma < asked[i]).is_some() {}
        if let Some((_, frames)) = known.peek().filter(|(svma, _)| *svma == asked[i]) {
            answers[i] = frames;
        }
    }
    for (svma, frames) in asked.into_iter().zip(answers) {
        writeln!(out, "{svma:#x}")?;
        for frame in frames {
            let function = frame.function.as_ref();
            let name =
                function.map_or("??", |name| if raw { name.raw() } else { name.demangled() });
            let file = frame.file.as_deref().unwrap_or("??");
            let (line, column) = (frame.line.unwrap_or(0), frame.column.unwrap_or(0));
            writeln!(out, "{name}\n{file}:{line}:{column}")?;
        }
        if frames.is_empty() {
            writeln!(out, "??\n??:0:0")?;
        }
        writeln!(out)?;
    }
    Ok(out.flush()?)
}
