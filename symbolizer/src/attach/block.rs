//! Attach block: the words of the library in the process, read and written from outside.

use std::fs;

use heapprof_format::{AttachBlock, AttachBlockView};

use super::memory::Memory;
use super::target::Loaded;

/// The process of a block whose library has forgotten that it is a copy.
pub(super) const FORGOTTEN: u32 = 0;

/// Returns the process's id as it sees it.
pub(super) fn own_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let last = line.and_then(|line| line.split_ascii_whitespace().last());
    last.and_then(|last| last.parse().ok()).unwrap_or(pid)
}

pub(super) fn read_block(memory: &Memory, loaded: &Loaded) -> Result<AttachBlockView, String> {
    let bytes = memory
        .bytes(loaded.block, AttachBlock::LEN)
        .map_err(|error| format!("cannot read its memory: {error}"))?;
    AttachBlock::read(&bytes).ok_or_else(|| {
        "the library in it is of another version of heapprof, or not ready".to_owned()
    })
}

pub(super) fn set_state(memory: &Memory, loaded: &Loaded, state: u32) -> Result<(), String> {
    let at = loaded.block + AttachBlock::STATE_AT as u64;
    memory
        .write(at, &state.to_le_bytes())
        .map_err(|error| format!("cannot write its memory: {error}"))
}
