//! The account: the writer's running totals, the dumps, and what it says at the end.

use heapprof_format::{Counter, Record};

use super::Writer;
use crate::dumps::Context;
use crate::{clock, counters, sys};

impl Writer {
    pub(super) fn totals(&self) -> Vec<(Counter, u64)> {
        let mut totals = vec![
            (Counter::SampledAllocs, self.sampled_allocs),
            (Counter::SampledFrees, self.sampled_frees),
            (Counter::CountedBytes, self.counted_bytes),
            (Counter::CountedThreads, self.counted_threads),
        ];
        totals.extend(counters::all().filter(|&(_, value)| value > 0));
        totals
    }

    pub(super) fn tell_counters(&mut self, now_ns: u64) {
        let values = self.totals();
        let time_ns = self.since_start(now_ns);
        self.output
            .encoder
            .record(&Record::Counters { time_ns, values });
    }

    #[inline]
    pub(super) fn dump_if_due(&mut self) {
        if let (Some(dumps), Some(ledger)) = (&self.dumps, &self.ledger)
            && let Some(why) = dumps.due(ledger, self.inheritance.in_use_bytes())
        {
            let _ = self.dump(&why); // what went wrong has been said
        }
    }

    /// Writes a dump. Returns its path, or why there is none.
    #[cold]
    pub(super) fn dump(&mut self, why: &str) -> Result<String, String> {
        self.tell_modules();
        self.inheritance.settle();
        let comments = self.dump_comments();
        let now_ns = clock::now_ns();
        let (Some(dumps), Some(ledger)) = (&mut self.dumps, &self.ledger) else {
            return Err("no dumps are kept".into());
        };
        let context = Context {
            stacks: &self.kept,
            inheritance: &self.inheritance,
            modules: &self.modules,
            gone: &self.gone,
            comments,
        };
        let written = dumps.write(why, ledger, context, now_ns);
        let time_ns = self.since_start(now_ns);
        self.output.encoder.record(&Record::Marker {
            time_ns,
            name: format!("dump: {why}"),
        });
        written
    }

    pub(super) fn dump_comments(&self) -> Vec<String> {
        let interval = self.settings.interval;
        let mut comments = vec![
            format!("program: {}", self.output.program),
            format!("command: {}", self.output.args.join(" ")),
            format!("pid: {}", sys::getpid()),
            format!("interval: {interval}"),
            match interval {
                1 => "estimator: none, every allocation was recorded".to_owned(),
                _ => "estimator: each sample of s bytes counts 1/p objects and s/p bytes, \
                      p = 1 - exp(-s/interval)"
                    .to_owned(),
            },
        ];
        if self.inheritance.incomplete {
            comments.push(
                "inherited: what was in use at the fork is missing here, because the parent was busy; \
                 it is in the log"
                    .to_owned(),
            );
        } else if !self.inheritance.ledgers.is_empty() {
            comments.push("inherited: what was in use at the fork counts as allocated".to_owned());
        }
        if let Some(ledger) = &self.ledger {
            let mut total = *ledger.total();
            total.merge(&self.inheritance.total());
            comments.push(format!(
                "standard error: in use {:.0} objects, {:.0} bytes; allocated {:.0} objects, {:.0} bytes",
                total.in_use.objects_error(),
                total.in_use.bytes_error(),
                total.allocated.objects_error(),
                total.allocated.bytes_error(),
            ));
        }
        let losses: Vec<String> = self
            .totals()
            .iter()
            .map(|(counter, value)| format!("{}: {value}", counter.describe()))
            .collect();
        comments.push(format!("account: {}", losses.join(", ")));
        let cut = self
            .kept
            .iter()
            .flatten()
            .filter(|stack| stack.end != heapprof_format::WalkEnd::Root)
            .count();
        comments.push(format!(
            "stacks: {}, of which cut short: {cut}",
            self.stacks.len()
        ));
        comments
    }

    pub(super) fn say_summary(&self) {
        let lost: u64 = counters::all()
            .filter(|(counter, _)| counter.is_loss() && *counter != Counter::LostLogBytes)
            .map(|(_, value)| value)
            .sum();
        let dumps = counters::DUMPS_WRITTEN.get();
        let base = String::from_utf8_lossy(&self.output.base);
        let dumps = match dumps {
            0 => String::new(),
            n => format!(", {n} dumps ({base}.0001.heap …)"),
        };
        crate::say::say!(
            "{} samples, {} of them freed, {} losses; {}{}{dumps}",
            self.sampled_allocs,
            self.sampled_frees,
            lost,
            self.output.log_path(),
            if self.output.log_is_whole() {
                ""
            } else {
                " (incomplete)"
            },
        );
    }
}
