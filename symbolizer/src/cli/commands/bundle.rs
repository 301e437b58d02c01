//! `heapprof bundle`: writes a profile and the files that name it, for another machine.

use std::io;
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{Bundled, Bytes, Input, Profile, ReadRequest, Symbols, write_bundle};

use crate::cli::inputs::single_file::read;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::options::time::TimeArgs;
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::say;

/// Put a profile and the binaries and debug files that name it into one archive
///
/// The archive (tar) can be given to every command instead of the profile, on any machine, with the
/// same result; unpacked, it is a folder for PPROF_BINARY_PATH. The same input makes the same
/// bytes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A record log (.heaplog), a heap dump (.heap) of heapprof, gperftools or jemalloc, or a heap
    /// profile of pprof (.pb.gz); of several processes, the log that `heapprof join` makes of
    /// theirs
    #[arg(value_name = "FILE")]
    file: PathBuf,

    #[command(flatten)]
    time: TimeArgs,

    #[command(flatten)]
    places: SymbolArgs,

    /// Replace any file under the default name, and a bundle of the same profile with more names
    #[arg(long)]
    overwrite: bool,

    /// Write to this file; - is standard output [default: FILE with .tar in place of its extension,
    /// in the current folder, where only a bundle of the same profile is replaced]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let name = args.file.file_name().unwrap_or_default();
    let beside = PathBuf::from(name).with_extension("tar");
    let out = Destination::or(args.output.as_ref(), &beside);
    out.refuse_terminal("a bundle")?;
    out.refuse_input([&args.file])?;
    let request = ReadRequest {
        view: args.time.view(),
        ..ReadRequest::default()
    };
    let profile = read(&args.file, &request)?;
    let symbols = args.places.symbols(&args.file, &profile)?;
    let input = Input::open(&args.file)?;
    if let Some(path) = out.path().filter(|_| !args.overwrite) {
        out.refuse_foreign("a bundle of the same profile", |path| {
            let old = Input::open_alone(path).ok()?;
            Some(old.is_bundle() && is_same(&old, &input))
        })?;
        refuse_worse(path, &input, &profile, &symbols)?;
    }
    let mut bundled = Bundled::default();
    out.write(|out| {
        let written = write_bundle(&input.name(), input.bytes(), &profile, &symbols, out);
        bundled = written.map_err(io::Error::other)?;
        Ok(())
    })?;
    let size: u64 = bundled.members.iter().map(|(_, size)| size).sum();
    let missing = symbols
        .reports()
        .values()
        .filter(|report| report.quality.unresolved > 0)
        .count();
    say::note(&format_args!(
        "{}: the profile and {} files, {}",
        out.path()
            .map_or("standard output".into(), |out| out.to_string_lossy()),
        bundled.members.len().saturating_sub(1),
        Bytes(size as f64)
    ));
    for path in &bundled.left_out {
        say::note(&format_args!(
            "note: {} is left out: it has no build-id, and is not known to be the file that ran; --sysroot / takes it",
            path.display()
        ));
    }
    if missing > 0 {
        let modules = match missing {
            1 => "one module has".to_owned(),
            _ => format!("{missing} modules have"),
        };
        say::note(&format_args!(
            "note: {modules} addresses that nothing here names; `heapprof info` says why"
        ));
    }
    Ok(())
}

/// Refuses to replace a bundle of the same profile that names more of it: the files that it has may
/// be nowhere else.
fn refuse_worse(
    path: &Path,
    input: &Input,
    profile: &Profile,
    symbols: &Symbols,
) -> Result<(), Failure> {
    let Ok(old) = Input::open_alone(path) else {
        return Ok(());
    };
    if !old.is_bundle() || !is_same(&old, input) {
        return Ok(());
    }
    let of_old = SymbolArgs::default().symbols(path, profile)?;
    let [(had, had_lines), (has, has_lines)] = [&of_old, symbols].map(named_and_with_lines);
    if had <= has && had_lines <= has_lines {
        return Ok(());
    }
    Err(Failure::Unfulfilled(format!(
        "{} names {had} addresses of this profile, {had_lines} with lines, and a new bundle would name {has}, \
         {has_lines} with lines: it stays; -o writes the new one elsewhere, --overwrite in its place",
        path.display()
    )))
}

/// Returns true if two inputs are the same profile.
fn is_same(old: &Input, new: &Input) -> bool {
    match (old.start(), new.start()) {
        (Some(old), Some(new)) => old == new,
        _ => old.bytes() == new.bytes(),
    }
}

/// How many addresses have a name, and how many of these a line.
fn named_and_with_lines(symbols: &Symbols) -> (u64, u64) {
    let (asked, unnamed) = symbols.asked_and_unnamed();
    let lines = symbols
        .reports()
        .values()
        .map(|report| report.quality.by_dwarf);
    (asked - unnamed, lines.sum())
}
