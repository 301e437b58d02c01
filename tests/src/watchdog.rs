//! Watchdog: ends a program that does not end in time.
//!
//! Its processes are those of its process group, which the run made for it. gdb prints the stacks
//! of their threads, and then the group is killed.

use std::fs;
use std::process::Command;

/// Returns the living processes of a group.
fn members(group: i32) -> Vec<i32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            // pid (name) state ppid pgrp …; the name may contain anything, also brackets.
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let fields = stat.rsplit(')').next().unwrap_or_default();
            let mut fields = fields.split_whitespace();
            let state = fields.next();
            state != Some("Z") && fields.nth(1).and_then(|pgrp| pgrp.parse().ok()) == Some(group)
        })
        .collect()
}

/// Returns the stacks of all threads of all processes of the group, by gdb.
pub(crate) fn stacks(group: i32) -> String {
    let mut all = String::new();
    for pid in members(group) {
        let shown = Command::new("gdb")
            .args(["-nx", "-batch", "-p", &pid.to_string()])
            .args(["-ex", "thread apply all bt"])
            .output();
        let shown = match &shown {
            Ok(output) => String::from_utf8_lossy(&output.stdout),
            Err(error) => format!("gdb: {error} (scripts/install-deps installs it)").into(),
        };
        all.push_str(&format!("=== process {pid}\n{shown}\n"));
    }
    all
}

/// Kills all processes of the group.
pub(crate) fn kill(group: i32) {
    // SAFETY: a system call without memory; the group was made for this run and its leader is not
    // waited for yet, so no other group can have the number.
    unsafe { libc::kill(-group, libc::SIGKILL) };
}
