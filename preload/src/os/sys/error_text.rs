//! Error texts: words for the error numbers of the kernel.
//!
//! libc's `strerror` translates them, which takes locks and memory. Some words here are about
//! files, which most of our calls are.

/// The words, by number. Empty: no error has that number.
const WORDS: [&str; 134] = [
    "", // 0
    "operation not permitted",
    "no such file or directory",
    "no such process",
    "interrupted",
    "input/output error",
    "no such device or address",
    "argument list too long",
    "not an executable format",
    "bad file descriptor",
    "no child processes", // 10
    "temporarily unavailable",
    "out of memory",
    "permission denied",
    "bad address",
    "not a block device",
    "in use",
    "file exists",
    // The kernel has it for links between file systems, which this library does not make.
    "the root directory is another one than at the program's start",
    "no such device",
    "a component of the path is not a directory", // 20
    "is a directory",
    "invalid argument",
    "too many open files",
    "too many open files",
    "not a terminal",
    "the file is being executed",
    "file size limit reached",
    "no space left on device",
    "cannot seek",
    "read-only file system", // 30
    "too many links",
    "broken pipe",
    "argument out of domain",
    "result out of range",
    "a lock would never be granted",
    "file name too long",
    "no locks available",
    "refused by a filter of system calls, or unknown to the kernel",
    "directory not empty",
    "is a symbolic link", // 40
    "",
    "no message of that type",
    "identifier removed",
    "channel number out of range",
    "level 2 not synchronized",
    "level 3 halted",
    "level 3 reset",
    "link number out of range",
    "protocol driver not attached",
    "no CSI structure available", // 50
    "level 2 halted",
    "invalid exchange",
    "invalid request descriptor",
    "exchange full",
    "no anode",
    "invalid request code",
    "invalid slot",
    "",
    "bad font file format",
    "not a stream", // 60
    "no data available",
    "timer expired",
    "out of streams resources",
    "not on the network",
    "package not installed",
    "object is remote",
    "link severed",
    "advertise error",
    "srmount error",
    "communication error on send", // 70
    "protocol error",
    "multihop attempted",
    "error of a remote file system",
    "bad message",
    "value too large",
    "name not unique on the network",
    "file descriptor in a bad state",
    "remote address changed",
    "cannot access a shared library",
    "a shared library is corrupted", // 80
    "corrupted .lib section",
    "too many shared libraries",
    "cannot execute a shared library",
    "invalid multibyte character",
    "the call should be restarted",
    "streams pipe error",
    "too many users",
    "not a socket",
    "destination address required",
    "message too long", // 90
    "wrong protocol for the socket",
    "protocol not available",
    "protocol not supported",
    "socket type not supported",
    "operation not supported",
    "protocol family not supported",
    "address family not supported",
    "address in use",
    "address not available",
    "network is down", // 100
    "network unreachable",
    "connection dropped by the network",
    "connection aborted",
    "connection reset",
    "no buffer space available",
    "already connected",
    "not connected",
    "the socket is shut down",
    "too many references",
    "timed out", // 110
    "connection refused",
    "host is down",
    "no route to the host",
    "already in progress",
    "in progress",
    "stale file handle",
    "the file system needs to be checked",
    "not a XENIX named type file",
    "no XENIX semaphores available",
    "is a named type file", // 120
    "remote input/output error",
    "disk quota exceeded",
    "no medium in the drive",
    "wrong type of medium",
    "canceled",
    "required key not available",
    "key expired",
    "key revoked",
    "key rejected",
    "owner died", // 130
    "state not recoverable",
    "blocked by an RF kill switch",
    "memory page has a hardware error",
];

/// Returns words for an error number, or `None` if the kernel has no such error.
pub(super) fn describe(number: i32) -> Option<&'static str> {
    let words = WORDS.get(usize::try_from(number).ok()?)?;
    (!words.is_empty()).then_some(words)
}
