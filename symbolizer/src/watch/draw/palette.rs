//! Palette: the looks of text, with or without colour.

use ratatui::style::{Color, Modifier, Style};

use crate::model::amount::Amount;
use crate::model::change::Verdict;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    /// False: only bold, dim, underlined and reversed text.
    pub(crate) is_coloured: bool,
}

impl Palette {
    fn coloured(self, colour: Color) -> Style {
        match self.is_coloured {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(super) fn plain(self) -> Style {
        Style::new()
    }

    /// Names, and the numbers that people look for.
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Errors, places, units.
    pub(super) fn aside(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }

    /// The column that lines are sorted by.
    pub(super) fn sorted(self) -> Style {
        self.heading().add_modifier(Modifier::BOLD)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A key to press.
    pub(super) fn key(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn curve(self) -> Style {
        self.coloured(Color::Blue)
    }

    pub(super) fn mark(self) -> Style {
        self.coloured(Color::Magenta)
    }

    /// Growth, and failures.
    pub(super) fn warning(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Shrinkage, and successes.
    pub(super) fn good(self) -> Style {
        self.coloured(Color::Green)
    }

    /// A note on the numbers.
    pub(super) fn caveat(self) -> Style {
        self.coloured(Color::Yellow)
    }

    /// A speed that is more than noise.
    pub(super) fn growth(self, growth: &Amount, verdict: Verdict) -> Style {
        let is_sure = matches!(verdict, Verdict::Real | Verdict::Exact);
        match growth.value {
            value if is_sure && value > 0.0 => self.warning(),
            value if is_sure && value < 0.0 => self.good(),
            _ => self.aside(),
        }
    }

    /// A share of the whole.
    pub(super) fn share(self, part: f64, whole: f64) -> Style {
        match part / whole {
            share if share >= 0.25 => self.warning(),
            share if share >= 0.05 => self.caveat(),
            _ => self.plain(),
        }
    }
}
