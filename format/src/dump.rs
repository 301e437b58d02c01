//! A dump: the heap at one moment as gperftools writes it, in text that three other programs read.
//!
//! ```text
//! heap profile:      2:     2000 [     4:     4001] @ heapprofile       in use [allocated]
//! # interval: 524288                                                    comments
//!      2:     2000 [     4:     4000] @ 0x5614cbe73185 0x5614cbe731a1   one line each, leaf first
//!
//! MAPPED_LIBRARIES:
//! 0x5614cbe73000-0x5614cbe74000: /bin/server (@00001000) 08065e9c…      for go tool pprof
//! 5614cbe73000-5614cbe74000 r-xp 00001000 fe:00 1001                   /bin/server
//! ```
//!
//! Numbers are estimates of the truth, already unsampled, which the word `heapprofile` tells the
//! readers. Each oddity of the form is there because a reader needs it (docs/format.md, and tests
//! that run all three):
//!
//! * `go tool pprof` shows allocations only if the header's allocated bytes differ from those in
//!   use; so the header, and only the header, may say one byte more.
//! * It rejects a file with a line of 0 objects and some bytes: bytes without objects get one.
//! * It reads no line beyond 64 KiB: stacks are cut to [`MAX_FRAMES`], keeping the innermost.
//! * It takes a build-id from the short form of a mapping only, and the perl readers take the file
//!   offset from the long form only, misreading a short one. So executable mappings come in both,
//!   the short one first and with `0x`, which hides it from perl.
//!
//! [`Dump::write`] and [`Dump::parse`] are inverses. The parser also takes dumps of gperftools and
//! tcmalloc, sampled ones (`heap_v2`) included: those numbers stay as written, with the
//! [`Sampling`] that says what was done, because unsampling is done elsewhere and once (Law 8).

use std::fmt::{self, Write as _};

use crate::record::Module;

/// A stack in a dump has at most this many frames: with 19 characters each, far below the 64 KiB
/// that a line may have.
pub const MAX_FRAMES: usize = 2000;

/// Largest number that the readers take.
const MAX_NUMBER: u64 = i64::MAX as u64;

/// Mappings are whole pages.
const PAGE: u64 = 4096;

/// What a dump says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// What the numbers are.
    pub sampling: Sampling,
    /// Lines for people and for our own reader, without the `# `. A `key: value` form lets the
    /// reader find `program`, `command`, `pid`, `interval`.
    pub comments: Vec<String>,
    /// The account. Its order does not matter: `write` sorts.
    pub lines: Vec<DumpLine>,
    /// What was mapped where.
    pub mappings: Vec<Mapping>,
    /// Names, in front of a symbolized dump.
    pub symbols: Option<Symbols>,
    /// What the parser met and passed over. Never written.
    pub remarks: Vec<String>,
}

/// What was done to the numbers of a dump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Sampling {
    /// `heapprofile`: nothing is left to do. What [`Dump::write`] writes.
    #[default]
    Unsampled,
    /// `heap_v2/N`: numbers of samples, of a Poisson process over bytes of that mean interval.
    Poisson {
        /// Mean interval in bytes.
        interval: u64,
    },
}

/// One line: a call stack and what it allocated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DumpLine {
    /// Blocks not yet freed.
    pub in_use_objects: u64,
    /// Bytes not yet freed.
    pub in_use_bytes: u64,
    /// Blocks ever allocated.
    pub allocated_objects: u64,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
    /// Addresses as written, innermost first: a PC inside an allocation function, then return
    /// addresses. An address that a signal interrupted is written plus one, because readers
    /// take one from all but the first.
    pub frames: Vec<u64>,
}

/// A mapped part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// As in `/proc/self/maps`: `r-xp`.
    pub perms: String,
    /// Offset in the file of `start`.
    pub offset: u64,
    /// As in `/proc/self/maps`: `fe:00`; empty is written as `00:00`.
    pub device: String,
    /// As in `/proc/self/maps`.
    pub inode: u64,
    /// Build-id of the file, empty when it has none or it is not known.
    pub build_id: Vec<u8>,
    /// The file, `[vdso]` and its like, or empty.
    pub path: String,
}

/// The `--- symbol` section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Path of the program.
    pub binary: String,
    /// An address as a reader will ask for it, and its functions, outermost first.
    pub names: Vec<(u64, Vec<String>)>,
}

/// Why a dump could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpError {
    /// Line, from 1.
    pub line: u64,
    /// Offset in the file of that line.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DumpErrorKind,
}

/// What is wrong with a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpErrorKind {
    /// There is nothing in the file.
    Empty,
    /// No `heap profile:` header where it must stand.
    NotADump,
    /// jemalloc's own form (`heap_v2/…` in the first line).
    Jemalloc,
    /// The header does not have its four numbers.
    Header,
    /// The header names a way of sampling that we do not know.
    Kind,
    /// A line of the account does not have its four numbers and its addresses.
    Line,
    /// The `--- symbol` section does not end.
    SymbolsCut,
    /// The account is less than the header's sum, and the file ends without mappings: it was cut.
    Cut,
}

impl fmt::Display for DumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at =
            |f: &mut fmt::Formatter<'_>| write!(f, "line {}, offset {}: ", self.line, self.offset);
        match self.kind {
            DumpErrorKind::Empty => f.write_str("the file is empty"),
            DumpErrorKind::NotADump => {
                at(f)?;
                f.write_str("not a heap dump (no `heap profile:` header)")
            }
            DumpErrorKind::Jemalloc => {
                at(f)?;
                f.write_str(
                    "jemalloc's own heap_v2 form, which heapprof does not read yet; jeprof does",
                )
            }
            DumpErrorKind::Header => {
                at(f)?;
                f.write_str("the `heap profile:` header is malformed")
            }
            DumpErrorKind::Kind => {
                at(f)?;
                f.write_str("the header names a kind of heap profile that heapprof does not know")
            }
            DumpErrorKind::Line => {
                at(f)?;
                f.write_str("malformed line (expected `n: bytes [n: bytes] @ 0x… 0x…`)")
            }
            DumpErrorKind::SymbolsCut => {
                at(f)?;
                f.write_str("the file ends inside its `--- symbol` section")
            }
            DumpErrorKind::Cut => {
                at(f)?;
                f.write_str("the file is cut off: its lines sum to less than its header says")
            }
        }
    }
}

impl std::error::Error for DumpError {}

impl DumpLine {
    /// As the readers accept it: bytes come with at least one object, and all are in their range.
    fn acceptable(&self) -> [u64; 4] {
        let pair = |objects: u64, bytes: u64| {
            let objects = if bytes > 0 { objects.max(1) } else { objects };
            [objects.min(MAX_NUMBER), bytes.min(MAX_NUMBER)]
        };
        let [a, b] = pair(self.in_use_objects, self.in_use_bytes);
        let [c, d] = pair(self.allocated_objects, self.allocated_bytes);
        [a, b, c, d]
    }
}

impl Mapping {
    /// The mappings of a loaded module, one for each of its segments, grown to whole pages.
    pub fn of_module(module: &Module) -> Vec<Mapping> {
        let flag = |flags: u32, bit: u32, letter: char| if flags & bit != 0 { letter } else { '-' };
        let mappings = module.segments.iter().map(|segment| {
            let lead = segment.start % PAGE;
            let end = segment.start.saturating_add(segment.len);
            Mapping {
                start: segment.start - lead,
                end: end.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX),
                perms: [
                    flag(segment.flags, 4, 'r'),
                    flag(segment.flags, 2, 'w'),
                    flag(segment.flags, 1, 'x'),
                    'p',
                ]
                .iter()
                .collect(),
                offset: segment.file_offset.saturating_sub(lead),
                build_id: module.build_id.clone(),
                path: module.path.clone(),
                ..Mapping::default()
            }
        });
        mappings.collect()
    }

    /// The mapping in a line of `/proc/self/maps`.
    pub fn parse(line: &str) -> Option<Mapping> {
        // The path comes last and may hold spaces: it is what follows the fifth word.
        let mut rest = line;
        let mut word = || {
            rest = rest.trim_start_matches(' ');
            let end = rest.find(' ').unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            word
        };
        let (start, end) = parse_range(word())?;
        let perms = word();
        if !(3..=4).contains(&perms.len()) || !perms.chars().all(|c| "rwxps-".contains(c)) {
            return None;
        }
        let offset = u64::from_str_radix(word(), 16).ok()?;
        let device = word();
        if !device.contains(':') {
            return None;
        }
        let inode = word().parse().ok()?;
        Some(Mapping {
            start,
            end,
            perms: perms.into(),
            offset,
            device: device.into(),
            inode,
            build_id: Vec::new(),
            path: rest.trim_start_matches(' ').into(),
        })
    }

    /// The mapping in the short form: `0xSTART-0xEND: PATH (@OFFSET) BUILDID`.
    fn parse_short(line: &str) -> Option<Mapping> {
        let (range, rest) = line.split_once(": ")?;
        let (start, end) = parse_range(range.trim())?;
        let (path, rest) = rest.rsplit_once(" (@")?;
        let (offset, build_id) = rest.split_once(')')?;
        Some(Mapping {
            start,
            end,
            perms: "r-xp".into(),
            offset: u64::from_str_radix(offset, 16).ok()?,
            build_id: parse_bytes(build_id.trim())?,
            path: path.trim().into(),
            ..Mapping::default()
        })
    }

    /// The path as others may look for it. A deleted file with a build-id can be found under its
    /// old name and verified; one without must stay marked, or a successor would pass for it.
    fn shown_path(&self) -> &str {
        match self.path.strip_suffix(" (deleted)") {
            Some(path) if !self.build_id.is_empty() => path,
            _ => &self.path,
        }
    }

    fn is_executable(&self) -> bool {
        self.perms.as_bytes().get(2) == Some(&b'x')
    }

    fn write_short(&self, text: &mut String) {
        let (start, end, offset) = (self.start, self.end, self.offset);
        let _ = write!(text, "0x{start:08x}-0x{end:08x}: ");
        push_on_one_line(text, self.shown_path());
        let _ = write!(text, " (@{offset:08x}) ");
        for byte in &self.build_id {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }

    fn write_long(&self, text: &mut String) {
        let from = text.len();
        let perms = if self.perms.is_empty() {
            "r-xp"
        } else {
            &self.perms
        };
        let device = if self.device.is_empty() {
            "00:00"
        } else {
            &self.device
        };
        let (start, end, offset, inode) = (self.start, self.end, self.offset, self.inode);
        let _ = write!(
            text,
            "{start:08x}-{end:08x} {perms} {offset:08x} {device} {inode} "
        );
        // The kernel's column for the path, 73.
        while text.len() < from + 73 {
            text.push(' ');
        }
        push_on_one_line(text, self.shown_path());
        text.push('\n');
    }
}

impl Dump {
    /// Appends the dump to `out`. Writes what every reader accepts, see the module's text; a
    /// [`Sampling::Poisson`] dump keeps its numbers and its kind.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut text = String::new();
        if let Some(symbols) = &self.symbols {
            symbols.write(&mut text);
        }

        let mut order: Vec<&DumpLine> = self.lines.iter().collect();
        order.sort_by(|a, b| {
            (b.in_use_bytes, b.allocated_bytes)
                .cmp(&(a.in_use_bytes, a.allocated_bytes))
                .then_with(|| a.frames.cmp(&b.frames))
        });
        let mut sums = [0u64; 4];
        for line in &order {
            for (sum, number) in sums.iter_mut().zip(line.acceptable()) {
                *sum = sum.saturating_add(number).min(MAX_NUMBER);
            }
        }
        if sums[3] == sums[1] {
            sums[3] = if sums[3] < MAX_NUMBER {
                sums[3] + 1
            } else {
                sums[3] - 1
            };
        }

        text.push_str("heap profile: ");
        push_numbers(&mut text, &sums);
        match self.sampling {
            Sampling::Unsampled => text.push_str(" heapprofile\n"),
            Sampling::Poisson { interval } => {
                let _ = writeln!(text, " heap_v2/{interval}");
            }
        }
        for comment in &self.comments {
            text.push_str("# ");
            push_on_one_line(&mut text, comment);
            text.push('\n');
        }
        for line in order {
            push_numbers(&mut text, &line.acceptable());
            for frame in line.frames.iter().take(MAX_FRAMES) {
                let _ = write!(text, " 0x{frame:08x}");
            }
            text.push('\n');
        }

        text.push_str("\nMAPPED_LIBRARIES:\n");
        for mapping in self
            .mappings
            .iter()
            .filter(|m| m.is_executable() && !m.build_id.is_empty())
        {
            mapping.write_short(&mut text);
        }
        for mapping in &self.mappings {
            mapping.write_long(&mut text);
        }
        out.extend_from_slice(text.as_bytes());
    }

    /// The dump in those bytes. Lines that no dump of ours would hold are passed over with a
    /// remark, because others write some; what looks like a line of the account and is none is an
    /// error.
    ///
    /// # Errors
    /// When the bytes are no dump, or are damaged or cut off.
    pub fn parse(bytes: &[u8]) -> Result<Dump, DumpError> {
        Parser::new(bytes).dump()
    }
}

impl Symbols {
    fn write(&self, text: &mut String) {
        text.push_str("--- symbol\nbinary=");
        push_on_one_line(text, &self.binary);
        text.push('\n');
        for (address, names) in &self.names {
            let _ = write!(text, "0x{address:08x} ");
            for (i, name) in names.iter().enumerate() {
                if i > 0 {
                    text.push_str("--");
                }
                push_name(text, name);
            }
            text.push('\n');
        }
        text.push_str("---\n");
    }
}

/// Readers split names at `--`. A space, which they show and people overlook, keeps one together.
fn push_name(text: &mut String, name: &str) {
    if name.is_empty() {
        text.push_str("??");
        return;
    }
    let from = text.len();
    push_on_one_line(text, name);
    while let Some(at) = text[from..].find("--") {
        text.insert(from + at + 1, ' ');
    }
    if text.ends_with('-') {
        text.push(' ');
    }
}

/// The name as it was before [`push_name`], as far as can be told.
fn parse_name(name: &str) -> String {
    name.trim().replace("operator- -", "operator--")
}

/// Text from outside must not begin a line of its own, nor talk to a terminal.
fn push_on_one_line(text: &mut String, from: &str) {
    for c in from.chars() {
        if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            // As /proc/self/maps does with newlines.
            let _ = write!(text, "\\{:03o}", u32::from(c));
        } else {
            text.push(c);
        }
    }
}

fn push_numbers(text: &mut String, [n, b, an, ab]: &[u64; 4]) {
    let _ = write!(text, "{n:6}: {b:8} [{an:6}: {ab:8}] @");
}

fn parse_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

fn parse_range(word: &str) -> Option<(u64, u64)> {
    let (start, end) = word.split_once('-')?;
    let (start, end) = (parse_hex(start)?, parse_hex(end)?);
    (start <= end).then_some((start, end))
}

fn parse_bytes(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.is_ascii() {
        return None;
    }
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).ok())
        .collect()
}

/// `n: bytes [n: bytes] @` and what follows.
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

/// The lines of a file, one after another.
struct Parser<'a> {
    bytes: &'a [u8],
    /// Offset of the line that comes next.
    next: usize,
    /// Of the line that was taken last, for errors.
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
        // The header may say one byte more, see the module's text.
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

    /// What stands before the account, and the header's numbers.
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

    /// Whether mappings follow.
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
        for mapping in &short {
            let same = |m: &&mut Mapping| m.start == mapping.start && m.end == mapping.end;
            match long.iter_mut().find(same) {
                Some(twin) => twin.build_id.clone_from(&mapping.build_id),
                None => long.push(mapping.clone()),
            }
        }
        for mapping in long
            .iter_mut()
            .filter(|m| m.build_id.is_empty() && !m.path.is_empty())
        {
            if let Some(named) = short.iter().find(|s| s.path == mapping.path) {
                mapping.build_id.clone_from(&named.build_id);
            }
        }
        self.dump.mappings = long;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Segment;
    use proptest::prelude::*;

    fn line(numbers: [u64; 4], frames: &[u64]) -> DumpLine {
        let [
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
        ] = numbers;
        DumpLine {
            in_use_objects,
            in_use_bytes,
            allocated_objects,
            allocated_bytes,
            frames: frames.into(),
        }
    }

    fn text(dump: &Dump) -> String {
        let mut out = Vec::new();
        dump.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn failure(text: &str) -> (u64, DumpErrorKind) {
        let error = Dump::parse(text.as_bytes()).unwrap_err();
        (error.line, error.kind)
    }

    #[test]
    fn a_dump_looks_so() {
        let dump = Dump {
            comments: vec!["interval: 524288".into()],
            lines: vec![
                line([1, 1000, 1, 1000], &[0x5614cbe73185, 0x5614cbe731c9]),
                line([2, 2000, 4, 4000], &[0x5614cbe73185, 0x5614cbe731a1]),
            ],
            mappings: vec![Mapping {
                start: 0x5614cbe73000,
                end: 0x5614cbe74000,
                perms: "r-xp".into(),
                offset: 0x1000,
                build_id: vec![0x08, 0xff],
                path: "/bin/server".into(),
                ..Mapping::default()
            }],
            ..Dump::default()
        };
        assert_eq!(
            text(&dump),
            "heap profile:      3:     3000 [     5:     5000] @ heapprofile\n\
             # interval: 524288\n     \
                  2:     2000 [     4:     4000] @ 0x5614cbe73185 0x5614cbe731a1\n     \
                  1:     1000 [     1:     1000] @ 0x5614cbe73185 0x5614cbe731c9\n\
             \n\
             MAPPED_LIBRARIES:\n\
             0x5614cbe73000-0x5614cbe74000: /bin/server (@00001000) 08ff\n\
             5614cbe73000-5614cbe74000 r-xp 00001000 00:00 0                          /bin/server\n"
        );
    }

    #[test]
    fn the_header_alone_is_bumped_when_nothing_was_freed() {
        let dump = Dump {
            lines: vec![line([3, 3000, 3, 3000], &[1])],
            ..Dump::default()
        };
        let text = text(&dump);
        assert!(
            text.starts_with("heap profile:      3:     3000 [     3:     3001] @ heapprofile\n")
        );
        assert!(text.contains("\n     3:     3000 [     3:     3000] @ 0x00000001\n"));
        assert!(Dump::parse(text.as_bytes()).unwrap().remarks.is_empty());
    }

    #[test]
    fn bytes_never_come_without_objects() {
        let dump = Dump {
            lines: vec![line([0, 40, 0, 50], &[1])],
            ..Dump::default()
        };
        let parsed = Dump::parse(text(&dump).as_bytes()).unwrap();
        assert_eq!(parsed.lines[0], line([1, 40, 1, 50], &[1]));
    }

    #[test]
    fn no_line_is_longer_than_readers_bear() {
        let frames: Vec<u64> = (0..10_000).map(|i| u64::MAX - i).collect();
        let dump = Dump {
            lines: vec![line([u64::MAX; 4], &frames)],
            ..Dump::default()
        };
        let text = text(&dump);
        assert!(text.lines().all(|line| line.len() < 1 << 16));
        let parsed = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.lines[0].frames, frames[..MAX_FRAMES]);
    }

    #[test]
    fn what_comes_from_outside_stays_on_its_line() {
        let dump = Dump {
            comments: vec!["command: a\nb\u{1b}[2J".into()],
            mappings: vec![Mapping {
                path: "/tmp/a\nb".into(),
                ..Mapping::default()
            }],
            symbols: Some(Symbols {
                binary: "/tmp/x\ny".into(),
                names: vec![(
                    0x10,
                    vec![
                        "main".into(),
                        "operator--(int)".into(),
                        "a\n---\nb-".into(),
                        "c".into(),
                    ],
                )],
            }),
            ..Dump::default()
        };
        let text = text(&dump);
        assert_eq!(text.lines().filter(|line| *line == "---").count(), 1);
        assert!(text.contains("# command: a\\012b\\033[2J\n"));
        assert!(
            text.contains("0x00000010 main--operator- -(int)--a\\012- - -\\012b- --c\n"),
            "{text}"
        );
        let parsed = Dump::parse(text.as_bytes()).unwrap();
        assert_eq!(
            parsed.symbols.unwrap().names[0].1[..2],
            ["main".to_string(), "operator--(int)".to_string()]
        );
    }

    #[test]
    fn a_deleted_file_with_a_build_id_can_be_found() {
        let with = |build_id: Vec<u8>| Dump {
            mappings: vec![Mapping {
                perms: "r-xp".into(),
                build_id,
                path: "/tmp/a (deleted)".into(),
                ..Mapping::default()
            }],
            ..Dump::default()
        };
        assert!(!text(&with(vec![1])).contains("deleted"));
        assert!(text(&with(vec![])).contains("/tmp/a (deleted)\n"));
    }

    #[test]
    fn segments_become_whole_pages() {
        let module = Module {
            number: 0,
            time_ns: 0,
            path: "/lib/libx.so".into(),
            build_id: vec![1],
            bias: 0x7f00_0000_0000,
            segments: vec![Segment {
                start: 0x7f00_0000_1234,
                len: 0x100,
                file_offset: 0x234,
                flags: 5,
            }],
        };
        let mapping = &Mapping::of_module(&module)[0];
        assert_eq!(
            (mapping.start, mapping.end),
            (0x7f00_0000_1000, 0x7f00_0000_2000)
        );
        assert_eq!((mapping.offset, mapping.perms.as_str()), (0, "r-xp"));
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

    /// Any dump, as its parts may be; names without the characters that have to be replaced.
    fn any_dump() -> impl Strategy<Value = Dump> {
        let number = || (0u32..63, any::<u64>()).prop_map(|(shift, v)| (v >> 1) >> shift);
        let pair = move || {
            (number(), number()).prop_map(|(n, b)| if b > 0 { (n.max(1), b) } else { (n, b) })
        };
        let lines = prop::collection::vec(
            (pair(), pair(), prop::collection::vec(any::<u64>(), 0..6)).prop_map(
                |((a, b), (c, d), frames)| line([a >> 8, b >> 8, c >> 8, d >> 8], &frames),
            ),
            0..8,
        );
        let mapping = (
            any::<u32>(),
            1u64..9,
            "[r-][w-][x-]p",
            any::<u32>(),
            "(/[a-z .]{0,8}[a-z])?",
        );
        let mappings = prop::collection::vec(mapping, 0..4).prop_map(|all| {
            all.into_iter()
                .enumerate()
                .map(|(i, (start, pages, perms, offset, path))| Mapping {
                    start: u64::from(start) << 12,
                    end: (u64::from(start) + pages) << 12,
                    perms,
                    offset: offset.into(),
                    device: "fe:00".into(),
                    inode: i as u64,
                    build_id: Vec::new(),
                    path,
                })
                .collect()
        });
        (
            lines,
            mappings,
            prop::collection::vec("[a-z]([a-z :]{0,10}[a-z])?", 0..3),
        )
            .prop_map(|(lines, mappings, comments)| Dump {
                lines,
                mappings,
                comments,
                ..Dump::default()
            })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(dump in any_dump()) {
            // Bytes without objects, and an order of its own, are the writer's doing: write twice.
            let once = Dump::parse(text(&dump).as_bytes()).unwrap();
            let twice = Dump::parse(text(&once).as_bytes()).unwrap();
            prop_assert_eq!(&once, &twice);
            prop_assert_eq!(once.lines.len(), dump.lines.len());
            prop_assert_eq!(once.mappings, dump.mappings);
            prop_assert_eq!(once.comments, dump.comments);
            prop_assert!(once.remarks.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Dump::parse(&bytes);
        }

        #[test]
        fn no_damage_panics(dump in any_dump(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut bytes = text(&dump).into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let _ = Dump::parse(&bytes);
            let cut = cut.index(bytes.len());
            let _ = Dump::parse(&bytes[..cut]);
        }
    }
}
