//! Draws the state.

mod dialogs;
mod overview;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::display::{clock, plain, span};
use super::state::{LostContact, TopDialog, TopState};
use super::table::{DataTable, TableRow, Tone};
use super::views::TopView;
use crate::admin_api::status::StatusReport;

#[cfg(test)]
pub(super) use overview::chart_title;
pub(super) use overview::totals;

/// The keys that the last line names.
const HINTS: &str = "Enter look  b ban  u unban  r reset  / filter  s sort  ? help  q quit";
/// The characters that a column with text keeps, however narrow the terminal is.
const MIN_TEXT: u16 = 6;

/// Whether the picture has colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    Coloured,
    Plain,
}

impl Palette {
    /// The style of a meaning. Without colours, what is refused is bold.
    fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        match (self, tone) {
            (_, Tone::Plain) => style,
            (_, Tone::Quiet) => style.add_modifier(Modifier::DIM),
            (Self::Plain, Tone::Refused) => style.add_modifier(Modifier::BOLD),
            (Self::Plain, _) => style,
            (Self::Coloured, Tone::Passed) => style.fg(Color::Cyan),
            (Self::Coloured, Tone::Delayed) => style.fg(Color::Magenta),
            (Self::Coloured, Tone::Refused) => style.fg(Color::Red),
            (Self::Coloured, Tone::Shadow) => style.fg(Color::Yellow),
        }
    }

    /// The style of the line that reports an outage.
    fn alarm(self) -> Style {
        match self {
            Self::Coloured => Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD),
            Self::Plain => Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED),
        }
    }
}

/// Draws everything, whatever the size of the terminal is.
pub(super) fn draw(frame: &mut Frame<'_>, state: &TopState, palette: Palette) {
    let alarm = u16::from(state.lost.is_some());
    let heights = [
        Constraint::Length(1),
        Constraint::Length(alarm),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [head, contact, tabs, body, foot] = frame.area().layout(&Layout::vertical(heights));
    frame.render_widget(header(state), head);
    frame.render_widget(view_names(state.view), tabs);
    match (&state.snapshot, state.view) {
        (None, _) => frame.render_widget("Waiting for the first answer of the gateway …", body),
        (Some(snapshot), TopView::Overview) => overview::draw(frame, body, state, snapshot, palette),
        (Some(_), _) => draw_table(frame, body, state, palette),
    }
    if let Some(lost) = &state.lost {
        // Old data are dim.
        frame.buffer_mut().set_style(body, Style::new().add_modifier(Modifier::DIM));
        frame.render_widget(Line::styled(outage(lost, state), palette.alarm()), contact);
    }
    dialogs::draw(frame, body, state, palette);
    frame.render_widget(footer(state, palette), foot);
}

fn header(state: &TopState) -> Line<'_> {
    let name = Span::styled("tollgate", Style::new().add_modifier(Modifier::BOLD));
    let facts = state.snapshot.as_ref().map(|snapshot| facts(&snapshot.status)).unwrap_or_default();
    Line::from(vec![name, Span::raw(format!(" {}{facts}", state.address))])
}

fn facts(status: &StatusReport) -> String {
    let StatusReport { time, version, started, workers, life, config, .. } = status;
    format!(
        " · {} · {} · up {} · {workers} workers · file {} since {} · {} UTC",
        plain(version),
        plain(life),
        span(time - started),
        plain(&config.version),
        clock(config.loaded),
        clock(*time)
    )
}

fn outage(lost: &LostContact, state: &TopState) -> String {
    let of = state
        .snapshot
        .as_ref()
        .map(|snapshot| format!(" The numbers are of {} UTC.", clock(snapshot.status.time)));
    let ago = span(state.now - lost.since);
    format!(
        "No data since {} UTC ({ago}).{} Reason: {}",
        clock(lost.since),
        of.unwrap_or_default(),
        lost.reason
    )
}

fn view_names(present: TopView) -> Line<'static> {
    let name = |(index, view): (usize, TopView)| {
        let style = if view == present { Modifier::REVERSED } else { Modifier::empty() };
        let text = format!("{} {}", index + 1, view.as_str());
        [Span::styled(text, Style::new().add_modifier(style)), Span::raw("  ")]
    };
    TopView::ALL.into_iter().enumerate().flat_map(name).collect()
}

fn footer(state: &TopState, palette: Palette) -> Line<'static> {
    let filter = &state.current().filter;
    let shown = plain(filter);
    match (&state.dialog, &state.message) {
        (Some(TopDialog::Filter), _) => Line::raw(format!("Filter: {shown}▏ Enter keeps it, Esc clears it")),
        (_, Some((tone, text))) => Line::styled(text.clone(), palette.style(*tone)),
        _ if !filter.is_empty() => Line::raw(format!("Filter: {shown} (Esc clears it)  {HINTS}")),
        _ => Line::styled(HINTS, palette.style(Tone::Quiet)),
    }
}

/// Draws the table of the view: its title, its rows and its note.
fn draw_table(frame: &mut Frame<'_>, area: Rect, state: &TopState, palette: Palette) {
    let table = state.table();
    let rows = state.arranged(&table);
    let note = u16::from(!table.note.is_empty());
    let heights = [Constraint::Length(1), Constraint::Fill(1), Constraint::Length(note)];
    let [title, body, below] = area.layout(&Layout::vertical(heights));
    let of = if rows.len() < table.rows.len() {
        format!(" ({} of {})", rows.len(), table.rows.len())
    } else {
        String::new()
    };
    let bold = Style::new().add_modifier(Modifier::BOLD);
    frame.render_widget(Line::styled(format!("{}{of}", table.title), bold), title);
    let widths = widths(&table, body.width);
    let drawn = rows.iter().map(|row| table_row(&table, row, palette));
    let widget = Table::new(drawn, widths)
        .header(titles(&table, state))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut scroll = TableState::new().with_selected(state.selected(&rows));
    frame.render_stateful_widget(widget, body, &mut scroll);
    frame.render_widget(Paragraph::new(table.note.as_str()).style(palette.style(Tone::Quiet)), below);
}

/// The titles of the columns; the sorted one has an arrow.
fn titles(table: &DataTable, state: &TopState) -> Row<'static> {
    let sort = state.current().sort;
    let title = |(column, title): (usize, &&str)| {
        let arrow = match (sort.column == Some(column), sort.reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        aligned(Line::raw(format!("{title}{arrow}")), table.is_numeric(column))
    };
    let cells = table.columns.iter().enumerate().map(title);
    Row::new(cells).style(Style::new().add_modifier(Modifier::UNDERLINED))
}

fn table_row<'r>(table: &DataTable, row: &'r TableRow, palette: Palette) -> Row<'r> {
    let cell = |(column, cell): (usize, &'r super::table::TableCell)| {
        aligned(Line::styled(cell.text.as_str(), palette.style(cell.tone)), table.is_numeric(column))
    };
    Row::new(row.cells.iter().enumerate().map(cell))
}

fn aligned(line: Line<'_>, right: bool) -> Cell<'_> {
    Cell::from(if right { line.right_aligned() } else { line })
}

/// The widths of the columns. Numbers are shown whole; the widest columns with text share what is left.
fn widths(table: &DataTable, width: u16) -> Vec<Constraint> {
    let natural = |width: usize| u16::try_from(width.saturating_add(1)).unwrap_or(u16::MAX);
    let mut widths: Vec<u16> = table.widths().into_iter().map(natural).collect();
    let gaps = u16::try_from(widths.len().saturating_sub(1) * 2).unwrap_or_default();
    let room = width.saturating_sub(gaps);
    loop {
        let all: u16 = widths.iter().fold(0, |all, width| all.saturating_add(*width));
        let over = all.saturating_sub(room);
        let mut texts: Vec<_> = widths
            .iter_mut()
            .enumerate()
            .filter(|(column, _)| !table.is_numeric(*column))
            .map(|(_, width)| width)
            .collect();
        texts.sort_unstable_by_key(|width| std::cmp::Reverse(**width));
        let next = texts.get(1).map_or(MIN_TEXT, |width| **width).max(MIN_TEXT);
        let Some(widest) = texts.into_iter().next().filter(|widest| over > 0 && **widest > MIN_TEXT) else {
            break;
        };
        // Down to the next one at most, and at least by one.
        *widest = widest.saturating_sub(over).max(next.min(widest.saturating_sub(1)));
    }
    widths.into_iter().map(Constraint::Length).collect()
}
