//! Annotations of a difference: workflow commands of GitHub Actions, which shows them at the lines.

use std::io::{self, Write};
use std::path::Path;

use heapprof_symbolizer::{Change, Diff, DiffSite, Measure, Printable, SourceLine, Verdict};

use crate::cli::commands::diff::signed::{Signed, standard_error};

/// Writes a notice with the total, and a warning for each site that grew by more than noise.
pub(super) fn write(
    diff: &Diff,
    changes: &[(&DiffSite, &Change)],
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    let signed = Signed::of(metric, changes);
    let total = &diff.total;
    let message = format!(
        "{metric}: {} ({}; standard error {}), {} before, {} after",
        signed.difference(total.difference()),
        total.verdict().name(),
        standard_error(&signed, total),
        signed.quantity(total.before),
        signed.quantity(total.after),
    );
    command("notice", None, &message, out)?;
    let base = std::env::var_os("GITHUB_WORKSPACE")
        .map(Into::into)
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_default();
    for (site, change) in changes {
        let has_grown = change.difference() > 0.0;
        if !has_grown || !matches!(change.verdict(), Verdict::Real | Verdict::Exact) {
            continue;
        }
        let message = format!(
            "{} in {}: {metric} {} before, {} after",
            signed.difference(change.difference()),
            site.title(),
            signed.quantity(change.before),
            signed.quantity(change.after),
        );
        let at = diff.lines.get(*site).map(|at| within(at, &base));
        command("warning", at.as_ref(), &message, out)?;
    }
    Ok(())
}

/// The line with the file's path in the repository, if it is below its folder.
fn within(at: &SourceLine, base: &Path) -> SourceLine {
    let file = Path::new(&at.file);
    let file = file.strip_prefix(base).unwrap_or(file);
    SourceLine {
        file: file.display().to_string(),
        line: at.line,
    }
}

fn command(
    kind: &str,
    at: Option<&SourceLine>,
    message: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    write!(out, "::{kind} ")?;
    if let Some(at) = at {
        write!(out, "file={},line={},", property(&at.file), at.line)?;
    }
    writeln!(out, "title=heapprof::{}", data(message))
}

/// A message, in which only these characters end it or begin an escape.
fn data(text: &str) -> String {
    let text = Printable(text).to_string();
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// A value between commas.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_one_line_whatever_the_names_are() {
        let at = SourceLine {
            file: "/repo/a,b:c.cpp".into(),
            line: 7,
        };
        let mut out = Vec::new();
        let at = within(&at, Path::new("/repo"));
        command("warning", Some(&at), "5 % in f(a::b)", &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "::warning file=a%2Cb%3Ac.cpp,line=7,title=heapprof::5 %25 in f(a::b)\n"
        );
    }
}
