//! `heapprof tree`: who called whom down to the allocations.

use std::io::{self, Write};

use heapprof_symbolizer::export::json::{Errors, Values};
use heapprof_symbolizer::{
    By, Bytes, Circumstances, Confidence, Count, Detail, Direction, Json, Metric, Node, Percent,
    Precision, Printable, Profile, Tree,
};
use serde::{Serialize, Serializer};

use crate::cli::choice::choice;
use crate::cli::colour::{self, Look};
use crate::cli::document::Head;
use crate::cli::failure::Failure;
use crate::cli::filter::FilterArgs;
use crate::cli::heading::write_totals;
use crate::cli::output;
use crate::cli::quantity::{count, percent};
use crate::cli::source::Source;
use crate::cli::table::{cut, stdout_width};

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
    #[arg(long, value_name = "GROUP", default_value = "function", value_parser = choice::<By>())]
    by: By,

    /// The number that is shown and sorted by
    #[arg(short, long, value_name = "METRIC", default_value = "in-use-bytes", value_parser = choice::<Metric>())]
    metric: Metric,

    /// Leave out branches of less than this share of what the tree shows, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = percent, allow_negative_numbers = true)]
    min: f64,

    /// How many calls deep to go; 0 for all the way
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count, allow_negative_numbers = true)]
    depth: usize,

    /// JSON, with all four metrics and all branches
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let by = args.by;
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
    let metric = args.metric;
    let tree = Tree::of(&profile, &symbols, by, &direction, metric);
    output::to(None, |out| {
        if args.json {
            return write_json(&profile, &tree, out);
        }
        write_totals(&profile, out)?;
        writeln!(out)?;
        if tree.root().total.get(metric) == 0 {
            let why = why_nothing(&direction, metric, tree.root(), || {
                Tree::of(
                    &profile,
                    &symbols,
                    By::Function,
                    &Direction::Down,
                    Metric::AllocatedBytes,
                )
            });
            return writeln!(out, "  nothing: {why}");
        }
        let whole = profile.numbers().get(metric) as f64;
        let mut writer = Writer {
            tree: &tree,
            metric,
            whole,
            least: tree.root().total.get(metric) as f64 * args.min.clamp(0.0, 100.0) / 100.0,
            depth: args.depth,
            sampled: profile.precision() == Precision::Sampled,
            width: stdout_width(),
            has_one_root: false,
            out,
        };
        writer.all()
    })
}

/// How many functions are proposed for one that is not there.
const PROPOSED: usize = 3;

/// Why there is no tree, and what leads to one: another metric, or a function's whole name.
fn why_nothing(
    direction: &Direction,
    metric: Metric,
    root: &Node,
    whole: impl FnOnce() -> Tree,
) -> String {
    if root.total.get(Metric::AllocatedObjects) > 0 {
        return format!("{metric} is 0 (--metric allocated-bytes shows what was freed, too)");
    }
    let (Direction::Callers(function) | Direction::Callees(function)) = direction else {
        return format!("no stack matches, or {metric} is 0");
    };
    let tree = whole();
    let names = tree.nodes().iter().map(|node| tree.name(node));
    let mut similar: Vec<&str> = names.filter(|name| name.contains(&**function)).collect();
    // Of `open`, `Sessions::open(int)` before what has it for an argument.
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
    metric: Metric,
    whole: f64,
    least: f64,
    depth: usize,
    sampled: bool,
    width: Option<usize>,
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
    /// An only child of one parent is a step, not a branch: a chain does not wander off to the right.
    is_step: bool,
}

impl<'a, W: Write> Writer<'a, W> {
    fn level(&self, node: &Node, is_top: bool) -> Level<'a> {
        let value = |node: &Node| node.total.get(self.metric) as f64;
        // Largest first.
        let children = self.tree.children(node);
        let children = &children[..children.partition_point(|child| value(child) > 0.0)];
        let number = children.partition_point(|child| value(child) >= self.least);
        let (shown, hidden) = children.split_at(number);
        Level {
            shown: shown.iter(),
            hidden: hidden.len(),
            hidden_value: hidden.iter().map(value).sum(),
            is_step: shown.len() == 1 && hidden.is_empty() && !is_top,
        }
    }

    /// Writes the tree, with a stack of its own: there may be more levels than a thread's has room for.
    fn all(&mut self) -> io::Result<()> {
        let mut levels = vec![self.level(self.tree.root(), true)];
        self.has_one_root = levels[0].shown.len() == 1 && levels[0].hidden == 0;
        // Of each level of branches, whether more follows there.
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
            "{}{}{} smaller, together {}",
            self.margin(),
            self.indent(lines, "└ "),
            Count(number as u64),
            self.quantity(value)
        );
        let text = match self.width {
            Some(width) => cut(&text, width),
            None => text,
        };
        writeln!(self.out, "{}", Look::Aside.paint(&text, colour::is_on()))
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
        let branch = match (lines.is_empty() && self.has_one_root, is_step, more) {
            (true, ..) => "",
            (_, true, _) => "",
            (_, _, true) => "├ ",
            (_, _, false) => "└ ",
        };
        let percent = Percent {
            part: value,
            whole: self.whole,
        };
        let below = match is_last && node.total.get(self.metric) > node.own.get(self.metric) {
            true => " …",
            false => "",
        };
        let share = Look::of_share(value, self.whole);
        let parts = [
            (format!("{:>10}", self.quantity(value)), share),
            (error, Look::Aside),
            (format!(" {percent:>6}  "), share),
            (self.indent(lines, branch), Look::Aside),
            (
                format!("{}{below}", Printable(self.tree.name(node))),
                Look::Name,
            ),
        ];
        let mut room = self.width;
        let mut text = String::new();
        for (part, look) in parts {
            let part = match &mut room {
                Some(room) => {
                    let part = cut(&part, *room);
                    *room = room.saturating_sub(part.chars().count());
                    part
                }
                None => part,
            };
            text.push_str(&look.paint(&part, colour::is_on()));
        }
        writeln!(self.out, "{}", text.trim_end())
    }

    fn indent(&self, lines: &[bool], branch: &str) -> String {
        let above = lines.iter().skip(usize::from(self.has_one_root));
        let mut text: String = above.map(|more| if *more { "│ " } else { "  " }).collect();
        text.push_str(branch);
        text
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
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    totals: Values,
    #[serde(flatten)]
    circumstances: Circumstances<'a>,
    tree: JsonNode<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    continued: Vec<JsonNode<'a>>,
}

/// Most levels of a tree that are nested, see docs/json.md: jq 1.6 has room for 256 brackets and keys, and each takes three.
const NESTED: usize = 80;

/// A node with what is below it, down to the next level at which the document begins anew.
struct JsonNode<'a> {
    tree: &'a Tree,
    node: &'a Node,
    /// Whether its children stand here, though its level is one at which the document begins anew.
    is_top: bool,
    /// The nodes from which the document begins anew, as they lie in the tree.
    continued: &'a [&'a Node],
}

#[derive(Serialize)]
struct JsonFields<'a> {
    name: &'a str,
    #[serde(rename = "self")]
    own: Values,
    total: Values,
    errors: Errors,
    children: Vec<JsonNode<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continued: Option<usize>,
}

impl Serialize for JsonNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JsonNode { tree, node, .. } = *self;
        let continued = match self.is_top {
            true => None,
            // Nodes lie in one list, and these are in its order.
            false => (self.continued)
                .binary_search_by_key(&std::ptr::from_ref(node), |at| std::ptr::from_ref(*at))
                .ok(),
        };
        let children = match continued {
            Some(_) => &[],
            None => tree.children(node),
        };
        let child = |node| JsonNode {
            node,
            is_top: false,
            ..*self
        };
        let fields = JsonFields {
            name: tree.name(node),
            own: node.own.into(),
            total: node.total.into(),
            errors: Errors::of(&node.totals),
            children: children.iter().map(child).collect(),
            continued,
        };
        fields.serialize(serializer)
    }
}

fn write_json(profile: &Profile, tree: &Tree, out: &mut impl Write) -> io::Result<()> {
    let begins_anew = |node: &&Node| {
        node.depth() > 0 && node.depth().is_multiple_of(NESTED) && !tree.children(node).is_empty()
    };
    let continued: Vec<&Node> = tree.nodes().iter().filter(begins_anew).collect();
    let top = |node| JsonNode {
        tree,
        node,
        is_top: true,
        continued: &continued,
    };
    let document = Document {
        head: Head::of(profile),
        totals: profile.numbers().into(),
        circumstances: Circumstances::of(profile),
        tree: top(tree.root()),
        continued: continued.iter().map(|node| top(node)).collect(),
    };
    Json::Compact.write(&document, out)
}
