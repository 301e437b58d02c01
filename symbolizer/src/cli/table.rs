//! A table: columns aligned, the last one cut to the terminal's width. On a pipe nothing is cut.

use std::io::{self, IsTerminal, Write};

use heapprof_symbolizer::Printable;

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(
            cells
                .iter()
                .map(|cell| Printable(cell).to_string())
                .collect(),
        );
    }

    /// Writes it, each line indented by two; lines longer than `width` are cut with an ellipsis.
    pub(crate) fn write(&self, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().filter_map(|row| row.get(i));
                cells
                    .chain([&header[i]])
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::from(" ");
            for (i, cell) in row.iter().enumerate() {
                let width = widths.get(i).copied().unwrap_or(0);
                line.push(' ');
                match self.columns.get(i).map(|(_, align)| *align) {
                    Some(Align::Right) => line.push_str(&format!("{cell:>width$}")),
                    _ => line.push_str(&format!("{cell:<width$}")),
                }
                line.push(' ');
            }
            let line = line.trim_end();
            match width {
                Some(width) if line.chars().count() > width => {
                    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
                    writeln!(out, "{cut}…")?;
                }
                _ => writeln!(out, "{line}")?,
            }
        }
        Ok(())
    }
}

/// The terminal's width, when standard output is one.
pub(crate) fn stdout_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    terminal_size::terminal_size().map(|(width, _)| usize::from(width.0).max(40))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[("n", Align::Right), ("name", Align::Left)]);
        table.row(vec!["1,000".into(), "a\u{1b}b".into()]);
        table.row(vec!["7".into(), "a long name".into()]);
        table
    }

    fn text(width: Option<usize>) -> String {
        let mut out = Vec::new();
        table().write(width, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_names_harmless() {
        assert_eq!(
            text(None),
            "      n  name\n  1,000  a\\x1bb\n      7  a long name\n"
        );
    }

    #[test]
    fn long_lines_are_cut_on_a_terminal_only() {
        assert_eq!(
            text(Some(15)),
            "      n  name\n  1,000  a\\x1bb\n      7  a lon…\n"
        );
    }
}
