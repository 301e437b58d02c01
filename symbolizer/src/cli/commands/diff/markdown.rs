//! Markdown of a difference: for a comment on a pull request, or the summary of a job.

use std::io::{self, Write};

use heapprof_symbolizer::{
    Change, Comparability, Count, Diff, DiffSite, Measure, Printable, SourceLine,
};

use crate::cli::commands::diff::signed::{Signed, standard_error, z_of};

/// Writes the changes, largest first.
pub(super) fn write(
    diff: &Diff,
    changes: &[(&DiffSite, &Change)],
    hidden: usize,
    comparability: &Comparability,
    metric: Measure,
    out: &mut impl Write,
) -> io::Result<()> {
    let signed = Signed::of(metric, changes);
    let total = &diff.total;
    writeln!(
        out,
        "**{metric}: {}** ({}; standard error {}): {} before, {} after",
        signed.difference(total.difference()),
        total.verdict().name(),
        standard_error(&signed, total),
        signed.quantity(total.before),
        signed.quantity(total.after),
    )?;
    if !changes.is_empty() {
        writeln!(out)?;
        writeln!(
            out,
            "| difference | std. error | z | | before | after | function | line |"
        )?;
        writeln!(
            out,
            "| ---: | ---: | ---: | --- | ---: | ---: | --- | --- |"
        )?;
    }
    for (site, change) in changes {
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            signed.difference(change.difference()),
            standard_error(&signed, change),
            z_of(change),
            change.verdict().name(),
            signed.quantity(change.before),
            signed.quantity(change.after),
            code(&site.title()),
            code(&place(diff.lines.get(*site), site)),
        )?;
    }
    if hidden > 0 {
        writeln!(out, "\n… and {} more", Count(hidden as u64))?;
    }
    let remarks = comparability.programs.iter().chain(&comparability.remarks);
    for (number, remark) in remarks.chain(&comparability.caveats).enumerate() {
        if number == 0 {
            writeln!(out)?;
        }
        writeln!(out, "* {}", escaped(remark))?;
    }
    Ok(())
}

/// File and line, or else the module.
fn place(line: Option<&SourceLine>, site: &DiffSite) -> String {
    match line {
        Some(at) => format!("{}:{}", at.file, at.line),
        None => site.module.clone(),
    }
}

/// A name as code in a cell. A name with a backquote stands between two of them.
fn code(text: &str) -> String {
    let text = Printable(text).to_string().replace('|', "\\|");
    match text.contains('`') {
        _ if text.is_empty() => String::new(),
        true => format!("`` {text} ``"),
        false => format!("`{text}`"),
    }
}

/// A sentence, none of whose characters are marks.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in Printable(text).to_string().chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '<' | '[' | '#' | '|') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_code_and_sentences_have_no_marks() {
        assert_eq!(code("operator|(int)"), r"`operator\|(int)`");
        assert_eq!(code("a`b"), "`` a`b ``");
        assert_eq!(code(""), "");
        assert_eq!(escaped("a_b <c> *d*"), r"a\_b \<c> \*d\*");
    }
}
