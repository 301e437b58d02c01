//! Priority: this program before others, while threads of a process are stopped.
//!
//! A busy process has more threads than processors. Each thread that goes on takes a processor, and
//! this program waits for one while the others are still stopped. A real-time priority prevents
//! that. It needs a right that root has; without the right, this program runs as before.

/// The priority. Dropping it restores the one before.
pub(super) struct Priority {
    /// The policy before; `None`: it was not changed.
    before: Option<i64>,
}

/// The lowest real-time priority.
const LOWEST: i32 = 1;

/// Sets the policy of this thread, by the system call: musl's function always fails.
fn set(policy: i64, priority: i32) -> bool {
    // SAFETY: reads one structure, of one number.
    let answer =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    answer == 0
}

impl Priority {
    /// Raises the priority of this thread, if that is permitted.
    pub(super) fn raise() -> Priority {
        // SAFETY: numbers only.
        let before = unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        let is_usual = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
            .map(i64::from)
            .contains(&before);
        let is_raised = is_usual && set(libc::SCHED_FIFO.into(), LOWEST);
        Priority {
            before: is_raised.then_some(before),
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set(before, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_as_before_in_the_end() {
        // SAFETY: numbers only.
        let policy = || unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) };
        let before = policy();
        let priority = Priority::raise();
        assert_eq!(policy() != before, priority.before.is_some());
        drop(priority);
        assert_eq!(policy(), before);
    }
}
