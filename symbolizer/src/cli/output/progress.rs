//! Progress: a bar for long work, shown only on a terminal, and only after some time.

use std::io::IsTerminal;
use std::time::Duration;

use heapprof_symbolizer::on_unpacking;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Files smaller than this are read before an eye would see a bar.
const LONG: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn bytes(what: &'static str, len: u64) -> Progress {
        let template = "{msg} {bar:30} {bytes} of {total_bytes}, {eta} left";
        Progress::new(
            ProgressBar::with_draw_target(Some(len), target(len >= LONG)),
            what,
            template,
        )
    }

    pub(crate) fn spinner(what: &'static str) -> Progress {
        let progress = Progress::new(
            ProgressBar::with_draw_target(None, target(true)),
            what,
            "{spinner} {msg}",
        );
        progress.0.enable_steady_tick(Duration::from_millis(120));
        progress
    }

    pub(crate) fn at(&self, position: u64) {
        self.0.set_position(position);
    }

    /// Shows what is being done now.
    pub(crate) fn say(&self, what: String) {
        self.0.set_message(what);
    }

    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }

    fn new(bar: ProgressBar, what: &'static str, template: &str) -> Progress {
        // A template that does not parse would be our own mistake, and no reason to fail.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Progress(bar)
    }
}

/// Shows a bar while a compressed log is unpacked.
pub(crate) fn show_unpacking() {
    on_unpacking(|length| {
        // Its end clears it.
        let progress = Progress::bytes("unpacking", length);
        Box::new(move |offset| progress.at(offset))
    });
}

fn target(worth_it: bool) -> ProgressDrawTarget {
    if worth_it && std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    }
}
