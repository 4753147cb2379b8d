//! What is open above the view.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};

use super::Palette;
use crate::admin_api::keys::{KeyState, PolicyAllowance};
use crate::cli::top::display::{count, key, moment, plain, plural, share, wait};
use crate::cli::top::reader::{ChangeKind, KeyChange};
use crate::cli::top::state::{TopDialog, TopState};
use crate::cli::top::table::{DataTable, KeyTarget, TableCell, TableRow, Tone};

const HELP: &str = "\
1 … 8        the views; Tab, ← and →: the next
↑ ↓ j k      select a row; PageUp, PageDown, Home, End
Enter        look at the key; in Limits: list the keys
l            look at a key by its value
b            ban the key for a time
u            lift its ban
r            reset its counter
g            the next gateway, of several `--url`
/            filter the rows; Esc clears the filter
s  S         sort by the next column; reverse the order
q  Ctrl-C    quit

Times are UTC. Counts are for this process only; resets
and bans apply wherever counters are stored.";

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &TopState, palette: Palette) {
    if let Some(target) = &state.look {
        look(frame, area, state, target, palette);
    }
    match &state.dialog {
        None | Some(TopDialog::Filter) => {}
        Some(TopDialog::Help) => open(frame, area, "Keys", HELP.into()),
        Some(TopDialog::KeyValue(text)) => {
            let limit = state
                .snapshot
                .as_ref()
                .and_then(|snapshot| snapshot.keys.as_ref())
                .map(|keys| plain(&keys.limit));
            let of = limit.unwrap_or_default();
            let text = format!(
                "Key of {of}: {}▏\n\nSeveral parts are separated by `,`.\nEnter looks, Esc cancels",
                plain(text)
            );
            open(frame, area, "Look at a key", text.into());
        }
        Some(TopDialog::BanSpan(target, text)) => {
            let text = format!(
                "Ban {} for: {}▏\n\n1s to 366day. Enter goes on, Esc cancels",
                target.text,
                plain(text)
            );
            open(frame, area, "Ban", text.into());
        }
        Some(TopDialog::Confirm(change)) => {
            let (title, text) = question(change);
            open(frame, area, title, text.into());
        }
    }
}

/// The question before a change: it names the key and the effect.
fn question(change: &KeyChange) -> (&'static str, String) {
    let (key, limit) = (&change.target.text, plain(&change.target.limit));
    let (title, effect) = match &change.kind {
        ChangeKind::Reset => {
            ("Reset this counter?", format!("{key} gets its full allowance of {limit} back."))
        }
        ChangeKind::Ban(span) => {
            let span = plain(span);
            (
                "Ban this key?",
                format!("All requests of {key} are refused for {span} on every route with {limit}."),
            )
        }
        ChangeKind::Unban => {
            ("Lift this ban?", format!("{key} will be refused only when it exceeds {limit}."))
        }
    };
    (title, format!("{effect}\n\ny yes   n no"))
}

fn look(frame: &mut Frame<'_>, area: Rect, state: &TopState, target: &KeyTarget, palette: Palette) {
    let title = format!("{} under {}", target.text, plain(&target.limit));
    let snapshot = state.snapshot.as_ref();
    // The key of the last round may be another one.
    let is_it = |seen: &&KeyState| {
        seen.limit == target.limit && (seen.id == target.path || !target.path.starts_with("id:"))
    };
    let seen = snapshot.and_then(|snapshot| snapshot.look.as_ref()).filter(is_it);
    let now = snapshot.map_or(state.now, |snapshot| snapshot.status.time);
    let text = match seen {
        None => Text::from("Reading … (a key that the limit does not have stays unknown)\n\nEsc closes"),
        Some(seen) => key_state(seen, now, palette),
    };
    open(frame, area, &title, text);
}

fn key_state(seen: &KeyState, now: f64, palette: Palette) -> Text<'static> {
    let tone = match seen.verdict.as_str() {
        "admitted" => Tone::Passed,
        "delayed" => Tone::Delayed,
        _ => Tone::Refused,
    };
    let mode = if seen.mode == "shadow" { " (shadow: not enforced)" } else { "" };
    let verdict = format!("Next request: {}{mode}{}", plain(&seen.verdict), banned(seen, now));
    let mut text = Text::from(vec![Line::styled(verdict, palette.style(tone)), Line::raw(name(seen))]);
    text.extend(
        policies(seen).to_text().lines().skip(1).map(|line| Line::raw(line.to_owned())).collect::<Vec<_>>(),
    );
    text.extend([Line::raw(counts(seen)), Line::raw("")]);
    text.push_line(Line::styled("b ban   u unban   r reset   Esc close", palette.style(Tone::Quiet)));
    text
}

fn banned(seen: &KeyState, now: f64) -> String {
    let cause = seen.ban_cause.as_ref().map(|cause| format!(" ({})", plain(cause))).unwrap_or_default();
    let verb = if seen.ban_in_shadow == Some(true) { "would be banned" } else { "banned" };
    let until = |until| format!(", {verb} until {} UTC{cause}", moment(until, now));
    seen.banned_until.map(until).unwrap_or_default()
}

fn name(seen: &KeyState) -> String {
    let tier = seen.tier.as_ref().map(|tier| format!(", tier {}", plain(tier))).unwrap_or_default();
    let values = seen.key.as_ref().map(|values| format!("{} ", key(Some(values), &seen.id)));
    format!("{}{}{tier}", values.unwrap_or_default(), plain(&seen.id))
}

fn counts(seen: &KeyState) -> String {
    let (Some(requests), Some(admitted), Some(refused)) = (seen.requests, seen.admitted, seen.refused) else {
        return "No counts: other keys of this limit send more requests.".to_owned();
    };
    let units = seen.units.map(|units| format!("; {} settled", plural(units, "unit"))).unwrap_or_default();
    format!(
        "{} lately: {} admitted, {} refused{units}.",
        plural(requests, "request"),
        count(admitted),
        count(refused)
    )
}

fn policies(seen: &KeyState) -> DataTable {
    let row = |policy: &PolicyAllowance| TableRow {
        cells: vec![
            TableCell::text(plain(&policy.policy)),
            TableCell::text(format!("{} of {}", count(policy.used), count(policy.quota))),
            TableCell::text(share(policy.used, policy.quota)),
            TableCell::text(count(policy.remaining)),
            TableCell::text(if seen.algorithm == "concurrency" && policy.next_ms.is_none() {
                "–".to_owned()
            } else {
                wait(policy.next_ms)
            }),
            TableCell::text(wait(policy.full_ms)),
        ],
        ..TableRow::default()
    };
    DataTable {
        columns: &["Policy", "Used", "Share", "Remaining", "Retry after", "Full in"],
        numeric: (1, 6),
        rows: seen.policies.iter().map(row).collect(),
        ..DataTable::default()
    }
}

/// A box in the middle, as large as its text where there is room.
fn open(frame: &mut Frame<'_>, area: Rect, title: &str, text: Text<'_>) {
    let inside = |length: usize| u16::try_from(length.saturating_add(2)).unwrap_or(u16::MAX);
    let title = format!(" {title} ");
    let widest = text.width().max(Line::raw(title.as_str()).width().saturating_add(2));
    let width = inside(widest).min(area.width);
    let columns = usize::from(width.saturating_sub(2)).max(1);
    let rows: usize = text.iter().map(|line| line.width().div_ceil(columns).max(1)).sum();
    let height = inside(rows).min(area.height);
    let place = area.centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block), place);
}
