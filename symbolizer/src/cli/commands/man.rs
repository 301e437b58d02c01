//! `heapprof man`: prints the manual pages, made from the definitions of the commands.

mod examples;
mod library;
mod synopsis;

use std::io::Write;

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;

#[cfg(test)]
pub(crate) use examples::EXAMPLES;

/// The page of the library, beside those of the commands.
const LIBRARY: &str = "libheapprof";

/// Write a manual page
///
/// To read one: heapprof man export | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command that the page is about, such as `export` or `ctl mark`; or `libheapprof`, the
    /// library and its variables [default: heapprof itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    command.build();
    let page = match &args.command[..] {
        [name] if name == LIBRARY => library::page(&command),
        names => page_of(&command, names)?,
    };
    Destination::Stdout.write(|out| out.write_all(page.as_bytes()))
}

/// The page of a command of that name; of `heapprof` itself if there is no name.
fn page_of(program: &clap::Command, names: &[String]) -> Result<String, Failure> {
    let mut about = program;
    for name in names {
        about = about
            .find_subcommand(name)
            .ok_or_else(|| Failure::NoSuchCommand {
                command: names.join(" "),
            })?;
    }
    let mut about = about.clone();
    if !names.is_empty() {
        // Its page is called heapprof-export, as git's are.
        let page: &'static str = format!("heapprof-{}", names.join("-")).leak();
        about = about
            .name(page)
            .bin_name(format!("heapprof {}", names.join(" ")));
    }
    let mut page = Vec::new();
    let synopsis = synopsis::section(&about);
    Man::new(about).render(&mut page).map_err(Failure::Stdout)?;
    let page = with_lines_kept(&String::from_utf8_lossy(&page));
    let page = with_synopsis(&page, &synopsis);
    // The page of a command's command has the examples of the command.
    let first = names.first().map_or("", String::as_str);
    Ok(with_end(
        &page,
        &examples_section(first),
        &see_also_section(first),
    ))
}

/// The sections' text, without what stands at the head of a page.
fn text_of(sections: &Roff) -> String {
    let text = sections.render();
    let begin = text.find(".SH").unwrap_or(0);
    text[begin..].to_owned()
}

fn with_synopsis(page: &str, synopsis: &Roff) -> String {
    let parts = page
        .split_once(".SH SYNOPSIS\n")
        .and_then(|(before, rest)| Some((before, &rest[rest.find(".SH ")?..])));
    match parts {
        Some((before, behind)) => format!("{before}{}{behind}", text_of(synopsis)),
        None => page.to_owned(),
    }
}

/// The examples come before the version, and other pages last.
fn with_end(page: &str, examples: &str, see_also: &str) -> String {
    let version = page.rfind(".SH VERSION\n").unwrap_or(page.len());
    let (before, version) = page.split_at(version);
    format!("{before}{examples}{version}{see_also}")
}

fn examples_section(command: &str) -> String {
    let examples = examples::of(command);
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]);
    for (line, meaning) in examples {
        section.control("TP", []);
        section.text([bold(*line)]);
        section.text([roman(*meaning)]);
    }
    match examples.is_empty() {
        true => String::new(),
        false => text_of(&section),
    }
}

/// The other pages: `heapprof-top(1)`.
fn see_also_section(command: &str) -> String {
    let mut section = Roff::new();
    section.control("SH", ["SEE ALSO"]);
    let pages = examples::see_also(command);
    section.text(list_of_pages(pages));
    text_of(&section)
}

fn list_of_pages(pages: &[&str]) -> Vec<Inline> {
    let mut text = Vec::new();
    for (i, page) in pages.iter().enumerate() {
        let (name, number) = match *page {
            LIBRARY => (LIBRARY.to_owned(), 7),
            "" => ("heapprof".to_owned(), 1),
            command => (format!("heapprof-{command}"), 1),
        };
        text.push(bold(name));
        let is_last = i + 1 == pages.len();
        text.push(roman(format!(
            "({number}){}",
            if is_last { "" } else { ", " }
        )));
    }
    text
}

/// Columns behind the options stay columns: a page would otherwise fill them up like a paragraph.
fn with_lines_kept(page: &str) -> String {
    const HEADING: &str = "\n.SH EXTRA\n";
    let Some((before, extra)) = page.split_once(HEADING) else {
        return page.to_owned();
    };
    let end = extra.find("\n.SH ").map_or(extra.len(), |end| end + 1);
    let (extra, behind) = extra.split_at(end);
    match extra.contains("\n  ") {
        true => format!("{before}\n.SH NOTES\n.nf\n{extra}.fi\n{behind}"),
        false => format!("{before}\n.SH NOTES\n{extra}{behind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stay_columns() {
        let page = ".TH run\n.SH OPTIONS\nall\n.SH EXTRA\nAll:\n  A    one\n.SH VERSION\nv1\n";
        let kept =
            ".TH run\n.SH OPTIONS\nall\n.SH NOTES\n.nf\nAll:\n  A    one\n.fi\n.SH VERSION\nv1\n";
        assert_eq!(with_lines_kept(page), kept);
        let words = with_lines_kept(".TH top\n.SH EXTRA\nwords\n");
        assert_eq!(words, ".TH top\n.SH NOTES\nwords\n");
        assert_eq!(with_lines_kept("no such part"), "no such part");
    }

    #[test]
    fn examples_come_before_the_version_and_other_pages_last() {
        let page = ".TH a\n.SH SYNOPSIS\nold\n.SH DESCRIPTION\nd\n.SH VERSION\nv1\n";
        let mut synopsis = Roff::new();
        synopsis.control("SH", ["SYNOPSIS"]).text([roman("new")]);
        let page = with_synopsis(page, &synopsis);
        assert_eq!(
            with_end(&page, ".SH EXAMPLES\ne\n", ".SH SEE ALSO\ns\n"),
            ".TH a\n.SH SYNOPSIS\nnew\n.SH DESCRIPTION\nd\n.SH EXAMPLES\ne\n.SH VERSION\nv1\n.SH SEE ALSO\ns\n"
        );
    }
}
