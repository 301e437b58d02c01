//! Colour: whether output has colours, and what each colour means.
//!
//! `auto` means colour if the table goes to a terminal that is not dumb, and `NO_COLOR`
//! (<https://no-color.org>) is not set. The decision is made once, after the command line is read.
//! Text for pipes and files is always plain.

use std::sync::OnceLock;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ColourChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Also on a pipe
    Always,
    /// Never
    Never,
}

static IS_ON: OnceLock<bool> = OnceLock::new();

/// Decides for this process, whose tables go to a terminal or not.
pub(crate) fn decide(when: ColourChoice, to_terminal: bool) {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_on = match when {
        ColourChoice::Always => true,
        ColourChoice::Never => false,
        ColourChoice::Auto => to_terminal && !set("NO_COLOR") && !is_dumb,
    };
    let _ = IS_ON.set(is_on);
}

/// Returns the decision.
pub(crate) fn is_on() -> bool {
    IS_ON.get().copied().unwrap_or(false)
}

/// The kinds of text. Each has one style, so that all commands look alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Plain,
    /// Names of columns.
    Heading,
    /// The thing that a reader looks for: functions.
    Name,
    /// The things beside it: files, lines, errors.
    Aside,
    /// A large share of the whole, and one worth a look.
    Large,
    Notable,
}

impl TextStyle {
    /// That of a share of the whole.
    pub(crate) fn of_share(part: f64, whole: f64) -> TextStyle {
        match part / whole {
            share if share >= 0.25 => TextStyle::Large,
            share if share >= 0.05 => TextStyle::Notable,
            _ => TextStyle::Plain,
        }
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            TextStyle::Plain => Style::new(),
            TextStyle::Heading => Style::new().underline(),
            TextStyle::Name => Style::new().bold(),
            TextStyle::Aside => Style::new().dimmed(),
            TextStyle::Large => colour(AnsiColor::Red).bold(),
            TextStyle::Notable => colour(AnsiColor::Yellow),
        }
    }

    /// The text in this style, when there is colour.
    pub(crate) fn paint(self, text: &str, is_on: bool) -> String {
        match is_on && self != TextStyle::Plain && !text.is_empty() {
            true => format!("{style}{text}{style:#}", style = self.style()),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_coloured_is_the_text_itself() {
        for style in [
            TextStyle::Plain,
            TextStyle::Heading,
            TextStyle::Name,
            TextStyle::Aside,
            TextStyle::Large,
        ] {
            assert_eq!(style.paint("text", false), "text");
        }
        assert_eq!(TextStyle::Plain.paint("text", true), "text");
        assert_eq!(TextStyle::Name.paint("text", true), "\x1b[1mtext\x1b[0m");
    }
}
