//! Parser of dumps, ours and others'.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Dump, DumpError, DumpErrorKind, DumpLine, Mapping, Sampling, Symbols};

impl Dump {
    /// Parses a dump. Lines that no dump of ours holds are skipped with a remark, because others
    /// write some. A malformed line of the account is an error.
    ///
    /// # Errors
    /// If the bytes are no dump, or are damaged or cut off.
    pub fn parse(bytes: &[u8]) -> Result<Dump, DumpError> {
        Parser::new(bytes).dump()
    }
}

/// The lines of a file, one after another.
struct Parser<'a> {
    bytes: &'a [u8],
    /// Offset of the next line.
    next: usize,
    /// Number of the last line, for errors.
    line: u64,
    offset: usize,
    dump: Dump,
    unknown_lines: u64,
    first_unknown: u64,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Parser {
            bytes,
            next: 0,
            line: 0,
            offset: 0,
            dump: Dump::default(),
            unknown_lines: 0,
            first_unknown: 0,
        }
    }

    fn take(&mut self) -> Option<std::borrow::Cow<'a, str>> {
        let rest = self
            .bytes
            .get(self.next..)
            .filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|&b| b == b'\n');
        self.offset = self.next;
        self.line += 1;
        self.next += end.map_or(rest.len(), |end| end + 1);
        let line = &rest[..end.unwrap_or(rest.len())];
        Some(String::from_utf8_lossy(
            line.strip_suffix(b"\r").unwrap_or(line),
        ))
    }

    fn error<T>(&self, kind: DumpErrorKind) -> Result<T, DumpError> {
        Err(DumpError {
            line: self.line.max(1),
            offset: self.offset as u64,
            kind,
        })
    }

    fn pass_over(&mut self) {
        if self.unknown_lines == 0 {
            self.first_unknown = self.line;
        }
        self.unknown_lines += 1;
    }

    fn dump(mut self) -> Result<Dump, DumpError> {
        if self.bytes.is_empty() {
            return self.error(DumpErrorKind::Empty);
        }
        let header = self.header()?;
        let has_mappings = self.account()?;
        self.mappings();

        let mut sums = [0u64; 4];
        for l in &self.dump.lines {
            let numbers = [
                l.in_use_objects,
                l.in_use_bytes,
                l.allocated_objects,
                l.allocated_bytes,
            ];
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum = sum.saturating_add(number);
            }
        }
        // The header may have one byte more, see the module's text.
        let is_whole = sums[..3] == header[..3] && header[3].abs_diff(sums[3]) <= 1;
        if !is_whole && !has_mappings {
            self.offset = self.bytes.len();
            return self.error(DumpErrorKind::Cut);
        }
        if !is_whole {
            let remark = format!("the lines sum to {sums:?}, the header says {header:?}");
            self.dump.remarks.push(remark);
        }
        if !has_mappings {
            self.dump
                .remarks
                .push("no MAPPED_LIBRARIES: addresses belong to no file".into());
        }
        if self.bytes.last() != Some(&b'\n') {
            self.dump
                .remarks
                .push("the last line has no end: the file may be cut off".into());
        }
        if self.unknown_lines > 0 {
            let (lines, first) = (self.unknown_lines, self.first_unknown);
            self.dump.remarks.push(format!(
                "{lines} lines passed over, the first is line {first}"
            ));
        }
        Ok(self.dump)
    }

    /// Takes the lines before the account. Returns the header's numbers.
    fn header(&mut self) -> Result<[u64; 4], DumpError> {
        let mut line = self.take().unwrap_or_default();
        while line.starts_with("%warn") {
            line = self.take().unwrap_or_default();
        }
        if line.trim_end() == "--- symbol" {
            self.symbols()?;
            line = self.take().unwrap_or_default();
            if line.starts_with("--- ") {
                line = self.take().unwrap_or_default();
            }
        }
        if line.starts_with("heap_v2/") {
            return self.error(DumpErrorKind::Jemalloc);
        }
        let Some(rest) = line.strip_prefix("heap profile:") else {
            return self.error(DumpErrorKind::NotADump);
        };
        let Some((numbers, kind)) = parse_numbers(rest) else {
            return self.error(DumpErrorKind::Header);
        };
        let (name, period) = match kind.split_once('/') {
            Some((name, period)) => (name.trim(), period.trim().parse().ok()),
            None => (kind, None),
        };
        self.dump.sampling = match (name, period) {
            ("heapprofile", _) => Sampling::Unsampled,
            // A period of 1 or 0: every allocation.
            ("heap_v2" | "heapz_v2", Some(interval)) => Sampling::Poisson { interval },
            // Go's runtime states twice its rate, for readers that halve it.
            ("heap", Some(period)) => Sampling::Poisson {
                interval: period / 2,
            },
            _ => return self.error(DumpErrorKind::Kind),
        };
        Ok(numbers)
    }

    fn symbols(&mut self) -> Result<(), DumpError> {
        let mut symbols = Symbols::default();
        loop {
            let Some(line) = self.take() else {
                return self.error(DumpErrorKind::SymbolsCut);
            };
            if line.trim_end() == "---" {
                self.dump.symbols = Some(symbols);
                return Ok(());
            }
            if let Some(binary) = line.strip_prefix("binary=") {
                symbols.binary = binary.into();
            } else if let Some((address, names)) = line
                .strip_prefix("0x")
                .and_then(|line| line.split_once(' '))
                .and_then(|(address, names)| Some((parse_hex(address)?, names)))
            {
                symbols
                    .names
                    .push((address, names.split("--").map(parse_name).collect()));
            } else {
                self.pass_over();
            }
        }
    }

    /// Takes the account. Returns true if mappings follow.
    fn account(&mut self) -> Result<bool, DumpError> {
        while let Some(line) = self.take() {
            let line = line.trim();
            if line == "MAPPED_LIBRARIES:" || line == "--- Memory map: ---" {
                return Ok(true);
            }
            if let Some(comment) = line.strip_prefix('#') {
                self.dump
                    .comments
                    .push(comment.strip_prefix(' ').unwrap_or(comment).into());
            } else if line.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                match self.account_line(line) {
                    Some(line) => self.dump.lines.push(line),
                    None => return self.error(DumpErrorKind::Line),
                }
            } else if !line.is_empty() {
                self.pass_over();
            }
        }
        Ok(false)
    }

    fn account_line(&self, line: &str) -> Option<DumpLine> {
        let (numbers, addresses) = parse_numbers(line)?;
        line.contains('@').then_some(())?;
        let [
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        ] = numbers;
        Some(DumpLine {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
            frames: addresses
                .split_ascii_whitespace()
                .map(parse_hex)
                .collect::<Option<_>>()?,
        })
    }

    fn mappings(&mut self) {
        let mut short: Vec<Mapping> = Vec::new();
        let mut long: Vec<Mapping> = Vec::new();
        while let Some(line) = self.take() {
            if let Some(mapping) = Mapping::parse(&line) {
                long.push(mapping);
            } else if let Some(mapping) = Mapping::parse_short(&line) {
                short.push(mapping);
            } else if !line.trim().is_empty() && !line.trim_start().starts_with(['#', '-']) {
                self.pass_over();
            }
        }
        // A build-id belongs to the file: all its mappings get it, those behind one another that
        // are of the same file as well as the one it was stated for.
        let mut twins: HashMap<(u64, u64), usize> = HashMap::new();
        for (index, mapping) in long.iter().enumerate() {
            twins.entry((mapping.start, mapping.end)).or_insert(index);
        }
        let mut named: HashMap<&str, &Mapping> = HashMap::new();
        for mapping in &short {
            named.entry(&mapping.path).or_insert(mapping);
            match twins.entry((mapping.start, mapping.end)) {
                Entry::Occupied(twin) => {
                    long[*twin.get()].build_id.clone_from(&mapping.build_id);
                }
                Entry::Vacant(place) => {
                    place.insert(long.len());
                    long.push(mapping.clone());
                }
            }
        }
        for mapping in long
            .iter_mut()
            .filter(|m| m.build_id.is_empty() && !m.path.is_empty())
        {
            if let Some(named) = named.get(&*mapping.path) {
                mapping.build_id.clone_from(&named.build_id);
            }
        }
        self.dump.mappings = long;
    }
}

/// Returns the name before `push_name`, as far as possible.
fn parse_name(name: &str) -> String {
    name.trim().replace("operator- -", "operator--")
}

pub(super) fn parse_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

/// Parses `n: bytes [n: bytes] @` and returns the rest.
fn parse_numbers(line: &str) -> Option<([u64; 4], &str)> {
    let (numbers, rest) = line.split_once('@').unwrap_or((line, ""));
    let (in_use, allocated) = numbers.split_once('[')?;
    let allocated = allocated.trim_end().strip_suffix(']')?;
    let pair = |text: &str| -> Option<(u64, u64)> {
        let (objects, bytes) = text.split_once(':')?;
        Some((objects.trim().parse().ok()?, bytes.trim().parse().ok()?))
    };
    let ((a, b), (c, d)) = (pair(in_use)?, pair(allocated)?);
    Some(([a, b, c, d], rest.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::tests::line;

    fn failure(text: &str) -> (u64, DumpErrorKind) {
        let error = Dump::parse(text.as_bytes()).unwrap_err();
        (error.line, error.kind)
    }

    #[test]
    fn sampled_dumps_of_others_are_read_as_they_are() {
        let text = "heap profile:   3:  300 [  4:  500] @ heap_v2/524288\n  3:  300 [  4:  500] @ 0x1 0x2\n\nMAPPED_LIBRARIES:\n";
        let dump = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(dump.sampling, Sampling::Poisson { interval: 524_288 });
        assert_eq!(dump.lines, [line([3, 300, 4, 500], &[1, 2])]);
    }

    #[test]
    fn strange_lines_are_passed_over_and_told() {
        let text = "%warn something\nheap profile: 1: 2 [3: 4] @ heapprofile\nhello\n1: 2 [3: 4] @ 0xa\nMAPPED_LIBRARIES:\nbuild=/x\n";
        let dump = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(dump.lines.len(), 1);
        assert_eq!(dump.remarks, ["2 lines passed over, the first is line 3"]);
    }

    #[test]
    fn errors_name_their_line() {
        let good = "heap profile: 1: 2 [3: 4] @ heapprofile\n";
        assert_eq!(failure(""), (1, DumpErrorKind::Empty));
        assert_eq!(failure("hello\n"), (1, DumpErrorKind::NotADump));
        assert_eq!(
            failure("heap_v2/524288\n t*: 1\n"),
            (1, DumpErrorKind::Jemalloc)
        );
        assert_eq!(
            failure("heap profile: 1: x [3: 4] @ heapprofile\n"),
            (1, DumpErrorKind::Header)
        );
        assert_eq!(
            failure("heap profile: 1: 2 [3: 4] @ growth\n"),
            (1, DumpErrorKind::Kind)
        );
        assert_eq!(
            failure(&format!("{good}1: 2 [3: 4] @ 0xzz\n")),
            (2, DumpErrorKind::Line)
        );
        assert_eq!(
            failure(&format!("{good}99999999999999999999: 2 [3: 4] @ 0x1\n")),
            (2, DumpErrorKind::Line)
        );
        assert_eq!(failure(good), (1, DumpErrorKind::Cut));
        assert_eq!(
            failure("--- symbol\n0x1 a\n"),
            (2, DumpErrorKind::SymbolsCut)
        );
    }

    fn parsed(text: &str) -> Dump {
        Dump::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_not_whole_is_told() {
        const LIBRARIES: &str = "MAPPED_LIBRARIES:\n";
        let with = |header: &str, rest: &str| {
            let text =
                format!("heap profile: {header} @ heapprofile\n1: 2 [3: 10] @ 0xa\n\n{rest}");
            parsed(&text).remarks
        };
        // The header's allocated bytes may differ by one, and no other number may.
        for header in ["1: 2 [3: 10]", "1: 2 [3: 11]", "1: 2 [3: 9]"] {
            assert!(with(header, LIBRARIES).is_empty(), "{header}");
        }
        for header in [
            "1: 2 [3: 12]",
            "1: 2 [3: 8]",
            "2: 2 [3: 10]",
            "1: 3 [3: 10]",
            "1: 2 [4: 10]",
        ] {
            let remarks = with(header, LIBRARIES);
            assert!(
                remarks[0].starts_with("the lines sum to [1, 2, 3, 10]"),
                "{header}"
            );
            assert_eq!(remarks.len(), 1, "{header}");
        }
        assert_eq!(
            with("1: 2 [3: 10]", ""),
            ["no MAPPED_LIBRARIES: addresses belong to no file"]
        );
        assert_eq!(
            with("1: 2 [3: 10]", LIBRARIES.trim_end()),
            ["the last line has no end: the file may be cut off"]
        );
    }

    #[test]
    fn a_dump_that_is_cut_names_where_it_ends() {
        let text = "heap profile: 1: 2 [3: 4] @ heapprofile\n";
        let error = Dump::parse(text.as_bytes()).unwrap_err();
        assert_eq!(
            (error.offset, error.kind),
            (text.len() as u64, DumpErrorKind::Cut)
        );
        // Others name the beginning of their line.
        let text = format!("{text}1: 2 [3: 4] 0x1\n");
        let error = Dump::parse(text.as_bytes()).unwrap_err();
        assert_eq!((error.line, error.offset), (2, 40));
        assert_eq!(error.kind, DumpErrorKind::Line);
    }

    /// Headers of others: Go with twice its rate, tcmalloc with its interval, names before the
    /// account.
    #[test]
    fn what_a_line_stands_for_is_said_in_the_header() {
        let sampling = |kind: &str| {
            let text = format!("heap profile: 0: 0 [0: 0] @ {kind}\nMAPPED_LIBRARIES:\n");
            parsed(&text).sampling
        };
        assert_eq!(
            sampling("heap/1048576"),
            Sampling::Poisson { interval: 524_288 }
        );
        assert_eq!(sampling("heap_v2/1"), Sampling::Poisson { interval: 1 });
        assert_eq!(
            sampling(" heapz_v2 / 512 "),
            Sampling::Poisson { interval: 512 }
        );
        assert_eq!(sampling("heapprofile"), Sampling::Unsampled);
        for kind in ["heap_v2", "heap_v2/x", "heap", "heap_v2/1/2"] {
            let text = format!("heap profile: 0: 0 [0: 0] @ {kind}\n");
            assert_eq!(failure(&text), (1, DumpErrorKind::Kind), "{kind}");
        }
    }

    #[test]
    fn names_come_before_the_account() {
        let text = "--- symbol\nbinary=/a\nnonsense\n0x1f main -- inlined\n0x20 operator- -\n---\n--- heap\n\
            heap profile: 1: 2 [3: 4] @ heapprofile\r\n#  two spaces\n#none\n  1: 2 [3: 4] @ 0x1f\n--- Memory map: ---\n\n  # no\n-- no\nyes\n";
        let dump = parsed(text);
        let symbols = dump.symbols.unwrap();
        assert_eq!(symbols.binary, "/a");
        let names = |n: usize| symbols.names[n].1.join("|");
        assert_eq!(
            (symbols.names[0].0, names(0)),
            (0x1f, "main|inlined".into())
        );
        assert_eq!(names(1), "operator--");
        assert_eq!(dump.comments, [" two spaces", "none"]);
        assert_eq!(dump.lines, [line([1, 2, 3, 4], &[0x1f])]);
        assert_eq!(dump.remarks, ["2 lines passed over, the first is line 3"]);
    }
}
