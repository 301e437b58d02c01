//! `heapprof explain`: says what the memory of a run does, and who does it.

mod json;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use heapprof_symbolizer::{
    Bytes, Explanation, Input, Moment, PastNumbers, Printable, Profile, ReadRequest,
    ResidentMemory, SiteKey, Statement, View, ViewError, WantedExtras, cut_front, cut_function,
    note_life,
};

use crate::cli::inputs::process::log_of_named;
use crate::cli::inputs::single_file;
use crate::cli::options::filter::{FilterArgs, LabelArgs};
use crate::cli::options::measure::DEFAULT_TEMPORARY;
use crate::cli::options::quantity::count;
use crate::cli::options::symbols::SymbolArgs;
use crate::cli::output::colour::{self, TextStyle};
use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;
use crate::cli::output::heading::write_totals;
use crate::cli::output::shell_quote::quoted;
use crate::cli::output::width::stdout_width;
use crate::cli::output::wrapped::write_wrapped;

/// Say what the memory does and who does it: leaks, backlogs, caches, bursts
///
/// Each allocation site gets a verdict from how its memory comes and goes over the run. Sites to
/// look into come first, each with its numbers and the command that shows more. If the process has
/// a memory limit, the time until it is reached is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A record log (.heaplog), or the process id of a program that runs under heapprof
    #[arg(value_name = "LOG|PID")]
    source: PathBuf,

    #[command(flatten)]
    filter: FilterArgs,

    /// The run up to a moment: 12.5s, 50%, peak, a marker's name [default: end, or before the
    /// program frees its memory because it ends]
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    at: Option<String>,

    /// Sites to show of those that need no looking into; 0 for all
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = count, allow_negative_numbers = true)]
    number: usize,

    #[command(flatten)]
    places: SymbolArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let named = log_of_named(&args.source)?;
    let file = named.map_or_else(|| args.source.clone(), |(log, _)| log);
    let input = Input::open(&file)?;
    input.log()?;
    let (mut profile, is_cut) = match args.at.as_deref() {
        Some(at) => {
            let request = ReadRequest {
                view: View::At(Moment::from(at)),
                pasts: Some(DEFAULT_TEMPORARY),
                numbers: EXPLAINED,
                courses: true,
                ..ReadRequest::default()
            };
            (single_file::read_input(&file, &input, &request)?, false)
        }
        None => up_to_end_of_use(&file, &input)?,
    };
    let mut symbols = args.places.symbols(&file, &profile)?;
    let memory = ResidentMemory::of(&profile, None); // of the whole process
    args.filter.apply(&mut profile, &mut symbols)?;
    let explanation = Explanation::of(&profile, &symbols);
    Destination::Stdout.write(|out| match args.json {
        true => json::write(&profile, &explanation, out),
        false => {
            let text = Text {
                file: &file,
                number: args.number,
                is_cut,
                width: stdout_width().unwrap_or(80),
            };
            text.write(&profile, &explanation, memory.as_ref(), out)
        }
    })
}

/// The numbers of pasts that are explained.
const EXPLAINED: PastNumbers = PastNumbers {
    temporary: true,
    slack: true,
    ..PastNumbers::NONE
};

/// Returns the profile up to the time after which the program frees its memory because it ends, and
/// whether there is such a time.
fn up_to_end_of_use(file: &Path, input: &Input) -> Result<(Profile, bool), Failure> {
    let labels = LabelArgs::default();
    let read = single_file::whole_log_with_courses(
        file,
        input,
        &labels,
        WantedExtras::default(),
        EXPLAINED,
    );
    let (profile, midway) = read?;
    let Some(end_ns) = profile.end_of_use_ns() else {
        return Ok((profile, false));
    };
    let cut = midway.up_to(end_ns);
    let mut cut = cut.map_err(|error| input.view_error(ViewError::Read(error)))?;
    // The program has freed its memory when the last reading is taken.
    if (cut.memory).is_some_and(|reading| reading.time_ns > end_ns) {
        let mut before = cut.whole_memory.iter();
        cut.memory = before.find(|it| it.time_ns <= end_ns).copied();
    }
    // The faults of the file are known from all of it.
    cut.account = profile.account;
    note_life(&mut cut.run);
    Ok((cut, true))
}

/// Columns that the place of a site keeps, beside a long function.
const LEAST_OF_PLACE: usize = 24;

/// How the text is written.
struct Text<'a> {
    file: &'a Path,
    number: usize,
    /// True if the end of the run is left out.
    is_cut: bool,
    width: usize,
}

impl Text<'_> {
    fn write(
        &self,
        profile: &Profile,
        explanation: &Explanation,
        memory: Option<&ResidentMemory>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        write_totals(profile, stdout_width(), out)?;
        if self.is_cut {
            self.wrapped(
                "the run up to there: the program then frees its memory, because it ends",
                "",
                out,
            )?;
        }
        let stopped_ns = profile.stopped_ns();
        if stopped_ns > 0 {
            writeln!(out, "judged by the time in which recording was on")?;
        }
        writeln!(out)?;
        if explanation.is_too_short {
            self.wrapped(explanation.summary().unwrap_or_default(), "", out)?;
        }
        let (troubles, others): (Vec<Statement<'_>>, Vec<Statement<'_>>) = explanation
            .statements()
            .into_iter()
            .partition(|statement| statement.is_trouble);
        let mut number = 0;
        for statement in &troubles {
            number += 1;
            self.statement(number, statement, out)?;
        }
        if let Some(remark) = explanation.remark_on_length() {
            self.wrapped(remark, "", out)?;
        }
        if let Some(forecast) = &explanation.forecast {
            self.wrapped(&forecast.in_words(), "", out)?;
        }
        if let Some(memory) = memory {
            self.beside_blocks(memory, profile.run.is_attached, out)?;
        }
        if !explanation.is_too_short
            && let Some(summary) = explanation.summary()
        {
            self.wrapped(summary, "", out)?;
        }
        let shown = match self.number {
            0 => others.len(),
            number => number.min(others.len()),
        };
        if shown > 0 {
            writeln!(out, "\nBesides:")?;
        }
        for statement in &others[..shown] {
            number += 1;
            self.statement(number, statement, out)?;
        }
        if shown < others.len() {
            writeln!(out, "and {} more (-n 0 shows all)", others.len() - shown)?;
        }
        Ok(())
    }

    fn head(
        &self,
        number: usize,
        what: &str,
        site: &SiteKey,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let head = format!("{number:>2}. {what}: ");
        let room = self.width.saturating_sub(head.len() + 2);
        let place = Printable(&site.place()).to_string();
        let function = Printable(&site.function).to_string();
        let for_place = place.chars().count().min(LEAST_OF_PLACE);
        let function = cut_function(&function, room.saturating_sub(for_place));
        let place = cut_front(&place, room.saturating_sub(function.chars().count()));
        let head = TextStyle::Heading.paint(&format!("{head}{function}"), colour::is_on());
        match place.is_empty() {
            true => writeln!(out, "{head}"),
            false => writeln!(out, "{head}  {place}"),
        }
    }

    fn statement(
        &self,
        number: usize,
        statement: &Statement<'_>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        self.head(number, statement.verdict, statement.site, out)?;
        self.wrapped(&statement.evidence, "    ", out)?;
        let Some(command) = statement.command(&quoted(self.file)) else {
            return Ok(());
        };
        let line = format!("    $ {}", Printable(&command));
        // It can be copied from two lines as well.
        match line.chars().count() > self.width {
            true => writeln!(
                out,
                "{}",
                line.replacen(" --focus", " \\\n        --focus", 1)
            ),
            false => writeln!(out, "{line}"),
        }
    }

    /// The memory that is in no block, if that is most of it.
    fn beside_blocks(
        &self,
        memory: &ResidentMemory,
        is_attached: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let lines = memory.beside_blocks();
        if lines.is_empty() {
            return Ok(());
        }
        let lines = lines.iter();
        let lines: Vec<_> = lines
            .map(|line| format!("{} {}", Bytes(line.bytes as f64), line.name))
            .collect();
        let text = format!(
            "Most of {} resident is in no block{}: {}",
            Bytes(memory.resident as f64),
            match is_attached {
                true => " since heapprof was attached",
                false => "",
            },
            lines.join(", ")
        );
        self.wrapped(&text, "", out)?;
        writeln!(out, "    $ heapprof rss {}", Printable(&quoted(self.file)))
    }

    /// A text in as many lines as it needs.
    fn wrapped(&self, text: &str, indent: &str, out: &mut impl Write) -> io::Result<()> {
        let text = format!("{indent}{text}");
        write_wrapped(&text, indent.len(), Some(self.width), out)
    }
}
