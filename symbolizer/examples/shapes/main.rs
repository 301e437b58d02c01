//! Shapes: inputs of which one thing is many, of any size: `shapes NAME COUNT FOLDER`, or
//! `shapes --list`.
//!
//! Writes the files of a shape into the folder, and prints the paths of the files for a command. An
//! input of ten times the count is ten times as large. `scripts/scaling` measures whether a command
//! takes ten times as long, and `scripts/fuzz-commands` starts from small inputs.

mod builder;
mod elf;
mod folders;
mod hostile;
mod logs;
mod profiles;
mod texts;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Writes the files of a shape into a folder, and returns those that a command is given.
type Make = fn(count: u64, folder: &Path) -> io::Result<Vec<PathBuf>>;

/// The name of a shape, what there is COUNT times, and what writes it.
#[rustfmt::skip]
const SHAPES: &[(&str, &str, Make)] = &[
    ("blocks", "blocks of a log, half of them freed", logs::blocks),
    ("stacks", "stacks of a log, of 20 frames in 200 modules", logs::stacks),
    ("deep", "stacks of a log, as deep as the library records them", logs::deep),
    ("sizes", "blocks of a log, each of another size and stack", logs::sizes),
    ("threads", "threads of a log, with a sample each", logs::threads),
    ("counters", "threads of a log, and readings of its counters", logs::counters),
    ("modules", "modules of a log, with a stack through each", logs::modules),
    ("generations", "times that one module is loaded and unloaded again", logs::generations),
    ("movers", "modules that follow each other at places that overlap", logs::movers),
    ("nested", "modules that each lie within the one before", hostile::nested),
    ("segments", "segments of one module", hostile::segments),
    ("markers", "markers of a log", logs::markers),
    ("regimes", "changes of the interval, with a stack sampled under each", logs::regimes),
    ("stops", "times that recording is stopped", logs::stops),
    ("settings", "settings of a log", logs::settings),
    ("checkpoint", "rows of a checkpoint that a log begins with", logs::checkpoint),
    ("rotations", "segments of a log that rotates, in one file", logs::rotations),
    ("processes", "processes of a joined log, with a thread each", logs::processes),
    ("orphans", "processes of a joined log whose parents are not among them", logs::orphans),
    ("damage", "damaged frames that overlap", hostile::damage),
    ("gaps", "damaged frames that claim the whole frames behind them", hostile::gaps),
    ("holes", "runs of zeros between the frames of a log", hostile::holes),
    ("frames", "frames of one stack", hostile::frames),
    ("interrupted", "frames of one stack, all of them interrupted", hostile::interrupted),
    ("colliding", "blocks whose ids have one hash", hostile::colliding),
    ("chain", "logs of processes that were each forked from the one before", folders::chain),
    ("children", "logs of processes that were forked from one", folders::children),
    ("containers", "logs of processes with the same numbers", folders::containers),
    ("rotating", "logs that rotate, in one folder", folders::rotating),
    ("newest", "segments of a log that rotates, in a file each", folders::newest),
    ("unloaded", "modules that a parent unloaded, with a stack through each", folders::unloaded),
    ("pair", "stacks, modules and changes of the interval of two logs", folders::pair),
    ("machines", "logs of processes that have the same modules elsewhere", folders::machines),
    ("dumps", "dumps of processes of one program", folders::dumps),
    ("lines", "lines of a dump", texts::lines),
    ("mappings", "mappings of a dump that overlap", texts::mappings),
    ("identified", "mappings of a dump with build-ids", texts::identified),
    ("symbols", "names in front of a dump", texts::symbols),
    ("dashes", "dashes in one name of a dump", texts::dashes),
    ("jemalloc-threads", "threads of a profile of jemalloc's, with one stack", texts::jemalloc_threads),
    ("jemalloc-stacks", "stacks of a profile of jemalloc's", texts::jemalloc_stacks),
    ("perf-map", "lines of a perf map, and addresses that they name", texts::perf_map),
    ("samples", "samples of a profile of pprof's", profiles::samples),
    ("locations", "locations of a profile of pprof's, with names and lines", profiles::locations),
    ("pprof-mappings", "mappings of a profile of pprof's that overlap", profiles::mappings),
    ("labels", "labels of one sample of pprof's", profiles::labels),
    ("elf-symbols", "symbols of a program, and addresses in it", elf::symbols),
    ("elf-nested", "symbols of a program that each lie within the one before", elf::nested),
    ("offsets", "addresses of one program, from its beginning on", elf::offsets),
    ("members", "files of a bundle, each of a module of its own", elf::members),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shapes: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[&str]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match *arguments {
        ["--list"] => {
            (SHAPES.iter()).try_for_each(|(name, what, _)| writeln!(out, "{name}\t{what}"))
        }
        [name, count, folder] => {
            let shape = SHAPES.iter().find(|(known, ..)| *known == name);
            let (Some((.., make)), Ok(count)) = (shape, count.parse()) else {
                return Err(io::Error::other("no such shape, or no number"));
            };
            let folder = Path::new(folder);
            std::fs::create_dir_all(folder)?;
            let files = make(count, &folder.canonicalize()?)?;
            (files.iter()).try_for_each(|file| writeln!(out, "{}", file.display()))
        }
        _ => Err(io::Error::other(
            "usage: shapes NAME COUNT FOLDER | shapes --list",
        )),
    }
}
