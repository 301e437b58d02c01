//! Claims: the lines in which a fixture states its expected results (c-fixtures/README.md).

use std::collections::BTreeMap;

use crate::account::Account;
use crate::pattern::Pattern;

/// See the module's text. Lines with an unknown first word are ignored.
#[derive(Debug, Default)]
pub struct Claims {
    /// `stack`: every block of that size was allocated by such a stack.
    pub stacks: Vec<(u64, Pattern)>,
    /// `count`: size, blocks allocated, blocks in use at the end.
    pub counts: Vec<(u64, u64, u64)>,
    /// `thread`: size, name of the thread.
    pub threads: Vec<(u64, String)>,
    /// `never`: functions that are on no stack.
    pub never: Vec<String>,
    /// `truth`: exact numbers by site.
    pub truth: BTreeMap<String, Account>,
    /// `untruthed`: bounds by site.
    pub untruthed: BTreeMap<String, Account>,
    /// `ok`: checks that passed.
    pub ok: Vec<String>,
    /// `FAIL` lines, whole.
    pub failures: Vec<String>,
    /// `skip` lines, whole.
    pub skipped: Vec<String>,
    /// `pid`, `parent`, `child` and `image` lines: first words, and the process id.
    pub pids: Vec<(String, u32)>,
    /// `live`: blocks, bytes.
    pub live: Option<(u64, u64)>,
}

impl Claims {
    /// Parses the program's output.
    ///
    /// # Panics
    /// If a line of a known kind is malformed: a fixture's fault.
    pub fn parse(output: &str) -> Claims {
        let mut claims = Claims::default();
        for line in output.lines() {
            if claims.line(line).is_none() {
                panic!("the fixture's line makes no sense: {line}");
            }
        }
        claims
    }

    /// Returns the process id that `who` printed.
    ///
    /// # Panics
    /// If no process of that name printed one.
    #[track_caller]
    pub fn pid_of(&self, who: &str) -> u32 {
        let found = self.pids.iter().find(|(name, _)| name == who);
        found
            .unwrap_or_else(|| panic!("no {who} in {:?}", self.pids))
            .1
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut words = rest.split(' ');
        match kind {
            "stack" => {
                let size = words.next()?.parse().ok()?;
                self.stacks.push((size, Pattern::parse(words)));
            }
            "count" => {
                let mut number = || words.next()?.parse().ok();
                self.counts.push((number()?, number()?, number()?));
            }
            "thread" => {
                let size = words.next()?.parse().ok()?;
                self.threads.push((size, words.next()?.into()));
            }
            "never" => self.never.extend(words.map(String::from)),
            "truth" | "untruthed" => {
                let site = words.next()?.to_owned();
                let mut number = || words.next()?.parse().ok();
                let account = Account {
                    allocated_objects: number()?,
                    allocated_bytes: number()?,
                    in_use_objects: number()?,
                    in_use_bytes: number()?,
                };
                match kind {
                    "truth" => self.truth.insert(site, account),
                    _ => self.untruthed.insert(site, account),
                };
            }
            "ok" => self.ok.push(rest.into()),
            "FAIL" => self.failures.push(line.into()),
            "skip" => self.skipped.push(line.into()),
            "pid" | "parent" | "child" => {
                self.pids.push((kind.into(), words.next()?.parse().ok()?));
            }
            "image" => {
                let number = words.next()?;
                let pid = words.nth(1)?.parse().ok()?;
                self.pids.push((format!("image {number}"), pid));
            }
            "live" => {
                let mut number = || words.next()?.parse().ok();
                self.live = Some((number()?, number()?));
            }
            _ => {}
        }
        Some(())
    }
}
