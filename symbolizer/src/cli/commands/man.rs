//! `heapprof man`: prints the manual pages, made from the definitions of the commands.

use std::io::Write;

use clap_mangen::Man;

use crate::cli::output::destination::Destination;
use crate::cli::output::failure::Failure;

/// Write a manual page
///
/// To read one: heapprof man export | man -l -
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command that the page is about, such as `export` or `ctl mark` [default: heapprof
    /// itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<(), Failure> {
    command.build();
    let mut about = &command;
    for name in &args.command {
        about = about
            .find_subcommand(name)
            .ok_or_else(|| Failure::NoSuchCommand {
                command: args.command.join(" "),
            })?;
    }
    let mut about = about.clone();
    if !args.command.is_empty() {
        // Its page is called heapprof-export, as git's are.
        let page: &'static str = format!("heapprof-{}", args.command.join("-")).leak();
        about = about
            .name(page)
            .bin_name(format!("heapprof {}", args.command.join(" ")));
    }
    let mut page = Vec::new();
    Man::new(about).render(&mut page).map_err(Failure::Stdout)?;
    let page = with_lines_kept(&String::from_utf8_lossy(&page));
    Destination::Stdout.write(|out| out.write_all(page.as_bytes()))
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
}
