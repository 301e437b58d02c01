//! Synopsis: the section of a manual page with all options and their values.

use clap::{Arg, ArgAction, Command};
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// The section of a command.
pub(super) fn section(command: &Command) -> Roff {
    let mut line = vec![bold(
        command.get_bin_name().unwrap_or_else(|| command.get_name()),
    )];
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
    let options = || command.get_opts().chain(flags(command)).filter(is_shown);
    let required = options().filter(|option| option.is_required_set());
    for option in options()
        .filter(|option| !option.is_required_set())
        .chain(required)
    {
        push_option(option, &mut line);
    }
    for value in command.get_positionals().filter(is_shown) {
        // The program of `heapprof run` stands behind two dashes.
        let dashes = match value.is_trailing_var_arg_set() {
            true => " --",
            false => "",
        };
        let mut part = vec![italic(names_of_values(value))];
        if is_repeated(value) {
            part.push(roman(" …"));
        }
        line.push(bold(dashes));
        push_bracketed(value.is_required_set(), part, &mut line);
    }
    if command.has_subcommands() {
        line.push(roman(" "));
        line.push(italic("COMMAND"));
    }
    let mut section = Roff::new();
    section.control("SH", ["SYNOPSIS"]);
    section.text(line);
    section
}

/// Options without values.
fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let arguments = command.get_arguments();
    arguments.filter(|arg| !arg.is_positional() && !takes_values(arg))
}

fn push_option(option: &Arg, line: &mut Vec<Inline>) {
    let mut part = Vec::new();
    if let Some(short) = option.get_short() {
        part.push(bold(format!("-{short}")));
    }
    if let Some(long) = option.get_long() {
        if !part.is_empty() {
            part.push(roman("|"));
        }
        part.push(bold(format!("--{long}")));
    }
    if takes_values(option) {
        let values = names_of_values(option);
        let is_optional = (option.get_num_args()).is_some_and(|range| range.min_values() == 0);
        match (option.is_require_equals_set(), is_optional) {
            (true, true) => part.extend([roman("[="), italic(values), roman("]")]),
            (true, false) => part.extend([roman("="), italic(values)]),
            (false, true) => part.extend([roman(" ["), italic(values), roman("]")]),
            (false, false) => part.extend([roman(" "), italic(values)]),
        }
    }
    push_bracketed(option.is_required_set(), part, line);
    if is_repeated(option) && takes_values(option) {
        line.push(roman("…"));
    }
}

fn push_bracketed(is_required: bool, part: Vec<Inline>, line: &mut Vec<Inline>) {
    let (open, close) = match is_required {
        true => (" ", ""),
        false => (" [", "]"),
    };
    line.push(roman(open));
    line.extend(part);
    line.push(roman(close));
}

fn takes_values(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|range| range.takes_values())
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

fn names_of_values(arg: &Arg) -> String {
    match arg.get_value_names() {
        Some(names) => names.join(" "),
        None => arg.get_id().as_str().to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_values_and_what_is_required_has_no_brackets() {
        let mut command = Command::new("top")
            .arg(Arg::new("n").short('n').long("number").value_name("N"))
            .arg(Arg::new("cum").long("cum").action(ArgAction::SetTrue))
            .arg(Arg::new("to").long("to").value_name("URL").required(true))
            .arg(
                Arg::new("print")
                    .long("print")
                    .value_name("WHAT")
                    .num_args(0..=1)
                    .require_equals(true),
            )
            .arg(
                Arg::new("file")
                    .value_name("FILE")
                    .action(ArgAction::Append)
                    .required(true),
            );
        command.build();
        let page = section(&command).to_roff();
        let text = page
            .replace("\\fB", "")
            .replace("\\fI", "")
            .replace("\\fR", "");
        let text = text.replace("\\-", "-");
        assert_eq!(
            text,
            ".SH SYNOPSIS\ntop [-n|--number N] [--print[=WHAT]] [--cum] --to URL FILE …\n"
        );
    }
}
