//! callgrind format: for KCachegrind, QCachegrind and `callgrind_annotate`, with callers and
//! callees.
//!
//! Memory stands for executed instructions: the events are `Bytes` and `Objects`, in use or
//! allocated, as the metric says. An allocation's own cost is at its innermost frame, the
//! allocation function. Each call on the way there has it as inclusive cost, once for each stack,
//! however often the stack recurses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::ops::AddAssign;

use crate::export::Options;
use crate::export::facts::{facts, intervals};
use crate::model::measure::Measure;
use crate::model::printable::Printable;
use crate::model::profile::{CallStack, Place, Profile};
use crate::naming::symbols::Symbols;

/// A function: module, file and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Function {
    object: String,
    file: String,
    name: String,
}

#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    bytes: u64,
    objects: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.objects = self.objects.saturating_add(other.objects);
    }
}

/// A line of a function and what it calls there.
type Call = (u32, usize, u32);

/// The costs in the block of one function.
#[derive(Debug, Default)]
struct Costs {
    /// By line.
    own: BTreeMap<u32, Cost>,
    /// By own line, callee and the callee's line.
    calls: BTreeMap<Call, Cost>,
}

/// Writes the metric that was chosen, its bytes and its objects.
///
/// # Errors
/// Those of `out`.
pub fn write(
    profile: &Profile,
    symbols: &Symbols,
    options: &Options,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut graph = Graph::default();
    let frames: Vec<Vec<(usize, u32)>> = profile
        .stacks
        .iter()
        .map(|stack| graph.frames(profile, symbols, stack))
        .collect();
    let (of_bytes, of_objects) = options.metric.bytes_and_objects();
    // Costs are never negative here: what shrank has none.
    let whole = |measure: Measure| {
        let numbers = measure.whole_numbers(profile).into_iter();
        numbers.map(|number| u64::try_from(number).unwrap_or(0))
    };
    let mut total = Cost::default();
    for (row, (bytes, objects)) in profile
        .rows
        .iter()
        .zip(whole(of_bytes).zip(whole(of_objects)))
    {
        let cost = Cost { bytes, objects };
        if let (Some(frames), true) = (frames.get(row.stack as usize), bytes + objects > 0) {
            graph.add(frames, cost);
            total += cost;
        }
    }

    writeln!(out, "# callgrind format\nversion: 1")?;
    writeln!(out, "creator: heapprof {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "pid: {}", profile.run.pid)?;
    let command = match &profile.run.args[..] {
        [] => profile.run.program.clone(),
        args => args.join(" "),
    };
    writeln!(out, "cmd: {}", Printable(&command))?;
    let what = match options.metric {
        Measure::Basic(metric) if metric.is_in_use() => "in use".into(),
        Measure::Basic(_) => "ever allocated".into(),
        _ => {
            let (bytes, objects) = (of_bytes.sample_type(), of_objects.sample_type());
            format!(
                "{of_bytes}, in {} (Bytes) and {} (Objects)",
                bytes.1, objects.1
            )
        }
    };
    writeln!(out, "desc: Memory: {what}")?;
    for fact in facts(profile)
        .into_iter()
        .chain(intervals(profile, options))
    {
        writeln!(out, "desc: Profile: {}", Printable(&fact))?;
    }
    writeln!(out, "positions: line\nevents: Bytes Objects")?;
    writeln!(out, "summary: {} {}", total.bytes, total.objects)?;
    graph.write(out)?;
    writeln!(out, "\ntotals: {} {}", total.bytes, total.objects)
}

#[derive(Debug, Default)]
struct Graph {
    functions: Vec<Function>,
    numbers: HashMap<Function, usize>,
    /// The functions of each place, looked up once: thousands of stacks pass each.
    places: HashMap<Place, Vec<(usize, u32)>>,
    costs: Vec<Costs>,
}

impl Graph {
    /// Functions and lines of a stack, outermost first.
    fn frames(
        &mut self,
        profile: &Profile,
        symbols: &Symbols,
        stack: &CallStack,
    ) -> Vec<(usize, u32)> {
        let mut frames = Vec::new();
        for place in profile.places(stack) {
            if let Some(known) = self.places.get(&place) {
                frames.extend_from_slice(known);
                continue;
            }
            let begin = frames.len();
            for frame in symbols.frames(place) {
                let function = Function {
                    object: text(profile.module_of(place).map_or("", |m| &m.path)),
                    file: text(frame.file.as_deref().unwrap_or("")),
                    name: text(&symbols.function(profile, place, frame)),
                };
                frames.push((self.number(function), frame.line.unwrap_or(0)));
            }
            self.places.insert(place, frames[begin..].to_vec());
        }
        if frames.is_empty() {
            let function = Function {
                object: text(""),
                file: text(""),
                name: "(no stack)".into(),
            };
            frames.push((self.number(function), 0));
        }
        frames.reverse();
        frames
    }

    fn number(&mut self, function: Function) -> usize {
        let (functions, costs) = (&mut self.functions, &mut self.costs);
        *self.numbers.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            costs.push(Costs::default());
            functions.len() - 1
        })
    }

    fn add(&mut self, frames: &[(usize, u32)], cost: Cost) {
        let mut seen: BTreeSet<(usize, Call)> = BTreeSet::new();
        for pair in frames.windows(2) {
            let ((caller, line), (callee, callee_line)) = (pair[0], pair[1]);
            let call = (line, callee, callee_line);
            if seen.insert((caller, call)) {
                *self.costs[caller].calls.entry(call).or_default() += cost;
            }
        }
        if let Some(&(function, line)) = frames.last() {
            *self.costs[function].own.entry(line).or_default() += cost;
        }
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (mut objects, mut files, mut names) =
            (Names::default(), Names::default(), Names::default());
        for (function, costs) in self.functions.iter().zip(&self.costs) {
            if costs.own.is_empty() && costs.calls.is_empty() {
                continue;
            }
            writeln!(out, "\nob={}", objects.shown(&function.object))?;
            writeln!(out, "fl={}", files.shown(&function.file))?;
            writeln!(out, "fn={}", names.shown(&function.name))?;
            for (line, cost) in &costs.own {
                writeln!(out, "{line} {} {}", cost.bytes, cost.objects)?;
            }
            for (&(line, callee, callee_line), cost) in &costs.calls {
                let callee = &self.functions[callee];
                writeln!(out, "cob={}", objects.shown(&callee.object))?;
                writeln!(out, "cfi={}", files.shown(&callee.file))?;
                writeln!(out, "cfn={}", names.shown(&callee.name))?;
                writeln!(out, "calls={} {callee_line}", cost.objects.max(1))?;
                writeln!(out, "{line} {} {}", cost.bytes, cost.objects)?;
            }
        }
        Ok(())
    }
}

/// Names are written once, `(7) name`, and then as `(7)`: shorter, and no name is taken for a
/// number.
#[derive(Debug, Default)]
struct Names(HashMap<String, usize>);

impl Names {
    fn shown(&mut self, name: &str) -> String {
        let next = self.0.len() + 1;
        match self.0.get(name) {
            Some(number) => format!("({number})"),
            None => {
                self.0.insert(name.into(), next);
                format!("({next}) {name}")
            }
        }
    }
}

/// callgrind writes unknown names so.
fn text(name: &str) -> String {
    match Printable(name).to_string().trim() {
        "" => "???".into(),
        name => name.into(),
    }
}
