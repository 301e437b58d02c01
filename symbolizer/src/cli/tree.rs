//! `heapprof tree`: who called whom down to the allocations.

use std::io::{self, Write};

use clap::builder::PossibleValue;
use heapprof_symbolizer::export::json::{Errors, Values};
use heapprof_symbolizer::{
    By, Bytes, Confidence, Count, Detail, Direction, Metric, Node, Percent, Precision, Printable,
    Profile, Tree,
};
use serde::Serialize;

use crate::cli::export::MetricArg;
use crate::cli::failure::Failure;
use crate::cli::filter::FilterArgs;
use crate::cli::output;
use crate::cli::source::Source;
use crate::cli::table::stdout_width;
use crate::cli::top::{how_exact, write_totals};

/// Show the calls that lead to allocations, as a tree
///
/// From the root of the program down, or from one function to its callers or callees. Numbers are of
/// all that was allocated below. Branches smaller than --min percent are left out, and counted.
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

    /// What a branch is
    #[arg(long, value_name = "GROUP", default_value = "function")]
    by: ByArg,

    /// The number that is shown and sorted by
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes")]
    metric: MetricArg,

    /// Leave out branches of less than this share of the whole, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    min: f64,

    /// How deep to go; 0 for all the way
    #[arg(long, value_name = "N", default_value_t = 0)]
    depth: usize,

    /// JSON, with all four metrics and all branches
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let by = args.by.0;
    let detail = Detail {
        threads: by == By::Thread,
        ..Detail::default()
    };
    let mut profile = args.source.detailed_profile(detail)?;
    let mut symbols = args.source.symbols(&profile)?;
    args.filter.apply(&mut profile, &mut symbols);
    let direction = match (&args.callers, &args.callees) {
        (Some(function), _) => Direction::Callers(function.clone()),
        (None, Some(function)) => Direction::Callees(function.clone()),
        (None, None) => Direction::Down,
    };
    let metric = args.metric.0;
    let tree = Tree::of(&profile, &symbols, by, &direction, metric);
    output::to(None, |out| {
        if args.json {
            return write_json(&profile, &tree, out);
        }
        write_totals(&profile, out)?;
        writeln!(out)?;
        if tree.root.total.get(metric) == 0 {
            return writeln!(out, "  nothing: no stack matches, or {metric} is 0");
        }
        let whole = profile.numbers().get(metric) as f64;
        let mut writer = Writer {
            metric,
            whole,
            least: whole * args.min.clamp(0.0, 100.0) / 100.0,
            depth: args.depth,
            sampled: profile.precision() == Precision::Sampled,
            width: stdout_width(),
            out,
        };
        writer.children(&tree.root, &mut Vec::new())
    })
}

struct Writer<'a, W> {
    metric: Metric,
    whole: f64,
    least: f64,
    depth: usize,
    sampled: bool,
    width: Option<usize>,
    out: &'a mut W,
}

impl<W: Write> Writer<'_, W> {
    /// `lines` says of each level whether more follows there.
    fn children(&mut self, node: &Node, lines: &mut Vec<bool>) -> io::Result<()> {
        let value = |node: &Node| node.total.get(self.metric) as f64;
        let is_shown = |child: &&Node| value(child) > 0.0 && value(child) >= self.least;
        let too_deep = self.depth > 0 && lines.len() >= self.depth;
        let shown: Vec<&Node> = match too_deep {
            true => Vec::new(),
            false => node.children.iter().filter(is_shown).collect(),
        };
        let hidden = node
            .children
            .iter()
            .filter(|child| value(child) > 0.0)
            .count()
            - shown.len();
        let hidden_value: f64 = node.children.iter().map(value).sum::<f64>()
            - shown.iter().map(|child| value(child)).sum::<f64>();
        for (index, child) in shown.iter().enumerate() {
            let more = index + 1 < shown.len() || hidden > 0;
            // One child of one parent is a step, not a branch: a chain does not wander off to the right.
            let is_step = shown.len() == 1 && hidden == 0 && !lines.is_empty();
            self.line(child, lines, is_step, more)?;
            if is_step {
                self.children_of_step(child, lines)?;
            } else {
                lines.push(more);
                self.children(child, lines)?;
                lines.pop();
            }
        }
        if hidden > 0 {
            let text = format!(
                "{}{}{} more, {}",
                self.margin(),
                indent(lines, "└ "),
                Count(hidden as u64),
                self.quantity(hidden_value)
            );
            self.cut(&text)?;
        }
        Ok(())
    }

    fn children_of_step(&mut self, node: &Node, lines: &mut Vec<bool>) -> io::Result<()> {
        self.children(node, lines)
    }

    fn line(&mut self, node: &Node, lines: &[bool], is_step: bool, more: bool) -> io::Result<()> {
        let value = node.total.get(self.metric) as f64;
        let error = match self.sampled {
            true => format!(
                " ± {:>9}",
                // As the heading says: the interval of the default confidence.
                self.quantity(
                    self.metric.error_of(&node.totals) * Confidence::default().standard_errors()
                )
            ),
            false => String::new(),
        };
        let branch = match (lines.is_empty(), is_step, more) {
            (true, ..) => "",
            (_, true, _) => "",
            (_, _, true) => "├ ",
            (_, _, false) => "└ ",
        };
        let percent = Percent {
            part: value,
            whole: self.whole,
        };
        let text = format!(
            "{:>10}{error} {percent:>6}  {}{}",
            self.quantity(value),
            indent(lines, branch),
            Printable(&node.name)
        );
        self.cut(&text)
    }

    fn margin(&self) -> String {
        let width = if self.sampled { 31 } else { 19 };
        " ".repeat(width)
    }

    fn quantity(&self, value: f64) -> String {
        match self.metric.is_bytes() {
            true => Bytes(value).to_string(),
            false => Count(value.round() as u64).to_string(),
        }
    }

    fn cut(&mut self, text: &str) -> io::Result<()> {
        match self.width {
            Some(width) if text.chars().count() > width => {
                let cut: String = text.chars().take(width.saturating_sub(1)).collect();
                writeln!(self.out, "{cut}…")
            }
            _ => writeln!(self.out, "{}", text.trim_end()),
        }
    }
}

fn indent(lines: &[bool], branch: &str) -> String {
    let above = lines.iter().skip(1);
    let mut text: String = above.map(|more| if *more { "│ " } else { "  " }).collect();
    text.push_str(branch);
    text
}

#[derive(Serialize)]
struct Document<'a> {
    program: &'a str,
    pid: u32,
    estimator: String,
    totals: Values,
    tree: JsonNode<'a>,
}

#[derive(Serialize)]
struct JsonNode<'a> {
    name: &'a str,
    #[serde(rename = "self")]
    own: Values,
    total: Values,
    errors: Errors,
    children: Vec<JsonNode<'a>>,
}

impl<'a> JsonNode<'a> {
    fn of(node: &'a Node) -> Self {
        JsonNode {
            name: &node.name,
            own: node.own.into(),
            total: node.total.into(),
            errors: Errors::of(&node.totals),
            children: node.children.iter().map(JsonNode::of).collect(),
        }
    }
}

fn write_json(profile: &Profile, tree: &Tree, out: &mut impl Write) -> io::Result<()> {
    let document = Document {
        program: &profile.run.program,
        pid: profile.run.pid,
        estimator: how_exact(profile),
        totals: profile.numbers().into(),
        tree: JsonNode::of(&tree.root),
    };
    serde_json::to_writer(&mut *out, &document)?;
    writeln!(out)
}

/// The library's groupings, as clap wants them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByArg(pub(crate) By);

impl clap::ValueEnum for ByArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ByArg; By::ALL.len()] = {
            let mut all = [ByArg(By::Function); By::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = ByArg(By::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let help = match self.0 {
            By::Function => "function",
            By::Line => "function and line",
            By::File => "source file",
            By::Module => "program or library",
            By::Thread => "the thread that allocated (needs a .heaplog)",
            By::Size => "size class of the request",
            By::Type => "type, where functions of C++ or Rust tell it",
        };
        Some(PossibleValue::new(self.0.name()).help(help))
    }
}
