//! A chart of refusals over time, in one line of text.

use std::fmt::Write as _;

use super::number::{Grouped, Moment, Span};
use crate::limit::units::{Micros, Timestamp};
use crate::replay::statistics::timeline::Timeline;

const COLUMNS: usize = 64;
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The refusals over time with their axis; `None`: there are none, or the log is too short.
pub(super) fn refusals(timeline: &Timeline) -> Option<String> {
    let (each, columns) = timeline.columns(COLUMNS);
    let most = columns.iter().map(|column| column.refused).max().filter(|most| *most > 0)?;
    if columns.len() < 2 {
        return None;
    }
    let step = Micros(timeline.step().0.saturating_mul(each as u64));
    let level = |refused: u64| match refused {
        0 => ' ',
        // The least column that is not empty is visible.
        _ => LEVELS[usize::try_from((refused * 8).div_ceil(most)).unwrap_or(8).clamp(1, 8) - 1],
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "Refusals over time (a column is {}, the highest {})", Span(step), Grouped(most));
    let bars: String = columns.iter().map(|column| level(column.refused)).collect();
    let _ = writeln!(text, "  {bars}");
    let begin = timeline.begin();
    let end = Timestamp(begin.0.saturating_add(step.0.saturating_mul(columns.len() as u64)));
    let (from, to) = (Moment(begin).to_string(), Moment(end).to_string());
    let room = columns.len().max(from.len() + to.len() + 1) - from.len() - to.len();
    let _ = writeln!(text, "  {from}{:room$}{to}", "");
    Some(text)
}
