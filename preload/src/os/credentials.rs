//! Credentials: the rights of a thread that decide whether it may change its ids.
//!
//! They consist of user and group ids, capabilities, and the bits that determine what a change of
//! ids does to the capabilities. The kernel keeps them for each thread; libc applies a change of
//! ids to all threads of the process.

use crate::os::sys::{self, Errno};

/// Sets of capabilities, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

/// Bit of [`Rights::bits`]: keeps the capabilities when the ids change from root's to others
/// (`SECBIT_KEEP_CAPS`).
const KEEP: u32 = 1 << 4;
/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits, in two halves.
const VERSION: u32 = 0x2008_0522;

impl Capabilities {
    /// Returns the capabilities of a thread of this process; 0 is the calling thread.
    pub(crate) fn of(tid: u32) -> Result<Capabilities, Errno> {
        let head = [VERSION, tid];
        let mut halves = [[0u32; 3]; 2];
        // SAFETY: reads two words and writes six, the kernel's structures of that version.
        unsafe {
            sys::syscall(
                libc::SYS_capget,
                [head.as_ptr() as u64, halves.as_mut_ptr() as u64, 0, 0, 0, 0],
            )?;
        }
        let [low, high] = halves;
        let set = |n: usize| u64::from(low[n]) | u64::from(high[n]) << 32;
        Ok(Capabilities {
            effective: set(0),
            permitted: set(1),
            inheritable: set(2),
        })
    }

    /// Applies the capabilities to this thread.
    fn apply(self) -> Result<(), Errno> {
        let head = [VERSION, 0];
        let all = [self.effective, self.permitted, self.inheritable];
        let halves = [all.map(|set| set as u32), all.map(|set| (set >> 32) as u32)];
        // SAFETY: reads two and six words, the kernel's structures of that version.
        unsafe {
            sys::syscall(
                libc::SYS_capset,
                [head.as_ptr() as u64, halves.as_ptr() as u64, 0, 0, 0, 0],
            )
        }
        .map(drop)
    }
}

/// The credentials of one thread; see the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rights {
    /// Real, effective, saved.
    uids: [u32; 3],
    gids: [u32; 3],
    pub(crate) capabilities: Capabilities,
    /// Security bits (capabilities(7)).
    bits: u32,
}

impl Rights {
    /// Returns the credentials of this thread.
    pub(crate) fn of_this_thread() -> Result<Rights, Errno> {
        Ok(Rights {
            uids: ids(libc::SYS_getresuid)?,
            gids: ids(libc::SYS_getresgid)?,
            capabilities: Capabilities::of(0)?,
            bits: prctl(libc::PR_GET_SECUREBITS, 0)? as u32,
        })
    }

    /// Applies the credentials to this thread, as far as the kernel allows. The kernel allows it if
    /// another thread came from this thread's present credentials to these. On that way permitted
    /// capabilities never grew. Each id either belonged to that thread before, or was set by a
    /// capability that this thread has, too.
    pub(crate) fn apply(&self) -> Result<(), Errno> {
        let now = Rights::of_this_thread()?;
        if now == *self {
            return Ok(());
        }
        let kept = raise_all().and_then(|()| prctl(libc::PR_SET_KEEPCAPS, 1));
        if now.gids != self.gids {
            set_ids(libc::SYS_setresgid, self.gids)?;
        }
        if now.uids != self.uids {
            set_ids(libc::SYS_setresuid, self.uids)?;
            raise_all()?; // the change from root's id cleared the effective ones
        }
        if (now.bits ^ self.bits) & !KEEP != 0 {
            prctl(libc::PR_SET_SECUREBITS, self.bits.into())?;
        }
        self.capabilities.apply()?;
        kept.and_then(|_| prctl(libc::PR_SET_KEEPCAPS, (self.bits & KEEP != 0).into()))
            .map(drop)
    }

    /// Returns the credentials as words for another thread. The first four words hold ids and bits.
    pub(crate) fn to_words(self) -> [u64; 7] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ([r, e, s], [rg, eg, sg]) = (self.uids, self.gids);
        let sets = self.capabilities;
        [
            pair(r, e),
            pair(s, rg),
            pair(eg, sg),
            self.bits.into(),
            sets.effective,
            sets.permitted,
            sets.inheritable,
        ]
    }

    /// Returns the credentials that [`Rights::to_words`] encoded.
    pub(crate) fn from_words(words: [u64; 7]) -> Rights {
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let [(r, e), (s, rg), (eg, sg), (bits, _)] =
            [words[0], words[1], words[2], words[3]].map(halves);
        Rights {
            uids: [r, e, s],
            gids: [rg, eg, sg],
            capabilities: Capabilities {
                effective: words[4],
                permitted: words[5],
                inheritable: words[6],
            },
            bits,
        }
    }
}

/// Returns true if this thread has root's effective id.
pub(crate) fn is_root() -> bool {
    matches!(ids(libc::SYS_getresuid), Ok([_, 0, _]))
}

/// Returns true if this thread has a seccomp filter.
pub(crate) fn has_seccomp_filter() -> bool {
    prctl(libc::PR_GET_SECCOMP, 0) == Ok(libc::SECCOMP_MODE_FILTER.into())
}

/// Makes all permitted capabilities effective.
fn raise_all() -> Result<(), Errno> {
    let now = Capabilities::of(0)?;
    Capabilities {
        effective: now.permitted,
        ..now
    }
    .apply()
}

fn ids(call: i64) -> Result<[u32; 3], Errno> {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = &mut ids;
    let place = |id: &mut u32| std::ptr::from_mut(id) as u64;
    // SAFETY: getresuid and getresgid write three ids.
    unsafe {
        sys::syscall(call, [place(real), place(effective), place(saved), 0, 0, 0])?;
    }
    Ok(ids)
}

/// Sets the ids of this thread alone.
fn set_ids(call: i64, ids: [u32; 3]) -> Result<(), Errno> {
    let [real, effective, saved] = ids.map(u64::from);
    // SAFETY: numbers only.
    unsafe { sys::syscall(call, [real, effective, saved, 0, 0, 0]) }.map(drop)
}

fn prctl(what: i32, value: u64) -> Result<u64, Errno> {
    // SAFETY: the options that callers use here take and return only numbers.
    unsafe { sys::syscall(libc::SYS_prctl, [what as u64, value, 0, 0, 0, 0]) }
}
