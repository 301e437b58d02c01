//! Rights: what the kernel lets a thread do, as far as it decides whether a thread may change its ids.
//!
//! User and group ids, capabilities, and the bits that say what becomes of those when the ids change. To the kernel they
//! are a thread's own; libc makes the ids those of the whole process (`host/setid.rs`).

use crate::os::sys::{self, Errno};

/// Sets of capabilities, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

/// Bit of [`Rights::bits`]: capabilities stay when the ids change from root's to others (`SECBIT_KEEP_CAPS`).
const KEEP: u32 = 1 << 4;
/// `_LINUX_CAPABILITY_VERSION_3`: sets of 64 bits, in two halves.
const VERSION: u32 = 0x2008_0522;

impl Capabilities {
    /// Those of a thread of this process; 0 is the caller's own.
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

    /// Makes them this thread's.
    fn take(self) -> Result<(), Errno> {
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

/// See the module's text.
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
    /// This thread's.
    pub(crate) fn mine() -> Result<Rights, Errno> {
        Ok(Rights {
            uids: ids(libc::SYS_getresuid)?,
            gids: ids(libc::SYS_getresgid)?,
            capabilities: Capabilities::of(0)?,
            bits: prctl(libc::PR_GET_SECUREBITS, 0)? as u32,
        })
    }

    /// Makes them this thread's, as far as the kernel allows. It does if another thread came to these rights from those that this
    /// one has now: on that way permitted capabilities never grow, and an id was either one of the thread's before, or was
    /// set by means of a capability that this thread has as well.
    pub(crate) fn take(&self) -> Result<(), Errno> {
        let now = Rights::mine()?;
        if now == *self {
            return Ok(());
        }
        let kept = raise_all().and_then(|()| prctl(libc::PR_SET_KEEPCAPS, 1));
        if now.gids != self.gids {
            set_ids(libc::SYS_setresgid, self.gids)?;
        }
        if now.uids != self.uids {
            set_ids(libc::SYS_setresuid, self.uids)?;
            raise_all()?; // the effective ones went with root's id
        }
        if (now.bits ^ self.bits) & !KEEP != 0 {
            prctl(libc::PR_SET_SECUREBITS, self.bits.into())?;
        }
        self.capabilities.take()?;
        kept.and_then(|_| prctl(libc::PR_SET_KEEPCAPS, (self.bits & KEEP != 0).into()))
            .map(drop)
    }

    /// As words, to be handed over: ids and bits in the first four.
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

    /// From what [`Rights::to_words`] made.
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

/// Whether this thread acts as root.
pub(crate) fn is_root() -> bool {
    matches!(ids(libc::SYS_getresuid), Ok([_, 0, _]))
}

/// Whether this thread is under a system call filter.
pub(crate) fn is_filtered() -> bool {
    prctl(libc::PR_GET_SECCOMP, 0) == Ok(libc::SECCOMP_MODE_FILTER.into())
}

/// Makes all permitted capabilities effective.
fn raise_all() -> Result<(), Errno> {
    let now = Capabilities::of(0)?;
    Capabilities {
        effective: now.permitted,
        ..now
    }
    .take()
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

/// Of this thread alone.
fn set_ids(call: i64, ids: [u32; 3]) -> Result<(), Errno> {
    let [real, effective, saved] = ids.map(u64::from);
    // SAFETY: numbers only.
    unsafe { sys::syscall(call, [real, effective, saved, 0, 0, 0]) }.map(drop)
}

fn prctl(what: i32, value: u64) -> Result<u64, Errno> {
    // SAFETY: those that are asked for here take and return numbers only.
    unsafe { sys::syscall(libc::SYS_prctl, [what as u64, value, 0, 0, 0, 0]) }
}
