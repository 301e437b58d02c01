//! The bytes of kept names.
//!
//! ```text
//!   MAGIC, which ends in the version
//!   gzip, whose checksum tells damage:
//!     strings   count, and for each its length and its bytes
//!     names     count, and for each two numbers of strings: raw, generic arguments
//!     modules   count, and for each
//!                 key        0, build-id | 1, number of the path's string, stamp
//!                 addresses  count, and for each its svma, a count, and its frames:
//!                              name, file, line, column, 1 if inlined
//! ```
//!
//! Numbers are little-endian and have 4 bytes, svmas and stamps 8. A number of a string or a name
//! is one more than its place, and 0 if there is none. Equal names make equal bytes.
//!
//! Memory: a number of fixed width is at most an eighth of what is made of it, and
//! [`LARGEST_CONTENT`] bounds the content, however well it is compressed.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::{KeptNames, ModuleKey};
use crate::resolve::frame::{Frame, MOST_INLINED, Name};
use crate::resolve::length::LONGEST_LINKAGE;

const MAGIC: &[u8; 8] = b"HPNAMES\x01";

/// Longest content, uncompressed: some hundred thousand frames.
const LARGEST_CONTENT: usize = 16 << 20;

/// Longest file. Content that compression makes no smaller is a little longer than itself.
pub(super) const LARGEST_FILE: u64 = LARGEST_CONTENT as u64 + (64 << 10);

/// Longest build-id. Linkers write 8, 16 or 20 bytes.
pub(super) const LONGEST_BUILD_ID: usize = 64;

/// Longest path of a module: the kernel's limit.
pub(super) const LONGEST_PATH: usize = 4096;

/// Most frames of an address: the inlined ones, the sign that some are left out, the physical one.
const MOST_FRAMES: usize = MOST_INLINED + 2;

const FRAME_LEN: usize = 17;
const ADDRESS_LEN: usize = 12;

/// Why a file has no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NamesError {
    /// It begins with other bytes.
    #[error("it is no file of names")]
    Foreign,
    /// A later heapprof wrote it.
    #[error("another version of heapprof wrote it")]
    Version,
    /// Its checksum or its content is wrong.
    #[error("it is damaged")]
    Damaged,
    /// Its content is longer than any that is written.
    #[error("it is too large")]
    TooLarge,
}

/// Numbers for equal values, from 1 on, in the order of their first use.
struct Numbered<K> {
    numbers: HashMap<K, u32>,
    len: usize,
}

impl<K: std::hash::Hash + Eq> Numbered<K> {
    /// The value's number. `len_of` tells how long its encoding is, which counts once.
    fn number(&mut self, key: K, len: usize) -> u32 {
        let next = self.numbers.len() as u32 + 1;
        *self.numbers.entry(key).or_insert_with(|| {
            self.len += len;
            next
        })
    }

    /// The values in the order of their numbers.
    fn in_order(self) -> Vec<K> {
        let mut all: Vec<_> = self.numbers.into_iter().collect();
        all.sort_unstable_by_key(|&(_, number)| number);
        all.into_iter().map(|(key, _)| key).collect()
    }
}

impl<K> Default for Numbered<K> {
    fn default() -> Self {
        Numbered {
            numbers: HashMap::new(),
            len: 0,
        }
    }
}

#[derive(Default)]
struct Writer<'a> {
    strings: Numbered<&'a str>,
    names: Numbered<[u32; 2]>,
    modules: Vec<u8>,
}

pub(super) fn encode(kept: &KeptNames) -> Vec<u8> {
    encode_within(kept, LARGEST_CONTENT)
}

/// The same, with so much room.
pub(super) fn encode_within(kept: &KeptNames, room: usize) -> Vec<u8> {
    let mut writer = Writer::default();
    let modules: Vec<_> = (kept.modules.iter())
        .filter(|(_, addresses)| !addresses.is_empty())
        .collect();
    put(&mut writer.modules, modules.len() as u32);
    for (key, addresses) in modules {
        writer.module(key, addresses, room);
    }
    let mut content = Vec::new();
    let (names, modules) = (writer.names.in_order(), writer.modules);
    let strings = writer.strings.in_order();
    put(&mut content, strings.len() as u32);
    for text in strings {
        put(&mut content, text.len() as u32);
        content.extend_from_slice(text.as_bytes());
    }
    put(&mut content, names.len() as u32);
    for number in names.into_iter().flatten() {
        put(&mut content, number);
    }
    content.extend_from_slice(&modules);

    let mut file = MAGIC.to_vec();
    let mut gzip = GzEncoder::new(&mut file, Compression::default());
    // Memory does not refuse to be written to.
    let written = gzip.write_all(&content).and_then(|()| gzip.try_finish());
    drop(gzip);
    match written {
        Ok(()) => file,
        Err(_) => MAGIC.to_vec(),
    }
}

impl<'a> Writer<'a> {
    /// Bytes of the content so far.
    fn len(&self) -> usize {
        8 + self.strings.len + self.names.len + self.modules.len()
    }

    fn module(
        &mut self,
        key: &'a ModuleKey,
        addresses: &'a BTreeMap<u64, Box<[Frame]>>,
        room: usize,
    ) {
        match key {
            ModuleKey::BuildId(id) => {
                put(&mut self.modules, 0);
                put(&mut self.modules, id.len() as u32);
                self.modules.extend_from_slice(id);
            }
            ModuleKey::Stamped(path, stamp) => {
                put(&mut self.modules, 1);
                let path = self.string(path);
                put(&mut self.modules, path);
                for number in stamp {
                    self.modules.extend_from_slice(&number.to_le_bytes());
                }
            }
        }
        let count_at = self.modules.len();
        put(&mut self.modules, 0);
        let mut count = 0u32;
        for (svma, frames) in addresses {
            // The longest that its strings can be is not known before: they may be there already.
            let strings: usize = frames.iter().map(longest).sum();
            let needed = ADDRESS_LEN + frames.len() * FRAME_LEN + strings;
            if self.len() + needed > room || frames.len() > MOST_FRAMES {
                continue;
            }
            self.modules.extend_from_slice(&svma.to_le_bytes());
            put(&mut self.modules, frames.len() as u32);
            for frame in frames {
                self.frame(frame);
            }
            count += 1;
        }
        self.modules[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
    }

    fn frame(&mut self, frame: &'a Frame) {
        let name = frame.function.as_ref().map_or(0, |name| {
            let raw = self.string(name.raw());
            let generic = name.generic_arguments().map_or(0, |it| self.string(it));
            self.names.number([raw, generic], 8)
        });
        let file = frame.file.as_deref().map_or(0, |file| self.string(file));
        for number in [
            name,
            file,
            frame.line.unwrap_or(0),
            frame.column.unwrap_or(0),
        ] {
            put(&mut self.modules, number);
        }
        self.modules.push(u8::from(frame.inlined));
    }

    fn string(&mut self, text: &'a str) -> u32 {
        self.strings.number(text, 4 + text.len())
    }
}

/// Most bytes that a frame's strings need.
fn longest(frame: &Frame) -> usize {
    let name = frame.function.as_ref().map_or(0, |name| {
        name.raw().len() + name.generic_arguments().map_or(0, str::len)
    });
    name + frame.file.as_deref().map_or(0, str::len) + 20
}

fn put(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

pub(super) fn decode(bytes: &[u8]) -> Result<KeptNames, NamesError> {
    let (magic, gzip) = bytes
        .split_at_checked(MAGIC.len())
        .ok_or(NamesError::Foreign)?;
    if magic != MAGIC {
        let is_ours = magic[..MAGIC.len() - 1] == MAGIC[..MAGIC.len() - 1];
        return Err(match is_ours {
            true => NamesError::Version,
            false => NamesError::Foreign,
        });
    }
    let mut content = Vec::new();
    let mut decoder = GzDecoder::new(gzip);
    // The end is read, too: the checksum is compared there.
    (&mut decoder)
        .take(LARGEST_CONTENT as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|_| NamesError::Damaged)?;
    if content.len() > LARGEST_CONTENT {
        return Err(NamesError::TooLarge);
    }
    let is_all = decoder.into_inner().is_empty();
    let mut reader = Reader {
        rest: &content,
        strings: Vec::new(),
        names: Vec::new(),
        made_names: HashMap::new(),
        made_files: HashMap::new(),
    };
    match reader.kept().filter(|_| is_all && reader.rest.is_empty()) {
        Some(kept) => Ok(kept),
        None => Err(NamesError::Damaged),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    strings: Vec<&'a str>,
    names: Vec<[u32; 2]>,
    /// By number: made when a frame has one.
    made_names: HashMap<u32, Arc<Name>>,
    made_files: HashMap<u32, Arc<str>>,
}

impl<'a> Reader<'a> {
    fn kept(&mut self) -> Option<KeptNames> {
        for _ in 0..self.count(4)? {
            let len = self.number()? as usize;
            let text = self.bytes(len)?;
            let text = std::str::from_utf8(text).ok()?;
            // Longer names are cut before they are kept.
            (len <= LONGEST_LINKAGE).then_some(())?;
            self.strings.push(text);
        }
        for _ in 0..self.count(8)? {
            let name = [self.number()?, self.number()?];
            self.names.push(name);
        }
        let mut kept = KeptNames::default();
        for _ in 0..self.count(4)? {
            let key = self.key()?;
            let mut addresses = BTreeMap::new();
            for _ in 0..self.count(ADDRESS_LEN)? {
                let svma = self.long()?;
                let count = self.count(FRAME_LEN)?;
                (count <= MOST_FRAMES).then_some(())?;
                let frames = (0..count).map(|_| self.frame()).collect::<Option<_>>()?;
                addresses.insert(svma, frames);
            }
            kept.modules.insert(key, addresses);
        }
        Some(kept)
    }

    fn key(&mut self) -> Option<ModuleKey> {
        match self.number()? {
            0 => {
                let len = self.number()? as usize;
                let is_one = (1..=LONGEST_BUILD_ID).contains(&len);
                is_one.then_some(())?;
                Some(ModuleKey::BuildId(self.bytes(len)?.into()))
            }
            1 => {
                let path = self.number()?;
                let path = self.string(path)?.into();
                let stamp = [self.long()?, self.long()?, self.long()?];
                Some(ModuleKey::Stamped(path, stamp))
            }
            _ => None,
        }
    }

    fn frame(&mut self) -> Option<Frame> {
        let function = match self.number()? {
            0 => None,
            number => Some(self.name(number)?),
        };
        let file = match self.number()? {
            0 => None,
            number => Some(self.file(number)?),
        };
        let some = |number: u32| (number != 0).then_some(number);
        let (line, column) = (some(self.number()?), some(self.number()?));
        let inlined = match self.bytes(1)? {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        Some(Frame {
            function,
            file,
            line,
            column,
            inlined,
        })
    }

    fn name(&mut self, number: u32) -> Option<Arc<Name>> {
        if let Some(made) = self.made_names.get(&number) {
            return Some(Arc::clone(made));
        }
        let [raw, generic] = *self.names.get((number as usize).checked_sub(1)?)?;
        let raw = self.string(raw)?;
        let name = match generic {
            0 => Name::new(raw),
            generic => Name::with_generic_arguments(raw, self.string(generic)?),
        };
        let made = Arc::new(name);
        self.made_names.insert(number, Arc::clone(&made));
        Some(made)
    }

    fn file(&mut self, number: u32) -> Option<Arc<str>> {
        if let Some(made) = self.made_files.get(&number) {
            return Some(Arc::clone(made));
        }
        let made: Arc<str> = self.string(number)?.into();
        self.made_files.insert(number, Arc::clone(&made));
        Some(made)
    }

    fn string(&self, number: u32) -> Option<&'a str> {
        self.strings.get((number as usize).checked_sub(1)?).copied()
    }

    /// A count of what has at least so many bytes each: no more than there is room for.
    fn count(&mut self, least: usize) -> Option<usize> {
        let count = self.number()? as usize;
        (count <= self.rest.len() / least).then_some(count)
    }

    fn number(&mut self) -> Option<u32> {
        let bytes = self.bytes(4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    fn long(&mut self) -> Option<u64> {
        let bytes = self.bytes(8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }
}
