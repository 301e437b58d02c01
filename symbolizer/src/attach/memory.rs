//! Memory: the memory of another process, by its file below `/proc`.
//!
//! The kernel checks every access. It writes to pages that the process cannot write to, such as
//! code, into a copy of the page that belongs to the process alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Memory(File);

impl Memory {
    /// Opens the memory of a process, or that of one of its threads, which is the same.
    pub(super) fn open(tid: u32) -> io::Result<Memory> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .open(format!("/proc/{tid}/mem"));
        file.map(Memory)
    }

    /// Reads `len` bytes.
    pub(super) fn bytes(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.0.read_exact_at(&mut bytes, address)?;
        Ok(bytes)
    }

    /// Reads as many of `len` bytes as there are.
    pub(super) fn some_bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.0.read_at(&mut bytes[done..], address + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => done += read,
            }
        }
        bytes.truncate(done);
        bytes
    }

    /// Reads a word.
    pub(super) fn word(&self, address: u64) -> io::Result<u64> {
        let mut word = [0; 8];
        self.0.read_exact_at(&mut word, address)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Writes bytes. The kernel copies bytes of one page in one step.
    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, address)
    }
}
