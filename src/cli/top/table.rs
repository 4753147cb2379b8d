//! A table as data: rows, how they are sorted and filtered, and their text.

use std::cmp::Ordering;
use std::fmt::Write as _;

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// No meaning.
    #[default]
    Plain,
    /// Of less interest.
    Quiet,
    /// Admitted.
    Passed,
    /// Delayed by a limit.
    Delayed,
    /// Refused or failed.
    Refused,
    /// What a shadow limit would refuse; a warning.
    Shadow,
}

/// A key under a limit: what an action applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyTarget {
    /// The name of the limit.
    pub(super) limit: String,
    /// The id of the key, or its values as the API takes them in a path.
    pub(super) path: String,
    /// The key for readers.
    pub(super) text: String,
}

/// A cell, and its number if it is sorted by one.
#[derive(Clone, Debug, Default)]
pub(super) struct TableCell {
    pub(super) text: String,
    pub(super) number: Option<f64>,
    pub(super) tone: Tone,
}

/// A row. `id` names it from round to round.
#[derive(Clone, Debug, Default)]
pub(super) struct TableRow {
    pub(super) id: String,
    pub(super) cells: Vec<TableCell>,
    /// The key that actions on this row apply to.
    pub(super) key: Option<KeyTarget>,
}

/// Rows in the order that the view is for, under their titles. The columns in `numeric` are aligned to the right.
#[derive(Clone, Debug, Default)]
pub(super) struct DataTable {
    pub(super) title: String,
    /// The titles of the columns.
    pub(super) columns: &'static [&'static str],
    /// The index of the first column with numbers, and of the column after the last.
    pub(super) numeric: (usize, usize),
    pub(super) rows: Vec<TableRow>,
    /// A sentence below the rows.
    pub(super) note: String,
}

/// How the operator sorts a table. The default is the order that the view is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableSort {
    /// The index of the column.
    pub(super) column: Option<usize>,
    pub(super) reversed: bool,
}

impl TableCell {
    /// A text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// A number as `text`.
    pub(super) fn number(number: f64, text: String) -> Self {
        Self { text, number: Some(number), tone: Tone::Plain }
    }

    /// A number of requests, in `tone` unless it is 0.
    pub(super) fn count(number: u64, tone: Tone) -> Self {
        let tone = if number == 0 { Tone::Plain } else { tone };
        Self { text: super::display::count(number), number: Some(number as f64), tone }
    }

    /// A rate, in `tone` unless it is 0.
    pub(super) fn rate(number: f64, tone: Tone) -> Self {
        let tone = if number > 0.0 { tone } else { Tone::Plain };
        Self { text: super::display::rate(number), number: Some(number), tone }
    }

    pub(super) fn toned(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }

    /// Numbers from the largest down, then texts from A up.
    fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(two)) => two.total_cmp(&one),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

impl TableSort {
    /// The next column; after the last, the order that the view is for.
    pub(super) fn next(self, columns: usize) -> Self {
        let column = self.column.map_or(0, |column| column + 1);
        Self { column: (column < columns).then_some(column), reversed: false }
    }

    pub(super) fn reverse(self) -> Self {
        Self { reversed: !self.reversed, ..self }
    }
}

impl DataTable {
    /// The rows that have `filter` in one of their cells, in any case, sorted.
    pub(super) fn arranged(&self, filter: &str, sort: TableSort) -> Vec<&TableRow> {
        let filter = filter.to_lowercase();
        let has = |row: &&TableRow| {
            filter.is_empty() || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<_> = self.rows.iter().filter(has).collect();
        if let Some(column) = sort.column {
            rows.sort_by(|one, other| match (one.cells.get(column), other.cells.get(column)) {
                (Some(one), Some(other)) => one.compare(other),
                (one, other) => other.is_some().cmp(&one.is_some()),
            });
        }
        if sort.reversed {
            rows.reverse();
        }
        rows
    }

    /// Whether a column is aligned to the right.
    pub(super) fn is_numeric(&self, column: usize) -> bool {
        (self.numeric.0..self.numeric.1).contains(&column)
    }

    /// The characters of the widest cell of each column.
    pub(super) fn widths(&self) -> Vec<usize> {
        let width = |column: usize, title: &str| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or_default().max(title.chars().count())
        };
        self.columns.iter().enumerate().map(|(column, title)| width(column, title)).collect()
    }

    /// The table as lines of text, without colours.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        if !self.rows.is_empty() {
            let widths = self.widths();
            text.push_str(&self.line(&widths, self.columns.iter().copied()));
            for row in &self.rows {
                text.push_str(&self.line(&widths, row.cells.iter().map(|cell| cell.text.as_str())));
            }
        }
        if !self.note.is_empty() {
            let _ = writeln!(text, "  {}", self.note);
        }
        text
    }

    fn line<'a>(&self, widths: &[usize], cells: impl Iterator<Item = &'a str>) -> String {
        let mut line = String::from(" ");
        for (column, (cell, width)) in cells.zip(widths).enumerate() {
            // Writing to a string does not fail.
            let _ = match self.is_numeric(column) {
                true => write!(line, " {cell:>width$} "),
                false => write!(line, " {cell:<width$} "),
            };
        }
        format!("{}\n", line.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> DataTable {
        let row = |name: &str, number: u64| TableRow {
            id: name.to_owned(),
            cells: vec![TableCell::text(name), TableCell::count(number, Tone::Refused)],
            key: None,
        };
        DataTable {
            title: "Keys".to_owned(),
            columns: &["Key", "Refused"],
            numeric: (1, 2),
            rows: vec![row("b", 5), row("Alpha", 1_200), row("c", 0)],
            note: "Counts are exact.".to_owned(),
        }
    }

    fn names(filter: &str, sort: TableSort) -> Vec<String> {
        table().arranged(filter, sort).iter().map(|row| row.id.clone()).collect()
    }

    #[test]
    fn each_column_sorts_and_reverses_and_then_the_order_of_the_view_is_back() {
        let own = TableSort::default();
        assert_eq!(names("", own), ["b", "Alpha", "c"]);
        assert_eq!(names("", own.reverse()), ["c", "Alpha", "b"]);
        let by_name = own.next(2);
        assert_eq!(names("", by_name), ["Alpha", "b", "c"]);
        let by_number = by_name.next(2);
        assert_eq!(names("", by_number), ["Alpha", "b", "c"]);
        assert_eq!(names("", by_number.reverse()), ["c", "b", "Alpha"]);
        assert_eq!(by_number.next(2), own);
    }

    #[test]
    fn a_filter_finds_text_in_any_case_and_any_cell() {
        assert_eq!(names("ALP", TableSort::default()), ["Alpha"]);
        assert_eq!(names("1,2", TableSort::default()), ["Alpha"]);
        assert!(names("nothing", TableSort::default()).is_empty());
    }

    #[test]
    fn as_text_the_columns_are_aligned() {
        let text = "Keys\n  Key    Refused\n  b            5\n  Alpha    1,200\n  c            0\n  Counts are exact.\n";
        assert_eq!(table().to_text(), text);
    }
}
