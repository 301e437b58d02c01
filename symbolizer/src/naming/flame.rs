//! Flame graph style: the look of all flame graphs, and the lines that they are drawn from.
//!
//! A frame that is too narrow to be drawn is not written: its caller's line has its bytes. So the
//! number of lines is bounded, whatever the number of stacks.

use std::io::{self, Write};
use std::ops::Range;

use inferno::flamegraph::color::{BackgroundColor, BasicPalette, Palette};
use inferno::flamegraph::{self, Direction, Options};

use crate::naming::paths::Paths;

/// In percent of the picture: one in a thousand is a pixel or so, which no eye can use; left in, a
/// deep thin stack would make the picture many times as high.
const MIN_WIDTH: f64 = 0.1;

/// How all of them look.
pub(crate) fn look<'a>() -> Options<'a> {
    let mut look = Options::default();
    look.name_type = "Function:".into();
    look.colors = Palette::Basic(BasicPalette::Mem);
    look.bgcolors = Some(BackgroundColor::Flat((255, 255, 255).into()));
    look.direction = Direction::Straight;
    look.deterministic = true;
    look.no_sort = true; // ours are in order
    look.font_type = "sans-serif".into();
    look.font_size = 12;
    look.frame_height = 17;
    look.image_width = Some(1400);
    look.min_width = MIN_WIDTH;
    look
}

/// Draws such lines.
///
/// # Errors
/// Those of `out`, and what inferno finds wrong with the lines.
pub(crate) fn draw(look: &mut Options<'_>, lines: &[String], out: impl Write) -> io::Result<()> {
    flamegraph::from_lines(look, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}

/// A frame of the picture.
struct Frame {
    /// The paths that it is a part of.
    paths: Range<usize>,
    /// How many names it is from the root.
    names: usize,
}

/// The lines, `outer;inner 4096`, those that begin alike one after another. `label` is for what a
/// frame is to be called, whose name that is, and of which paths it is a part.
pub(crate) fn lines<T>(
    paths: &Paths<T>,
    width: impl Fn(&T) -> u64,
    mut label: impl FnMut(&str, Range<usize>) -> String,
) -> Vec<String> {
    let mut before = vec![0u64];
    for one in paths.values() {
        before.push(before[before.len() - 1].saturating_add(width(one)));
    }
    let of = |range: &Range<usize>| before[range.end] - before[range.start];
    // Half of what is left out in the end: where widths are rounded is not ours to know.
    let least = before[paths.len()] as f64 * (MIN_WIDTH / 100.0 / 2.0);
    let mut frames = Vec::new();
    paths.each_beginning(|range, names| {
        let width = of(&range);
        // Those at the root have nothing that they could belong to.
        if width > 0 && (names == 1 || width as f64 >= least) {
            let paths = range;
            frames.push(Frame { paths, names });
        }
    });
    frames.sort_unstable_by_key(|frame| (frame.paths.start, frame.names));

    // The own value of a frame, without the frames above it.
    let mut own: Vec<u64> = frames.iter().map(|frame| of(&frame.paths)).collect();
    let mut below: Vec<usize> = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        below.truncate(frame.names - 1);
        if let Some(&outer) = below.last() {
            own[outer] = own[outer].saturating_sub(of(&frame.paths));
        }
        below.push(index);
    }
    let mut labels: Vec<String> = Vec::new();
    let mut lines = Vec::new();
    for (frame, own) in frames.iter().zip(own) {
        let name = paths.name_at(frame.paths.start, frame.names - 1);
        labels.truncate(frame.names - 1);
        labels.push(label(name, frame.paths.clone()));
        if own > 0 {
            lines.push(format!("{} {own}", labels.join(";")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(paths: Vec<(&str, u64)>) -> Vec<String> {
        let paths = Paths::of_texts(paths);
        lines(&paths, |&width| width, |name, _| name.to_owned())
    }

    /// ```text
    ///   main ─┬─ 5 of its own
    ///         ├─ read   100,000 ── parse 20,000
    ///         └─ write  3 ── flush 1
    ///   other   1
    /// ```
    #[test]
    fn what_is_narrow_belongs_to_what_it_was_called_by() {
        let all = vec![
            ("main", 5),
            ("main;read", 80_000),
            ("main;read;parse", 20_000),
            ("main;write", 2),
            ("main;write;flush", 1),
            ("other", 1),
        ];
        assert_eq!(
            plain(all),
            [
                "main 8",
                "main;read 80000",
                "main;read;parse 20000",
                "other 1"
            ]
        );
    }

    /// Behind `fold`, `fold::{closure}` is before `fold;push` as a text, which would have `fold`
    /// drawn twice.
    #[test]
    fn a_frame_is_drawn_once() {
        let all = vec![
            ("main;fold", 10),
            ("main;fold::{closure}", 20),
            ("main;fold;push", 30),
        ];
        assert_eq!(
            plain(all),
            [
                "main;fold 10",
                "main;fold;push 30",
                "main;fold::{closure} 20"
            ]
        );
    }

    #[test]
    fn nothing_has_no_width() {
        assert_eq!(plain(vec![("main", 0), ("main;read", 0)]), [""; 0]);
        assert_eq!(plain(vec![]), [""; 0]);
    }
}
