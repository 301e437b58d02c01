//! The kernel's description of a thread: `/proc/<thread>/status` (proc_pid_status(5)).

/// Returns the name in a thread's `status`, if the thread belongs to that process: another thread
/// may have its number by now. The kernel writes a line end or a backslash in a name with a
/// backslash.
#[must_use]
pub fn thread_name_in(status: &[u8], process: u32) -> Option<String> {
    let text = String::from_utf8_lossy(status);
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(":\t")?.to_owned()))
    };
    if value("Tgid")?.parse() != Ok(process) {
        return None;
    }
    let (mut name, mut escaped) = (String::new(), false);
    for letter in value("Name")?.chars() {
        match (escaped, letter) {
            (false, '\\') => escaped = true,
            (true, 'n') => (escaped, name) = (false, name + "\n"),
            _ => {
                escaped = false;
                name.push(letter);
            }
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\ta\\nb \\\\c:\t\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t17\nNgid:\t0\nPid:\t18\n";

    #[test]
    fn a_name_is_of_a_thread_of_the_process() {
        assert_eq!(thread_name_in(STATUS, 17).as_deref(), Some("a\nb \\c:\t"));
        assert_eq!(thread_name_in(STATUS, 18), None);
        assert_eq!(thread_name_in(b"", 17), None);
        assert_eq!(thread_name_in(b"Tgid:\t17\n", 17), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn this_thread_has_a_name() {
        let status = std::fs::read("/proc/thread-self/status").unwrap();
        let name = thread_name_in(&status, std::process::id());
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert_eq!(name.as_deref(), comm.strip_suffix('\n'));
    }
}
