//! Errors of a dump, with their line.

use std::fmt;

/// The reason why a dump cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpError {
    /// Line, from 1.
    pub line: u64,
    /// Offset of that line in the file.
    pub offset: u64,
    /// The fault.
    pub kind: DumpErrorKind,
}

/// A fault of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpErrorKind {
    /// The file is empty.
    Empty,
    /// The `heap profile:` header is missing.
    NotADump,
    /// jemalloc's own form (`heap_v2/…` in the first line).
    Jemalloc,
    /// The header does not have its four numbers.
    Header,
    /// The header has an unknown way of sampling.
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
