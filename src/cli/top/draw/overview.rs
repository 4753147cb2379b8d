//! The overview: what needs attention, the charts, and the keys that are refused most.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::{RenderDirection, Sparkline, SparklineBar};

use super::{Palette, draw_table};
use crate::admin_api::samples::RequestSamples;
use crate::cli::top::display::{count, maybe, rate, whole};
use crate::cli::top::findings::findings;
use crate::cli::top::samples::{KEPT, SampleNumbers as _, class_lately};
use crate::cli::top::snapshot::GatewaySnapshot;
use crate::cli::top::state::TopState;
use crate::cli::top::table::Tone;
use crate::cli::top::views::CLASSES;

/// A chart: its name, its unit, its colour, and the numbers, the newest first.
type TopChart = (&'static str, &'static str, Tone, fn(&RequestSamples) -> Vec<Option<f64>>);

const CHARTS: [TopChart; 5] = [
    ("admitted", "/s", Tone::Passed, |all| all.admitted.numbers().collect()),
    ("refused", "/s", Tone::Refused, |all| all.refused.numbers().collect()),
    ("failed", "/s", Tone::Refused, |all| all.failed.numbers().collect()),
    ("delayed", "/s", Tone::Delayed, |all| all.delayed.numbers().collect()),
    ("p99", " ms", Tone::Plain, |all| all.p99_ms.numbers().collect()),
];
/// The columns that a chart needs.
const CHART_WIDTH: u16 = 22;
/// The rows of a chart with its title.
const CHART_HEIGHT: u16 = 4;
/// The rows that the table of keys keeps.
const TABLE_HEIGHT: u16 = 6;
/// The most sentences that are shown.
const MAX_FINDINGS: usize = 6;

pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    state: &TopState,
    snapshot: &GatewaySnapshot,
    palette: Palette,
) {
    let found = findings(snapshot);
    let room = usize::from(area.height / 3).clamp(1, MAX_FINDINGS);
    let lines = u16::try_from(found.len().min(room)).unwrap_or(1);
    let charts = if area.height > lines + CHART_HEIGHT + TABLE_HEIGHT { CHART_HEIGHT } else { 0 };
    let heights =
        [Constraint::Length(lines), Constraint::Length(charts), Constraint::Length(1), Constraint::Fill(1)];
    let [top, middle, numbers, below] = area.layout(&Layout::vertical(heights));
    let sentence = |(tone, text): (Tone, String)| Line::styled(text, palette.style(tone));
    for (row, line) in top.rows().zip(found.into_iter().map(sentence)) {
        frame.render_widget(line, row);
    }
    draw_charts(frame, middle, &snapshot.samples.all, palette);
    frame.render_widget(Line::raw(totals(snapshot)), numbers);
    draw_table(frame, below, state, palette);
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, all: &RequestSamples, palette: Palette) {
    let fitting = usize::from(area.width / CHART_WIDTH).clamp(1, CHARTS.len());
    let columns = Layout::horizontal(vec![Constraint::Fill(1); fitting]).spacing(2).split(area);
    for (column, (name, unit, tone, list)) in columns.iter().zip(CHARTS) {
        let [title, chart] = column.layout(&Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]));
        let values = list(all);
        let max = values.iter().flatten().copied().fold(0.0, f64::max);
        let now = format!("{name} {}{unit}", maybe(values.first().copied().flatten()));
        let text = chart_title(now, &rate(max), title.width.into());
        frame.render_widget(Line::styled(text, palette.style(tone)), title);
        frame.render_widget(sparkline(&values, palette.style(tone)), chart);
    }
}

/// The number of now, with the largest where there is room for all of it: a number whose last digit is cut is another one.
pub(in crate::cli::top) fn chart_title(now: String, max: &str, width: usize) -> String {
    let long = format!("{now}, max {max}");
    if long.chars().count() <= width { long } else { now }
}

/// The newest second, the first one, is at the right.
fn sparkline(values: &[Option<f64>], style: ratatui::style::Style) -> Sparkline<'static> {
    // Thousandths, so that a small latency has a height.
    let bar = |value: &Option<f64>| SparklineBar::from(value.map(|value| whole(value * 1_000.0)));
    let bars: Vec<_> = values.iter().take(KEPT).map(bar).collect();
    Sparkline::default().data(bars).direction(RenderDirection::RightToLeft).style(style)
}

/// The numbers without a chart, in one line.
pub(in crate::cli::top) fn totals(snapshot: &GatewaySnapshot) -> String {
    let upstreams = || snapshot.samples.upstreams.values();
    let class = |class: &&str| rate(upstreams().map(|lists| class_lately(lists, class)).sum());
    let classes: Vec<_> = CLASSES.iter().map(|name| format!("{name} {}/s", class(name))).collect();
    let keys = snapshot.samples.store.keys.newest().map(|keys| count(whole(keys)));
    format!(
        "backends {}  no answer {}/s  retries {}/s · counters {} · bans {}",
        classes.join("  "),
        rate(upstreams().map(|lists| lists.failed.lately()).sum()),
        rate(upstreams().map(|lists| lists.retries.lately()).sum()),
        keys.unwrap_or_else(|| "–".to_owned()),
        count(snapshot.status.bans)
    )
}
