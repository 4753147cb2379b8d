//! What the operator does: the view, the selected row, dialogs, and the effect of each key.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::display::{key, moment, plain};
use super::reader::{ChangeKind, KeyChange, RoundOptions};
use super::snapshot::{GatewaySnapshot, ReadError};
use super::table::{DataTable, KeyTarget, TableRow, TableSort, Tone};
use super::views::TopView;
use crate::admin_api::bans::BanReport;
use crate::admin_api::keys::{KeyOrder, KeyState};

/// The duration that a ban has unless the operator changes it.
const BAN_SPAN: &str = "10min";
/// Maximum characters that a prompt takes.
const MAX_INPUT: usize = 200;

/// The rows that the operator sees in one view.
#[derive(Clone, Debug, Default)]
pub(super) struct ViewState {
    /// The id of the selected row, and its index if there is no such row any more.
    selected: (Option<String>, usize),
    pub(super) filter: String,
    pub(super) sort: TableSort,
}

/// What is open above the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopDialog {
    /// The keys of the terminal.
    Help,
    /// The filter is typed.
    Filter,
    /// The value of a key to look at is typed.
    KeyValue(String),
    /// The duration of a ban is typed.
    BanSpan(KeyTarget, String),
    /// A change waits for confirmation.
    Confirm(KeyChange),
}

/// What a key asks of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopEffect {
    /// Nothing but another picture.
    Draw,
    /// The end.
    Quit,
    /// A change that the operator confirmed.
    Send(KeyChange),
    /// The next of several gateways is to be shown.
    NextGateway,
}

/// The gateway does not answer. Times are Unix times in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LostContact {
    pub(super) since: f64,
    pub(super) reason: String,
}

/// All that the picture depends on.
#[derive(Clone, Debug)]
pub(super) struct TopState {
    /// The address of the gateway.
    pub(super) address: String,
    pub(super) view: TopView,
    /// None before the first answer.
    pub(super) snapshot: Option<GatewaySnapshot>,
    pub(super) lost: Option<LostContact>,
    pub(super) dialog: Option<TopDialog>,
    /// The key that the operator looks at.
    pub(super) look: Option<KeyTarget>,
    /// The result of the last change, until the next key.
    pub(super) message: Option<(Tone, String)>,
    /// The rows that one page has.
    pub(super) page: usize,
    /// The present Unix time in seconds, of this machine.
    pub(super) now: f64,
    views: [ViewState; TopView::ALL.len()],
    limit: Option<String>,
}

impl TopState {
    /// Before the first answer.
    pub(super) fn new(address: String, view: TopView) -> Self {
        Self {
            address,
            view,
            snapshot: None,
            lost: None,
            dialog: None,
            look: None,
            message: None,
            page: 10,
            now: 0.0,
            views: Default::default(),
            limit: None,
        }
    }

    /// What the next round of requests asks for.
    pub(super) fn options(&self) -> RoundOptions {
        let keys = match self.view {
            TopView::Overview => TopView::Overview,
            _ => TopView::Keys,
        };
        let order = match self.of(keys).sort.column {
            Some(2) => KeyOrder::Admitted,
            // Only of a limit that settles costs: other keys have no units.
            Some(4) if self.lists_units() => KeyOrder::Units,
            _ => KeyOrder::Refused,
        };
        // The overview lists the keys of the limit that refuses most.
        let limit = if self.view == TopView::Overview { None } else { self.limit.clone() };
        RoundOptions { limit, order, look: self.look.clone() }
    }

    /// Whether the listed keys have units.
    fn lists_units(&self) -> bool {
        let keys = self.snapshot.as_ref().and_then(|snapshot| snapshot.keys.as_ref());
        keys.is_some_and(|keys| keys.keys.iter().any(|key| key.units.is_some()))
    }

    /// The state of the present view.
    pub(super) fn current(&self) -> &ViewState {
        self.of(self.view)
    }

    fn of(&self, view: TopView) -> &ViewState {
        const NONE: &ViewState = &ViewState {
            selected: (None, 0),
            filter: String::new(),
            sort: TableSort { column: None, reversed: false },
        };
        self.views.get(view as usize).unwrap_or(NONE)
    }

    fn change_view(&mut self, change: impl FnOnce(&mut ViewState)) {
        if let Some(view) = self.views.get_mut(self.view as usize) {
            change(view);
        }
    }

    /// The table of the present view.
    pub(super) fn table(&self) -> DataTable {
        self.snapshot.as_ref().map(|snapshot| self.view.table(snapshot)).unwrap_or_default()
    }

    /// The index of the selected one of these rows.
    pub(super) fn selected(&self, rows: &[&TableRow]) -> Option<usize> {
        let (id, index) = &self.current().selected;
        let known = id.as_ref().and_then(|id| rows.iter().position(|row| row.id == *id));
        known.or_else(|| rows.len().checked_sub(1).map(|last| last.min(*index)))
    }

    /// The selected row.
    fn selected_row(&self) -> Option<TableRow> {
        let table = self.table();
        let rows = self.arranged(&table);
        self.selected(&rows).and_then(|index| rows.get(index)).map(|row| (*row).clone())
    }

    /// The rows of the table that are shown, in their order.
    pub(super) fn arranged<'t>(&self, table: &'t DataTable) -> Vec<&'t TableRow> {
        let ViewState { filter, sort, .. } = self.current();
        table.arranged(filter, *sort)
    }

    /// Takes the result of a round.
    pub(super) fn take_round(&mut self, round: Result<GatewaySnapshot, ReadError>) {
        match round {
            Ok(snapshot) => {
                if let Some(shown) = snapshot.gateways.iter().find(|gateway| gateway.shown) {
                    self.address.clone_from(&shown.address);
                }
                (self.snapshot, self.lost) = (Some(snapshot), None);
            }
            Err(error) => {
                let since = self.lost.as_ref().map_or(self.now, |lost| lost.since);
                self.lost = Some(LostContact { since, reason: reason(&error) });
            }
        }
    }

    /// Takes the result of a change.
    pub(super) fn take_change(&mut self, change: &KeyChange, result: Result<KeyState, ReadError>) {
        let text = &change.target.text;
        self.message = Some(match result {
            Ok(state) => (Tone::Passed, done(change, &state, self.now)),
            Err(ReadError::Refused(status, why)) => (
                Tone::Refused,
                plain(&format!("Nothing has changed for {text}: the gateway answers {status}: {why}")),
            ),
            Err(ReadError::Away(why)) => (
                Tone::Refused,
                plain(&format!("No answer to the change of {text}: {why}. Look at the key first")),
            ),
        });
    }

    /// Takes a key.
    pub(super) fn press(&mut self, pressed: KeyEvent) -> TopEffect {
        if pressed.modifiers.contains(KeyModifiers::CONTROL) {
            return if pressed.code == KeyCode::Char('c') { TopEffect::Quit } else { TopEffect::Draw };
        }
        self.message = None;
        match self.dialog.take() {
            None => return self.press_view(pressed.code),
            // Any key closes it.
            Some(TopDialog::Help) => {}
            Some(TopDialog::Filter) => self.press_filter(pressed.code),
            Some(TopDialog::KeyValue(text)) => self.press_key_value(text, pressed.code),
            Some(TopDialog::BanSpan(target, text)) => self.press_ban_span(target, text, pressed.code),
            Some(TopDialog::Confirm(change)) => return self.press_confirm(change, pressed.code),
        }
        TopEffect::Draw
    }

    fn press_view(&mut self, code: KeyCode) -> TopEffect {
        match code {
            KeyCode::Char('q') => return TopEffect::Quit,
            KeyCode::Char('?') => self.dialog = Some(TopDialog::Help),
            KeyCode::Char('g') => {
                self.look = None;
                return TopEffect::NextGateway;
            }
            KeyCode::Char('b') => self.ask_about(|target| TopDialog::BanSpan(target, BAN_SPAN.to_owned())),
            KeyCode::Char('u') => self.ask_to_lift(),
            KeyCode::Char('r') => self.ask_about(|target| confirm(target, ChangeKind::Reset)),
            KeyCode::Char('l') => self.dialog = Some(TopDialog::KeyValue(String::new())),
            KeyCode::Esc if self.look.is_some() => self.look = None,
            KeyCode::Enter if self.look.is_some() => self.look = None,
            KeyCode::Esc => self.change_view(|view| view.filter.clear()),
            KeyCode::Enter => self.open(),
            _ => self.move_about(code),
        }
        TopEffect::Draw
    }

    /// Keys that choose a view, its order and its row.
    fn move_about(&mut self, code: KeyCode) {
        let columns = self.table().columns.len();
        match code {
            KeyCode::Char(digit @ '1'..='9') => {
                let index =
                    digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()).unwrap_or_default();
                self.show(TopView::ALL.get(index.saturating_sub(1)).copied());
            }
            KeyCode::Tab | KeyCode::Right => self.show(Some(self.neighbour(1))),
            KeyCode::BackTab | KeyCode::Left => self.show(Some(self.neighbour(TopView::ALL.len() - 1))),
            KeyCode::Char('/') => self.dialog = Some(TopDialog::Filter),
            KeyCode::Char('s') => self.change_view(|view| view.sort = view.sort.next(columns)),
            KeyCode::Char('S') => self.change_view(|view| view.sort = view.sort.reverse()),
            KeyCode::Up | KeyCode::Char('k') => self.select(|index, _| index.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(|index, _| index.saturating_add(1)),
            KeyCode::PageUp => self.select(|index, page| index.saturating_sub(page)),
            KeyCode::PageDown => self.select(|index, page| index.saturating_add(page)),
            KeyCode::Home => self.select(|_, _| 0),
            KeyCode::End => self.select(|_, _| usize::MAX),
            _ => {}
        }
    }

    fn show(&mut self, view: Option<TopView>) {
        if let Some(view) = view {
            (self.view, self.look) = (view, None);
        }
    }

    /// The view that many places further.
    fn neighbour(&self, steps: usize) -> TopView {
        let index = (self.view as usize + steps) % TopView::ALL.len();
        TopView::ALL.get(index).copied().unwrap_or(TopView::Overview)
    }

    /// Selects the row at the index that `to` makes of the present one and the size of a page.
    fn select(&mut self, to: impl FnOnce(usize, usize) -> usize) {
        let table = self.table();
        let rows = self.arranged(&table);
        let present = self.selected(&rows).unwrap_or_default();
        let index = to(present, self.page.max(1)).min(rows.len().saturating_sub(1));
        let id = rows.get(index).map(|row| row.id.clone());
        self.change_view(|view| view.selected = (id, index));
    }

    /// Looks at the selected key, or lists the keys of the selected limit.
    fn open(&mut self) {
        let Some(row) = self.selected_row() else { return };
        match (self.view, row.key) {
            (TopView::Limits, _) => {
                self.limit = Some(row.id);
                self.show(Some(TopView::Keys));
            }
            (_, Some(target)) => self.look = Some(target),
            (_, None) => self.message = Some((Tone::Shadow, "This row has no key".to_owned())),
        }
    }

    /// Opens a dialog about the key that the operator looks at, or else the selected one.
    fn ask_about(&mut self, dialog: impl FnOnce(KeyTarget) -> TopDialog) {
        match self.look.clone().or_else(|| self.selected_row()?.key) {
            Some(target) => self.dialog = Some(dialog(target)),
            None => self.message = Some((Tone::Shadow, "No key is selected".to_owned())),
        }
    }

    /// Asks whether to lift a ban. One in shadow refuses nothing.
    fn ask_to_lift(&mut self) {
        let target = self.look.clone().or_else(|| self.selected_row()?.key);
        let bans = self.snapshot.iter().flat_map(|snapshot| &snapshot.bans.bans);
        let is_its = |ban: &&BanReport| {
            target.as_ref().is_some_and(|target| ban.limit == target.limit && ban.id == target.path)
        };
        let its: Vec<_> = bans.filter(is_its).collect();
        if !its.is_empty() && its.iter().all(|ban| ban.in_shadow) {
            let text = "This ban is in shadow and refuses nothing: there is nothing to lift".to_owned();
            self.message = Some((Tone::Shadow, text));
        } else {
            self.ask_about(|target| confirm(target, ChangeKind::Unban));
        }
    }

    fn press_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => {}
            KeyCode::Esc => self.change_view(|view| view.filter.clear()),
            _ => {
                self.change_view(|view| edit(&mut view.filter, code));
                self.dialog = Some(TopDialog::Filter);
            }
        }
    }

    fn press_key_value(&mut self, mut text: String, code: KeyCode) {
        let listed = self.snapshot.as_ref().and_then(|snapshot| snapshot.keys.as_ref());
        match (code, listed) {
            (KeyCode::Esc, _) => {}
            (KeyCode::Enter, Some(keys)) if !text.trim().is_empty() => {
                let text = text.trim().to_owned();
                self.look = Some(KeyTarget { limit: keys.limit.clone(), text: plain(&text), path: text });
            }
            (KeyCode::Enter, _) => {}
            _ => {
                edit(&mut text, code);
                self.dialog = Some(TopDialog::KeyValue(text));
            }
        }
    }

    fn press_ban_span(&mut self, target: KeyTarget, mut text: String, code: KeyCode) {
        self.dialog = match code {
            KeyCode::Esc => None,
            KeyCode::Enter => Some(confirm(target, ChangeKind::Ban(text.trim().to_owned()))),
            _ => {
                edit(&mut text, code);
                Some(TopDialog::BanSpan(target, text))
            }
        };
    }

    /// Only `y` confirms.
    fn press_confirm(&mut self, change: KeyChange, code: KeyCode) -> TopEffect {
        match code {
            KeyCode::Char('y' | 'Y') => {
                self.message = Some((Tone::Plain, "The change is sent …".to_owned()));
                return TopEffect::Send(change);
            }
            KeyCode::Char('n' | 'N') | KeyCode::Esc => {
                self.message = Some((Tone::Plain, "Nothing is changed".to_owned()));
            }
            _ => self.dialog = Some(TopDialog::Confirm(change)),
        }
        TopEffect::Draw
    }
}

fn confirm(target: KeyTarget, kind: ChangeKind) -> TopDialog {
    TopDialog::Confirm(KeyChange { target, kind })
}

/// Changes a typed text.
fn edit(text: &mut String, code: KeyCode) {
    match code {
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(typed) if !typed.is_control() && text.chars().count() < MAX_INPUT => text.push(typed),
        _ => {}
    }
}

/// Why a round failed.
pub(super) fn reason(error: &ReadError) -> String {
    match error {
        ReadError::Away(why) => plain(why.lines().next().unwrap_or_default()),
        ReadError::Refused(status, why) => plain(&format!("the gateway answers {status}: {why}")),
    }
}

/// What to do about it, on a line of its own, if that is known.
pub(super) fn remedy(error: &ReadError) -> String {
    match error {
        ReadError::Away(why) => why.lines().skip(1).map(|line| format!("\n{}", plain(line))).collect(),
        ReadError::Refused(..) => String::new(),
    }
}

/// The result of a change.
fn done(change: &KeyChange, state: &KeyState, now: f64) -> String {
    let (text, limit) = (&change.target.text, plain(&change.target.limit));
    let text = if state.key.is_some() { key(state.key.as_deref(), &state.id) } else { text.clone() };
    let changed = state.changed != Some(false);
    match (&change.kind, changed) {
        (ChangeKind::Ban(_), _) => {
            let until = state.banned_until.map(|until| format!(" until {} UTC", moment(until, now)));
            format!("Banned: {text}{}", until.unwrap_or_default())
        }
        (ChangeKind::Unban, true) => format!("{text} is no longer banned"),
        (ChangeKind::Unban, false) => format!("{text} was not banned"),
        (ChangeKind::Reset, true) => format!("Reset: {text} has its full allowance of {limit} again"),
        (ChangeKind::Reset, false) => format!("{text} had its full allowance of {limit} already"),
    }
}
