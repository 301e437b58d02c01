//! Table: lines with aligned columns, no wider than is asked for (`width`).
//!
//! A table that is too wide gives up room in turns ([`TURNS`]). Paths lose their beginnings,
//! functions their arguments and then the beginnings of their paths, and other names their ends,
//! the more the narrower it must become. Before names begin to look alike, columns that a table can
//! spare are left out. Numbers are never cut: if names cannot give more, the table is wider than
//! the terminal.

use std::io::{self, Write};

use heapprof_symbolizer::{Printable, cut, cut_front, cut_function, cut_middle};
use unicode_width::UnicodeWidthStr;

use crate::cli::output::colour::{self, TextStyle};

/// The columns that give up room in turn, and their least widths (a heading may need more). Below
/// the widths of the first two turns ([`EARLY_TURNS`]), names begin to look alike, and of a path
/// only the file's name and the line are left.
const TURNS: [(Align, usize); 6] = [
    (Align::Path, 24),
    (Align::Left, 24),
    (Align::Path, 16),
    (Align::Left, 12),
    (Align::Path, 8),
    (Align::Left, 8),
];
/// The turns that are taken before columns are left out.
const EARLY_TURNS: usize = 2;

/// Where a column's text stands, and which end of it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// A name: its beginning says most.
    Left,
    /// A function's name: its last part says most.
    Function,
    Right,
    /// As `Left`, but its end says most.
    Path,
    /// As `Left`, but its middle says least: a name and its place.
    Both,
}

#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<(String, TextStyle)>>,
    spare: Vec<usize>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The columns, by their places, that a narrow table does without; the first one goes first.
    pub(crate) fn spare(&mut self, columns: &[usize]) {
        self.spare = columns.to_vec();
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        let plain = cells.into_iter().map(|cell| (cell, TextStyle::Plain));
        self.row_of(plain.collect());
    }

    /// A row with a style for each cell.
    pub(crate) fn row_of(&mut self, cells: Vec<(String, TextStyle)>) {
        let harmless = |(cell, style): (String, TextStyle)| (Printable(&cell).to_string(), style);
        self.rows.push(cells.into_iter().map(harmless).collect());
    }

    /// Writes it, each line indented by two.
    pub(crate) fn write(&self, width: Option<usize>, out: &mut impl Write) -> io::Result<()> {
        self.write_in(width, colour::is_on(), out)
    }

    fn write_in(
        &self,
        width: Option<usize>,
        is_coloured: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let header: Vec<(String, TextStyle)> = self
            .columns
            .iter()
            .map(|(name, _)| (name.clone(), TextStyle::Heading))
            .collect();
        let widths = self.widths(width);
        for row in std::iter::once(&header).chain(&self.rows) {
            let mut line = String::from(" ");
            let last = row.iter().rposition(|(cell, _)| !cell.is_empty());
            for (i, (cell, style)) in row.iter().enumerate().take(last.map_or(0, |i| i + 1)) {
                let align = self.columns[i].1;
                let Some(width) = widths[i] else { continue };
                let cell = match align {
                    Align::Left => cut(cell, width),
                    Align::Function => cut_function(cell, width),
                    Align::Path => cut_front(cell, width),
                    Align::Both => cut_middle(cell, width),
                    Align::Right => cell.clone(),
                };
                let gap = " ".repeat(width.saturating_sub(cell.width()));
                let is_end = Some(i) == last;
                let painted = style.paint(&cell, is_coloured);
                let text = match align {
                    Align::Right => format!(" {gap}{painted}"),
                    _ if is_end => format!(" {painted}"),
                    _ => format!(" {painted}{gap}"),
                };
                line.push_str(&text);
                if !is_end {
                    line.push(' ');
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }

    /// The width of each column; `None`: it is left out.
    fn widths(&self, width: Option<usize>) -> Vec<Option<usize>> {
        let of_column = |i: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(i));
            let cells = cells.map(|(cell, _)| cell.width());
            let widest = cells.max().unwrap_or(0).max(self.columns[i].0.width());
            Some(widest)
        };
        let mut widths: Vec<Option<usize>> = (0..self.columns.len()).map(of_column).collect();
        let Some(width) = width else { return widths };
        for &column in &self.spare {
            let mut narrow = widths.clone();
            if self.narrow(&mut narrow, width, &TURNS[..EARLY_TURNS]) == 0 {
                break;
            }
            widths[column] = None;
        }
        self.narrow(&mut widths, width, &TURNS);
        widths
    }

    /// Lets columns give up room in these turns. Returns by how much the table is still too wide.
    fn narrow(
        &self,
        widths: &mut [Option<usize>],
        width: usize,
        turns: &[(Align, usize)],
    ) -> usize {
        let all: usize = widths.iter().flatten().map(|width| width + 2).sum();
        let mut over = all.saturating_sub(width);
        for &(kind, least) in turns {
            for ((heading, align), width) in self.columns.iter().zip(widths.iter_mut()) {
                let is_name = matches!(align, Align::Both | Align::Function);
                let is_its_turn = *align == kind || (is_name && kind == Align::Left);
                if let Some(width) = width.as_mut().filter(|_| is_its_turn) {
                    let given = over.min(width.saturating_sub(least.max(heading.width())));
                    *width -= given;
                    over -= given;
                }
            }
        }
        over
    }
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

    fn text(table: &Table, width: Option<usize>) -> String {
        let mut out = Vec::new();
        table.write_in(width, false, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_names_harmless() {
        assert_eq!(
            text(&table(), None),
            "      n  name\n  1,000  a\\x1bb\n      7  a long name\n"
        );
    }

    #[test]
    fn long_lines_are_cut_on_a_terminal_only() {
        assert_eq!(
            text(&table(), Some(18)),
            "      n  name\n  1,000  a\\x1bb\n      7  a long n…\n"
        );
    }

    #[test]
    fn paths_give_up_room_first_and_keep_their_ends() {
        let columns = [("name", Align::Left), ("where", Align::Path)];
        let mut table = Table::new(&columns);
        let (name, path) = ("n".repeat(30), format!("/{}/file.rs:7", "p".repeat(40)));
        table.row(vec![name.clone(), path.clone()]);
        let last = |width| text(&table, Some(width)).lines().last().unwrap().to_owned();
        assert_eq!(last(90), format!("  {name}  {path}"));
        assert_eq!(
            last(30 + 2 + 30 + 2),
            format!("  {name}  …{}/file.rs:7", "p".repeat(19))
        );
        assert_eq!(
            last(24 + 2 + 24 + 2),
            format!("  {}…  …{}/file.rs:7", "n".repeat(23), "p".repeat(13))
        );
        for width in 40..100 {
            let text = text(&table, Some(width));
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
        }
    }

    /// `top` of samples at 80 columns: five columns of numbers, a function and where it is.
    #[test]
    fn narrow_tables_keep_numbers_and_the_ends_of_paths() {
        let columns = [
            ("self", Align::Right),
            ("±", Align::Right),
            ("", Align::Right),
            ("cum", Align::Right),
            ("", Align::Right),
            ("function", Align::Function),
            ("where", Align::Path),
        ];
        let mut table = Table::new(&columns);
        let numbers = ["115.8 MiB", "1.1 MiB", "59.1%", "115.8 MiB", "59.1%"];
        let names = [
            "Server::read_request(unsigned long)",
            "/home/me/src/w.cpp:14",
        ];
        let cells = numbers.iter().chain(&names).map(|cell| cell.to_string());
        table.row(cells.collect());
        for width in 30..120 {
            let text = text(&table, Some(width));
            let row = text.lines().last().unwrap();
            let numbers = "  115.8 MiB  1.1 MiB  59.1%  115.8 MiB  59.1%  ";
            assert!(row.starts_with(numbers), "{width}: {row}");
            assert!(row.contains("read_re"), "{width}: {row}");
            assert!(
                width < 80 || row.contains("read_request("),
                "{width}: {row}"
            );
            assert!(row.ends_with("cpp:14"), "{width}: {row}");
            assert!(width < 67 || row.width() <= width, "{width}: {row}");
            assert!(width < 80 || row.ends_with("/w.cpp:14"), "{width}: {row}");
        }
    }

    #[test]
    fn a_narrow_table_does_without_spare_columns_before_names_look_alike() {
        let columns = [
            ("self", Align::Right),
            ("cum", Align::Right),
            ("function", Align::Function),
        ];
        let mut table = Table::new(&columns);
        table.row(vec!["1.0 MiB".into(), "2.0 MiB".into(), "f".repeat(30)]);
        table.spare(&[1]);
        let first = |width| text(&table, Some(width)).lines().next().unwrap().to_owned();
        assert_eq!(first(9 + 9 + 26), "     self      cum  function");
        assert_eq!(first(9 + 9 + 25), "     self  function");
        let whole = format!("  1.0 MiB  {}", "f".repeat(30));
        assert_eq!(text(&table, Some(43)).lines().last(), Some(&*whole));
    }

    #[test]
    fn a_name_with_its_place_loses_its_middle() {
        let mut table = Table::new(&[("n", Align::Right), ("line", Align::Both)]);
        table.row(vec![
            "1".into(),
            "leak(unsigned long) /tmp/a/w.cpp:31".into(),
        ]);
        assert_eq!(
            text(&table, Some(28)).lines().last(),
            Some("  1  leak(unsign…/a/w.cpp:31")
        );
        assert_eq!(cut_middle("abcdef", 5), "ab…ef");
        assert_eq!(cut_middle("abcdef", 1), "…");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(vec!["函数".into(), "1".into()]);
        table.row(vec!["four".into(), "22".into()]);
        assert_eq!(text(&table, None), "  name   n\n  函数   1\n  four  22\n");
        assert_eq!(cut("函数函数", 5), "函数…");
        assert_eq!(cut_front("函数函数", 4), "…数");
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let mut table = Table::new(&[("n", Align::Right), ("name", Align::Left)]);
        table.row_of(vec![
            ("1".into(), TextStyle::Large),
            ("a\u{1b}[31mb".into(), TextStyle::Name),
        ]);
        let mut out = Vec::new();
        table.write_in(None, true, &mut out).unwrap();
        let coloured = String::from_utf8(out).unwrap();
        let mut plain = coloured.clone();
        for style in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[4m"] {
            plain = plain.replace(style, "");
        }
        assert_ne!(coloured, plain);
        assert_eq!(plain, text(&table, None));
        assert!(plain.contains("\\x1b[31m"), "a name cannot colour");
    }
}
