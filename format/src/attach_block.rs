//! Attach block: the words by which `heapprof attach` and its library in a running process agree.
//!
//! ```text
//!  heapprof attach                          library, in a thread of its own
//!  loads it, starts the thread ───────────> finds allocators, begins the log: PLANNED
//!  stops all threads, writes the jumps ───> PATCHED: records until it is told to end
//!                                           CHANGING and PATCHED again: taps a library that the
//!                                           program opens, or forgets one that it closes
//!  heapprof detach: stops all threads,
//!  restores the entries ──────────────────> RESTORED: records, and changes no entry
//!  waits for threads in the library ──────> ENDING or ENDING_QUIET: completes the log
//!                                           ENDED: the log is complete, the thread ends
//! ```
//!
//! The library changes the list of patches only in PREPARING and CHANGING. The other program
//! relies on the list only while all threads are stopped and the state is not CHANGING.
//!
//! The block is a static variable of the library. The other program reads and writes it as the
//! memory of the process. So both sides check what they read.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Name of the block's symbol.
pub const ATTACH_BLOCK_SYMBOL: &str = "heapprof_attach_block";
/// Name of the function that the library is entered by: `int (const AttachInput *)`.
pub const ATTACH_SYMBOL: &str = "heapprof_attach";
/// File name of the library.
pub const ATTACH_LIBRARY: &str = "libheapprof-attach.so";
/// Folder of the path that the loader gets if the library's file is in memory: the file's name is
/// its descriptor. No other code of a process uses this spelling, and the loader compares names.
pub const ATTACH_DESCRIPTORS: &str = "/proc/self/./fd/";

/// Bytes of a thread's countdown.
pub const COUNTDOWN_LEN: usize = 16;

/// Most functions that are tapped.
pub const MOST_ATTACH_PATCHES: usize = 512;
/// Bytes of the jump that is written over a function's first instructions.
pub const ATTACH_JUMP: usize = 5;
/// Most bytes of a text.
const TEXT: usize = 1024;
/// Most bytes of the functions that the user names.
const TAPS: usize = 4096;

/// First word of a block that this version understands.
pub const ATTACH_MAGIC: u64 = u64::from_le_bytes(*b"heapatt\x04");

/// The states, in [`AttachBlock::state`].
pub mod attach_state {
    /// Nothing is recorded, and no entry is changed.
    pub const IDLE: u32 = 0;
    /// The library prepares.
    pub const PREPARING: u32 = 1;
    /// The patches are listed, the log has begun, and the library waits for the patches.
    pub const PLANNED: u32 = 2;
    /// All patches are written. Set by the program that attaches.
    pub const PATCHED: u32 = 3;
    /// The recording has ended, and the log is complete.
    pub const ENDED: u32 = 4;
    /// The library cannot record. The message says why.
    pub const FAILED: u32 = 5;
    /// All entries are restored, and the recording is to end. Set by the program that detaches.
    pub const ENDING: u32 = 6;
    /// Like [`ENDING`], and no thread of the process is in the library any more, except its own.
    pub const ENDING_QUIET: u32 = 7;
    /// Like [`PATCHED`], and a thread of the process just changes patches and entries.
    pub const CHANGING: u32 = 8;
    /// Like [`PATCHED`], but all entries are restored, and none is changed any more. Set by the
    /// program that detaches.
    pub const RESTORED: u32 = 9;

    /// Returns true if the library records, and was not told to end.
    #[must_use]
    pub fn is_recording(state: u32) -> bool {
        [PATCHED, CHANGING, RESTORED].contains(&state)
    }
}

/// The wishes for a recording. They lie in memory that the program that attaches has mapped.
#[repr(C)]
#[derive(Debug, Clone)]
pub struct AttachInput {
    /// [`ATTACH_MAGIC`].
    pub magic: u64,
    /// Mean sampling interval in bytes.
    pub interval: u64,
    /// Most frames of a stack.
    pub depth: u32,
    /// Bytes of `folder`.
    pub folder_len: u32,
    /// Bytes of `name`.
    pub name_len: u32,
    /// Bytes of `taps`.
    pub taps_len: u32,
    /// 1 if no thread is in the code of an earlier recording.
    pub is_quiet: u32,
    /// The thread pointer of the main thread; 0 if that thread has ended.
    pub main_thread: u64,
    /// The folder from which `name` is resolved.
    pub folder: [u8; TEXT],
    /// The log's path without its ending; empty: a name of the program's.
    pub name: [u8; TEXT],
    /// The functions of allocators that the user names, as `HEAPPROF_TAP` has them.
    pub taps: [u8; TAPS],
}

impl AttachInput {
    /// Returns an input. `None`: a path is too long.
    pub fn new(interval: u64, depth: u32, folder: &[u8], name: &[u8]) -> Option<AttachInput> {
        let mut input = AttachInput {
            magic: ATTACH_MAGIC,
            interval,
            depth,
            folder_len: folder.len() as u32,
            name_len: name.len() as u32,
            taps_len: 0,
            is_quiet: 0,
            main_thread: 0,
            folder: [0; TEXT],
            name: [0; TEXT],
            taps: [0; TAPS],
        };
        input
            .folder
            .get_mut(..folder.len())?
            .copy_from_slice(folder);
        input.name.get_mut(..name.len())?.copy_from_slice(name);
        Some(input)
    }

    /// Adds the functions that the user names. `None`: the text is too long.
    #[must_use]
    pub fn with_taps(mut self, taps: &[u8]) -> Option<AttachInput> {
        self.taps.get_mut(..taps.len())?.copy_from_slice(taps);
        self.taps_len = taps.len() as u32;
        Some(self)
    }

    /// Returns the input as it lies in memory.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<AttachInput>()];
        let mut put = |at: usize, of: &[u8]| bytes[at..at + of.len()].copy_from_slice(of);
        use std::mem::offset_of;
        put(offset_of!(AttachInput, magic), &self.magic.to_le_bytes());
        put(
            offset_of!(AttachInput, interval),
            &self.interval.to_le_bytes(),
        );
        put(offset_of!(AttachInput, depth), &self.depth.to_le_bytes());
        put(
            offset_of!(AttachInput, folder_len),
            &self.folder_len.to_le_bytes(),
        );
        put(
            offset_of!(AttachInput, name_len),
            &self.name_len.to_le_bytes(),
        );
        put(
            offset_of!(AttachInput, taps_len),
            &self.taps_len.to_le_bytes(),
        );
        put(
            offset_of!(AttachInput, is_quiet),
            &self.is_quiet.to_le_bytes(),
        );
        put(
            offset_of!(AttachInput, main_thread),
            &self.main_thread.to_le_bytes(),
        );
        put(offset_of!(AttachInput, folder), &self.folder);
        put(offset_of!(AttachInput, name), &self.name);
        put(offset_of!(AttachInput, taps), &self.taps);
        bytes
    }

    /// Returns the folder.
    pub fn folder(&self) -> &[u8] {
        &self.folder[..(self.folder_len as usize).min(TEXT)]
    }

    /// Returns the log's path without its ending.
    pub fn name(&self) -> &[u8] {
        &self.name[..(self.name_len as usize).min(TEXT)]
    }

    /// Returns the functions that the user names.
    pub fn taps(&self) -> &[u8] {
        &self.taps[..(self.taps_len as usize).min(TAPS)]
    }
}

/// The change of one function's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachPatch {
    /// The address of the jump.
    pub at: u64,
    /// The bytes that the jump replaces.
    pub old: [u8; ATTACH_JUMP],
    /// The jump.
    pub new: [u8; ATTACH_JUMP],
    /// Bytes of the instructions that have moved, the jump's included.
    pub moved: u8,
    /// Number of the allocator: its functions are changed together.
    pub group: u16,
}

/// The words of one [`AttachPatch`].
#[repr(C)]
#[derive(Debug)]
struct PatchWords {
    /// 0: the place is free.
    at: AtomicU64,
    /// The old bytes, the bytes that moved, and the group.
    old: AtomicU64,
    new: AtomicU64,
}

/// See the module's text. All zero is a block that is not ready.
#[repr(C)]
#[derive(Debug)]
pub struct AttachBlock {
    /// [`ATTACH_MAGIC`], once the library is initialized.
    pub magic: AtomicU64,
    /// See [`attach_state`].
    pub state: AtomicU32,
    /// The process that the block belongs to, as it sees itself; 0: a forked child that has
    /// forgotten its parent's recording. Another copy has another number.
    pub pid: AtomicU32,
    /// Distance of a thread's countdown from its thread pointer. Zeros in that word and in the next
    /// one ([`COUNTDOWN_LEN`]) make the thread begin anew.
    pub countdown_at: AtomicI64,
    /// How many places have ever been used.
    patches: AtomicU32,
    message_len: AtomicU32,
    message: [AtomicU8; TEXT],
    words: [PatchWords; MOST_ATTACH_PATCHES],
}

impl AttachBlock {
    /// Bytes of the block.
    pub const LEN: usize = size_of::<AttachBlock>();
    /// Offset of [`AttachBlock::state`].
    pub const STATE_AT: usize = std::mem::offset_of!(AttachBlock, state);

    /// Returns a block that is not ready.
    #[must_use]
    pub const fn new() -> AttachBlock {
        AttachBlock {
            magic: AtomicU64::new(0),
            state: AtomicU32::new(0),
            pid: AtomicU32::new(0),
            countdown_at: AtomicI64::new(0),
            patches: AtomicU32::new(0),
            message_len: AtomicU32::new(0),
            message: [const { AtomicU8::new(0) }; TEXT],
            words: [const {
                PatchWords {
                    at: AtomicU64::new(0),
                    old: AtomicU64::new(0),
                    new: AtomicU64::new(0),
                }
            }; MOST_ATTACH_PATCHES],
        }
    }

    /// Adds a patch. Returns false if there is no room. One thread at a time changes patches.
    pub fn push(&self, patch: &AttachPatch) -> bool {
        let mut places = self.words.iter().enumerate();
        let Some((number, words)) = places.find(|(_, words)| words.at.load(Ordering::Relaxed) == 0)
        else {
            return false;
        };
        let mut old = [0; 8];
        old[..ATTACH_JUMP].copy_from_slice(&patch.old);
        old[5] = patch.moved;
        old[6..].copy_from_slice(&patch.group.to_le_bytes());
        let mut new = [0; 8];
        new[..ATTACH_JUMP].copy_from_slice(&patch.new);
        words.old.store(u64::from_le_bytes(old), Ordering::Relaxed);
        words.new.store(u64::from_le_bytes(new), Ordering::Relaxed);
        words.at.store(patch.at, Ordering::Release);
        self.patches.fetch_max(number as u32 + 1, Ordering::Release);
        true
    }

    /// Removes the patches of an allocator.
    pub fn remove(&self, group: u16) {
        for words in &self.words {
            let [.., low, high] = words.old.load(Ordering::Relaxed).to_le_bytes();
            if u16::from_le_bytes([low, high]) == group {
                words.at.store(0, Ordering::Release);
            }
        }
    }

    /// Returns how many patches have room.
    pub fn room(&self) -> usize {
        let free = |words: &&PatchWords| words.at.load(Ordering::Relaxed) == 0;
        self.words.iter().filter(free).count()
    }

    /// Stores a message, cut to the room.
    pub fn set_message(&self, message: &str) {
        let bytes = &message.as_bytes()[..message.len().min(TEXT)];
        for (place, byte) in self.message.iter().zip(bytes) {
            place.store(*byte, Ordering::Relaxed);
        }
        self.message_len
            .store(bytes.len() as u32, Ordering::Release);
    }

    /// Reads a block from the bytes of another process's memory. `None`: it is none, or of another
    /// version.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<AttachBlockView> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.len() < Self::LEN || word(0)? != ATTACH_MAGIC {
            return None;
        }
        let count = half(std::mem::offset_of!(AttachBlock, patches))? as usize;
        let len = half(std::mem::offset_of!(AttachBlock, message_len))? as usize;
        let text = std::mem::offset_of!(AttachBlock, message);
        let text = bytes.get(text..text + len.min(TEXT))?;
        let first = std::mem::offset_of!(AttachBlock, words);
        let places = (0..count.min(MOST_ATTACH_PATCHES))
            .map(|number| first + number * size_of::<PatchWords>())
            .filter(|&at| word(at) != Some(0));
        let patches = places.map(|at| {
            let old = word(at + 8)?.to_le_bytes();
            let new = word(at + 16)?.to_le_bytes();
            Some(AttachPatch {
                at: word(at)?,
                old: old[..ATTACH_JUMP].try_into().ok()?,
                new: new[..ATTACH_JUMP].try_into().ok()?,
                moved: old[5],
                group: u16::from_le_bytes([old[6], old[7]]),
            })
        });
        Some(AttachBlockView {
            state: half(Self::STATE_AT)?,
            pid: half(std::mem::offset_of!(AttachBlock, pid))?,
            countdown_at: word(std::mem::offset_of!(AttachBlock, countdown_at))?.cast_signed(),
            message: String::from_utf8_lossy(text).into_owned(),
            patches: patches.collect::<Option<_>>()?,
        })
    }
}

impl Default for AttachBlock {
    fn default() -> Self {
        AttachBlock::new()
    }
}

/// A block as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachBlockView {
    /// See [`attach_state`].
    pub state: u32,
    /// See [`AttachBlock::pid`].
    pub pid: u32,
    /// See [`AttachBlock::countdown_at`].
    pub countdown_at: i64,
    /// The reason of a failure, or the log's path.
    pub message: String,
    /// The patches.
    pub patches: Vec<AttachPatch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(block: &AttachBlock) -> Vec<u8> {
        let mut bytes = vec![0; AttachBlock::LEN];
        let mut put = |at: usize, of: &[u8]| bytes[at..at + of.len()].copy_from_slice(of);
        let relaxed = Ordering::Relaxed;
        put(0, &block.magic.load(relaxed).to_le_bytes());
        put(
            AttachBlock::STATE_AT,
            &block.state.load(relaxed).to_le_bytes(),
        );
        let at = std::mem::offset_of!(AttachBlock, pid);
        put(at, &block.pid.load(relaxed).to_le_bytes());
        let at = std::mem::offset_of!(AttachBlock, countdown_at);
        put(at, &block.countdown_at.load(relaxed).to_le_bytes());
        let at = std::mem::offset_of!(AttachBlock, patches);
        put(at, &block.patches.load(relaxed).to_le_bytes());
        let at = std::mem::offset_of!(AttachBlock, message_len);
        put(at, &block.message_len.load(relaxed).to_le_bytes());
        let at = std::mem::offset_of!(AttachBlock, message);
        for (number, byte) in block.message.iter().enumerate() {
            put(at + number, &[byte.load(relaxed)]);
        }
        let at = std::mem::offset_of!(AttachBlock, words);
        for (number, words) in block.words.iter().enumerate() {
            let at = at + number * size_of::<PatchWords>();
            put(at, &words.at.load(relaxed).to_le_bytes());
            put(at + 8, &words.old.load(relaxed).to_le_bytes());
            put(at + 16, &words.new.load(relaxed).to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_block_is_read_as_it_was_written() {
        let block = AttachBlock::new();
        assert_eq!(AttachBlock::read(&bytes_of(&block)), None); // not ready
        block.magic.store(ATTACH_MAGIC, Ordering::Relaxed);
        block.state.store(attach_state::PLANNED, Ordering::Relaxed);
        block.pid.store(77, Ordering::Relaxed);
        block.countdown_at.store(-192, Ordering::Relaxed);
        block.set_message("a log");
        let patch = AttachPatch {
            at: 0x7fff_1234_5678,
            old: [1, 2, 3, 4, 5],
            new: [0xe9, 6, 7, 8, 9],
            moved: 12,
            group: 515,
        };
        let other = AttachPatch { at: 16, ..patch };
        assert!(block.push(&patch) && block.push(&other));
        let bytes = bytes_of(&block);
        let view = AttachBlock::read(&bytes).expect("a block");
        assert_eq!((view.state, view.pid), (attach_state::PLANNED, 77));
        assert_eq!((view.countdown_at, &view.message[..]), (-192, "a log"));
        assert_eq!(view.patches, [patch, other]);
        assert_eq!(AttachBlock::read(&bytes[1..]), None);
    }

    #[test]
    fn a_block_takes_no_more_patches_than_it_has_room_for() {
        let block = AttachBlock::new();
        let patch = AttachPatch {
            at: 16,
            old: [0; 5],
            new: [0; 5],
            moved: 5,
            group: 0,
        };
        let taken = (0..=MOST_ATTACH_PATCHES).filter(|_| block.push(&patch));
        assert_eq!(taken.count(), MOST_ATTACH_PATCHES);
        assert_eq!(block.room(), 0);
    }

    #[test]
    fn the_places_of_removed_patches_are_used_again() {
        let block = AttachBlock::new();
        block.magic.store(ATTACH_MAGIC, Ordering::Relaxed);
        let patch = |at, group| AttachPatch {
            at,
            old: [9; 5],
            new: [0xe9; 5],
            moved: 5,
            group,
        };
        let all = [patch(10, 0), patch(20, 1), patch(30, 1), patch(40, 2)];
        assert!(all.iter().all(|patch| block.push(patch)));
        block.remove(1);
        assert_eq!(block.room(), MOST_ATTACH_PATCHES - 2);
        let listed = || {
            AttachBlock::read(&bytes_of(&block))
                .expect("a block")
                .patches
        };
        assert_eq!(listed(), [all[0], all[3]]);
        assert!(block.push(&patch(50, 3)));
        assert_eq!(listed(), [all[0], patch(50, 3), all[3]]);
    }

    #[test]
    fn a_recording_goes_on_until_it_is_told_to_end() {
        use attach_state::*;
        let goes_on = [PATCHED, CHANGING, RESTORED];
        for state in IDLE..=RESTORED {
            assert_eq!(is_recording(state), goes_on.contains(&state), "{state}");
        }
    }

    #[test]
    fn an_input_holds_its_paths() {
        let input = AttachInput::new(1, 64, b"/srv", b"prof").expect("short paths");
        assert_eq!((input.folder(), input.name()), (&b"/srv"[..], &b"prof"[..]));
        assert!(AttachInput::new(1, 64, &[b'x'; TEXT + 1], b"").is_none());
        let taps = b"libpool.so:malloc=get,free=put";
        let input = input.with_taps(taps).expect("a short text");
        assert_eq!((input.taps(), input.name()), (&taps[..], &b"prof"[..]));
        assert!(input.with_taps(&[b'x'; TAPS + 1]).is_none());
    }
}
