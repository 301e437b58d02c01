//! Beginning: what the first bytes of a log's file say. A compressed one is unpacked so far only.

use heapprof_format::{FILE_HEADER, FILE_HEADER_LEN, Reader, Start};

use crate::compressed::PlainFile;
use crate::read::parent_log::start_of;
use crate::regular_file::RegularFile;

/// The longest first record that is looked for in a compressed log: its frame is unpacked so far.
const MOST: usize = 4 << 20;

/// Returns true if a file is a log of any version, compressed or not.
pub fn is_log_file(file: &RegularFile) -> bool {
    const NAME: usize = FILE_HEADER_LEN - 1;
    PlainFile::head(file, NAME).is_ok_and(|head| head == FILE_HEADER[..NAME])
}

/// Returns the first record of a log, compressed or not.
pub fn start_of_file(file: &RegularFile) -> Option<Start> {
    let map = file.map().ok()?;
    match Reader::new(&map) {
        Ok(_) => start_of(&map),
        Err(_) => start_of(&PlainFile::head(file, MOST).ok()?),
    }
}
