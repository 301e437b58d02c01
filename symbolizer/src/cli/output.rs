//! An output: standard output, or a file that appears under its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::cli::failure::Failure;

/// Calls `write` with the file, or with standard output when there is none.
///
/// A file is written beside its place and then renamed: a failure leaves what was there before, and
/// an output over its own input does not pull the map from under its reader.
pub(crate) fn to(
    path: Option<&Path>,
    write: impl FnOnce(&mut BufWriter<Box<dyn Write>>) -> io::Result<()>,
) -> Result<(), Failure> {
    let Some(path) = path else {
        let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(io::stdout().lock()));
        return write(&mut out)
            .and_then(|()| out.flush())
            .map_err(Failure::Stdout);
    };
    let fail = |source| Failure::Write {
        path: path.into(),
        source,
    };
    // A device or a pipe is not replaced but written to.
    let is_special = fs::metadata(path).is_ok_and(|meta| !meta.is_file());
    let mut partial = path.as_os_str().to_owned();
    if !is_special {
        partial.push(format!(".{}.partial", std::process::id()));
    }
    let partial = Path::new(&partial);
    let written = File::create(partial).and_then(|file| {
        let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(Box::new(file));
        write(&mut out)?;
        out.flush()
    });
    if is_special {
        return written.map_err(fail);
    }
    written
        .and_then(|()| fs::rename(partial, path))
        .map_err(|error| {
            let _ = fs::remove_file(partial);
            fail(error)
        })
}
