//! `heapprof tree`: shows the call tree down to the allocations.

mod json;

use std::io::{self, Write};

use heapprof_symbolizer::{
    By, Confidence, Count, Direction, LibraryFrames, Measure, Metric, Node, Pace, Percent,
    Precision, Printable, ReadRequest, Scale, Tree, WantedExtras, cut, cut_front, cut_function,
    cut_middle,
};

use crate::cli::inputs::source::Source;
use crate::cli::options::choice;
use crate::cli::options::filter::FilterArgs;
use crate::cli::options::measure::{SumArg, TemporaryArgs, not_known_by};
use crate::cli::options::quantity::{count, percent};
use crate::cli::output::colour::{self, TextStyle};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::{write_mappings_read, write_totals};
use crate::cli::output::width::stdout_width;

/// Show the calls that lead to allocations, as a tree
///
/// From the root of the program down, or from one function to its callers or callees. Numbers are
/// of all that was allocated below. Branches smaller than --min percent are left out, and counted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    #[command(flatten)]
    filter: FilterArgs,

    /// From this function to those that called it
    #[arg(long, value_name = "FUNCTION", conflicts_with = "callees")]
    callers: Option<String>,

    /// From this function to those that it called
    #[arg(long, value_name = "FUNCTION")]
    callees: Option<String>,

    /// Group that a branch stands for
    #[arg(long, value_name = "GROUP", default_value = "function", value_parser = choice::by())]
    by: By,

    /// The number that is shown and sorted by
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: SumArg,

    #[command(flatten)]
    temporary: TemporaryArgs,

    /// Leave out branches of less than this share of what the tree shows, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, allow_negative_numbers = true)]
    min: f64,

    /// Show this many calls deep; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count, allow_negative_numbers = true)]
    depth: usize,

    /// Show each frame inside the standard library and the allocator; otherwise only the function
    /// that the program calls there
    #[arg(long)]
    all_frames: bool,

    /// Print JSON, with all four metrics and all branches
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (by, measure) = (args.by, args.metric.0);
    args.temporary.refuse_beside(measure)?;
    args.source.time.age.refuse_beside(measure)?;
    if by.divides_rows() && measure.needs_pasts() {
        let what = not_known_by(measure, by);
        return Err(Failure::Senseless(what));
    }
    let mut profile = args.source.part(&ReadRequest {
        view: args.source.time.view(),
        pasts: measure.needs_pasts().then(|| args.temporary.temporary()),
        numbers: measure.past_numbers(),
        mappings: measure.is_mapped(),
        pages: measure.is_of_pages(),
        extras: WantedExtras {
            threads: by.divides_rows(),
            ..WantedExtras::default()
        },
        ..ReadRequest::default()
    })?;
    args.source.need_times(measure, &profile)?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols)?;
    let direction = match (&args.callers, &args.callees) {
        (Some(function), _) => Direction::Callers(function.clone()),
        (None, Some(function)) => Direction::Callees(function.clone()),
        (None, None) => Direction::Down,
    };
    let library_frames = match args.all_frames {
        true => LibraryFrames::Shown,
        false => LibraryFrames::Folded,
    };
    let tree = Tree::of(&profile, &symbols, by, &direction, measure, library_frames);
    Destination::Stdout.write(|out| {
        if args.json {
            return json::write(&profile, &tree, measure, out);
        }
        match measure.is_mapped() {
            true => write_mappings_read(&profile, out)?,
            false => write_totals(&profile, stdout_width(), out)?,
        }
        writeln!(out)?;
        // Only growth counts, shrinkage does not.
        let own = tree.nodes().iter().map(|node| node.own_amount.value);
        let shown: f64 = own.filter(|&value| value > 0.0).sum();
        if shown == 0.0 {
            let why = why_nothing(&direction, measure, tree.root(), || {
                let all = Metric::AllocatedBytes.into();
                let (by, down) = (By::Function, Direction::Down);
                Tree::of(&profile, &symbols, by, &down, all, LibraryFrames::Shown)
            });
            return writeln!(out, "  nothing: {why}");
        }
        let is_sampled = profile.precision() == Precision::Sampled && !measure.is_mapped();
        let whole = measure.of_all(&profile);
        if measure.needs_pasts() {
            let quantity = |value| measure.quantity(value);
            let error = match is_sampled {
                true => format!(" ± {}", quantity(half(whole.error()))),
                false => String::new(),
            };
            writeln!(out, "{measure}: {}{error}", quantity(whole.value))?;
        }
        let most = tree.nodes().iter().map(|node| node.amount.value.abs());
        let mut writer = Writer {
            tree: &tree,
            measure,
            // One unit for all lines, or they could not be compared at a glance.
            pace: Pace::of(most.fold(0.0, f64::max)),
            whole: whole.value,
            scale: Scale::of(&profile, measure),
            least: shown * args.min.clamp(0.0, 100.0) / 100.0,
            depth: args.depth,
            sampled: is_sampled,
            width: stdout_width(),
            fit: match by {
                By::Function | By::Line => cut_function,
                By::File | By::Module => cut_front,
                _ => cut_middle,
            },
            has_one_root: false,
            out,
        };
        writer.all()
    })
}

/// Half of the interval around a number with that standard error: as the heading says, that of the
/// default confidence.
fn half(error: f64) -> f64 {
    error * Confidence::default().standard_errors()
}

/// How many functions are proposed for one that is not there.
const PROPOSED: usize = 3;

/// Why there is no tree, and what leads to one: another metric, or a function's whole name.
fn why_nothing(
    direction: &Direction,
    measure: Measure,
    root: &Node,
    whole: impl FnOnce() -> Tree,
) -> String {
    if measure.is_growth() && root.amount.value < 0.0 {
        return "nothing grew".to_owned();
    }
    if root.total.get(Metric::AllocatedObjects) > 0 {
        return match measure {
            Measure::Basic(_) => {
                format!("{measure} is 0 (-m allocated-bytes shows what was freed, too)")
            }
            _ => format!("{measure} is 0"),
        };
    }
    let (Direction::Callers(function) | Direction::Callees(function)) = direction else {
        return format!("no stack matches, or {measure} is 0");
    };
    let tree = whole();
    let names = tree.nodes().iter().map(|node| tree.name(node));
    let mut similar: Vec<&str> = names.filter(|name| name.contains(&**function)).collect();
    // For `open`, `Sessions::open(int)` comes before functions that have it as an argument.
    similar.sort_by_key(|name| (name.len(), *name));
    similar.dedup();
    similar.truncate(PROPOSED);
    let similar: Vec<String> = similar
        .iter()
        .map(|name| format!("'{}'", Printable(name)))
        .collect();
    let proposed = match similar.is_empty() {
        true => String::new(),
        false => format!("; perhaps {} is meant", similar.join(" or ")),
    };
    format!(
        "no stack has a function '{}', by its whole name with namespaces and classes{proposed}",
        Printable(function)
    )
}

struct Writer<'a, W> {
    tree: &'a Tree,
    measure: Measure,
    pace: Pace,
    whole: f64,
    /// The scale that growth is judged by.
    scale: Scale,
    least: f64,
    depth: usize,
    sampled: bool,
    width: Option<usize>,
    /// Cuts a name to so many columns.
    fit: fn(&str, usize) -> String,
    /// Then it needs no branch to stand on.
    has_one_root: bool,
    out: &'a mut W,
}

/// The children of a node while they are written.
struct Level<'a> {
    /// Those that are still to come.
    shown: std::slice::Iter<'a, Node>,
    /// How many are too small to be shown, and what they are together.
    hidden: usize,
    hidden_value: f64,
    /// An only child of one parent is a step, not a branch: a chain does not wander off to the
    /// right.
    is_step: bool,
}

impl<'a, W: Write> Writer<'a, W> {
    fn level(&self, node: &Node, is_top: bool) -> Level<'a> {
        let value = |node: &Node| node.amount.value;
        // Largest first; what shrank is last.
        let mut children = self.tree.children(node);
        if !self.measure.is_growth() {
            children = &children[..children.partition_point(|child| value(child) > 0.0)];
        }
        let number = children.partition_point(|child| value(child) >= self.least);
        let (shown, hidden) = children.split_at(number);
        Level {
            shown: shown.iter(),
            hidden: hidden.len(),
            hidden_value: hidden.iter().map(value).sum(),
            is_step: shown.len() == 1 && hidden.is_empty() && !is_top,
        }
    }

    /// Writes the tree, with a stack of its own: there may be more levels than a thread's has room
    /// for.
    fn all(&mut self) -> io::Result<()> {
        let mut levels = vec![self.level(self.tree.root(), true)];
        self.has_one_root = levels[0].shown.len() == 1 && levels[0].hidden == 0;
        // For each level of branches, whether more follows there.
        let mut lines: Vec<bool> = Vec::new();
        while let Some(level) = levels.last_mut() {
            let Some(child) = level.shown.next() else {
                let (hidden, value) = (level.hidden, level.hidden_value);
                levels.pop();
                self.hidden(hidden, value, &lines)?;
                if levels.last().is_some_and(|level| !level.is_step) {
                    lines.pop();
                }
                continue;
            };
            let more = level.shown.len() > 0 || level.hidden > 0;
            let is_step = level.is_step;
            let is_last = self.depth > 0 && levels.len() >= self.depth;
            self.line(child, &lines, is_step, more, is_last)?;
            if !is_last {
                if !is_step {
                    lines.push(more);
                }
                levels.push(self.level(child, lines.is_empty()));
            }
        }
        Ok(())
    }

    fn hidden(&mut self, number: usize, value: f64, lines: &[bool]) -> io::Result<()> {
        if number == 0 {
            return Ok(());
        }
        let text = format!(
            "{}{}{} smaller{}, together {}",
            self.margin(),
            self.indent(lines, "└ "),
            Count(number as u64),
            match self.measure.is_growth() {
                true => " or shrinking",
                false => "",
            },
            self.quantity(value)
        );
        let text = match self.width {
            Some(width) => cut(&text, width),
            None => text,
        };
        writeln!(
            self.out,
            "{}",
            TextStyle::Aside.paint(&text, colour::is_on())
        )
    }

    /// `is_last`: what is below is deeper than was asked for, which an ellipsis says.
    fn line(
        &mut self,
        node: &Node,
        lines: &[bool],
        is_step: bool,
        more: bool,
        is_last: bool,
    ) -> io::Result<()> {
        let value = node.amount.value;
        let width = self.quantity_width();
        let error = match self.sampled {
            true => format!(
                " ± {:>width$}",
                self.quantity(half(node.amount.error())),
                width = width - 1
            ),
            false => String::new(),
        };
        let branch = match (lines.is_empty() && self.has_one_root, is_step, more) {
            (true, ..) => "",
            (_, true, _) => "",
            (_, _, true) => "├ ",
            (_, _, false) => "└ ",
        };
        let share = || {
            Percent {
                part: value,
                whole: self.whole,
            }
            .to_string()
        };
        // Parts of a sum of what grew and what shrank are none.
        let (share, look) = match self.measure.is_growth() {
            true => (
                self.scale.verdict(&node.amount).name().to_owned(),
                TextStyle::Plain,
            ),
            false => (share(), TextStyle::of_share(value, self.whole)),
        };
        let largest = self.tree.children(node).first();
        let below = match is_last && largest.is_some_and(|child| child.amount.value > 0.0) {
            true => " …",
            false => "",
        };
        let number = format!("{:>width$}", self.quantity(value));
        let share = format!(" {share:>6}  ");
        let mut indent = self.indent(lines, branch);
        let mut name = Printable(self.tree.name(node)).to_string();
        if let Some(width) = self.width {
            let before = [&number, &error, &share].map(|part| part.chars().count());
            let room = width.saturating_sub(before.iter().sum());
            // A deep branch leaves half of the room to the names.
            indent = cut_front(&indent, room / 2);
            let room = room.saturating_sub(indent.chars().count() + below.chars().count());
            name = (self.fit)(&name, room);
        }
        let parts = [
            (number, look),
            (error, TextStyle::Aside),
            (share, look),
            (indent, TextStyle::Aside),
            (format!("{name}{below}"), TextStyle::Name),
        ];
        let painted = parts.map(|(part, look)| look.paint(&part, colour::is_on()));
        writeln!(self.out, "{}", painted.concat().trim_end())
    }

    fn indent(&self, lines: &[bool], branch: &str) -> String {
        let above = lines.iter().skip(usize::from(self.has_one_root));
        let mut text: String = above.map(|more| if *more { "│ " } else { "  " }).collect();
        text.push_str(branch);
        text
    }

    /// Returns the width of the column of numbers, in characters.
    fn quantity_width(&self) -> usize {
        match self.measure.is_growth() || self.measure.is_over_time() {
            true => 14,
            false => 10,
        }
    }

    fn margin(&self) -> String {
        // The share, and the spaces around it.
        let width = self.quantity_width() + 9;
        let error = match self.sampled {
            true => " ± ".chars().count() + self.quantity_width() - 1,
            false => 0,
        };
        " ".repeat(width + error)
    }

    fn quantity(&self, value: f64) -> String {
        match self.measure.is_growth() {
            true => self.measure.quantity_at(value, self.pace),
            false => self.measure.quantity(value),
        }
    }
}
