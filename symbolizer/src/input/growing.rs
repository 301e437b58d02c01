//! Growing log: a log that its process may still write to.

use std::path::Path;
use std::time::Duration;

use crate::analysis::view::ReadRequest;
use crate::input::Input;
use crate::model::run::Ending;
use crate::presence::{self, Began};
use crate::read::beginning::start_of_file;
use crate::regular_file::RegularFile;

/// A log without an end that was written so recently, and whose process may be another machine's,
/// is taken for one that grows.
const SILENCE: Duration = Duration::from_secs(60);

/// Returns true if the log in a file, which lies at that path, may still be written to.
///
/// The library holds its log open, which the kernel tells where the file system supports leases.
/// Elsewhere, and if the library could not hold it open, the log says whether it has an end, and
/// the machine whether the process runs.
pub fn may_grow(file: &RegularFile, path: &Path) -> bool {
    let is_open = file.is_open_to_write();
    if is_open == Some(true) {
        return true;
    }
    let is_there = start_of_file(file).and_then(|start| {
        let began = Began {
            wall_ns: start.wall_ns,
            monotonic_ns: start.monotonic_ns,
        };
        presence::is_there(start.pid, &start.program, began)
    });
    if is_open == Some(false) && is_there != Some(true) {
        return false;
    }
    let read =
        Input::open_alone(path).and_then(|input| input.read_part(&ReadRequest::default(), |_| {}));
    let Ok(profile) = read else {
        return false; // no log that could be read
    };
    let silence = file
        .meta()
        .modified()
        .ok()
        .and_then(|then| then.elapsed().ok());
    match profile.run.ending {
        Ending::Running => true,
        Ending::CutOff => is_open.is_none() && silence.is_some_and(|silence| silence < SILENCE),
        Ending::Said(_) | Ending::Snapshot => false,
    }
}
