//! What the operator sees and does, without a terminal or a gateway.

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::draw::{Palette, chart_title, draw};
use super::reader::{ChangeKind, KeyChange};
use super::snapshot::ReadError;
use super::snapshot_text;
use super::state::{TopEffect, TopState};
use super::table::KeyTarget;
use super::views::TopView;
use crate::admin_api::keys::KeyOrder;

mod fixture;

use fixture::{key_state, snapshot};

const SIZES: [(u16, u16); 7] = [(0, 0), (1, 1), (20, 5), (5, 20), (3, 60), (40, 12), (120, 3)];

fn ready() -> TopState {
    let mut state = TopState::new("127.0.0.1:9900".to_owned(), TopView::Overview);
    state.now = 1_763_737_201.0;
    state.take_round(Ok(snapshot()));
    state
}

fn terminal(state: &TopState, (width, height): (u16, u16), palette: Palette) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, palette)).unwrap();
    terminal
}

/// The picture of a large terminal, as lines.
fn picture(state: &TopState) -> String {
    let terminal = terminal(state, (160, 40), Palette::Coloured);
    let buffer = terminal.backend().buffer();
    let line = |row: u16| (0..160).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    (0..40).map(|row| format!("{}\n", line(row).trim_end())).collect()
}

#[track_caller]
fn shows(state: &TopState, words: &[&str]) {
    let picture = picture(state);
    for word in words {
        assert!(picture.contains(word), "{word} is missing in\n{picture}");
    }
}

fn press(state: &mut TopState, keys: &str) -> TopEffect {
    let mut effect = TopEffect::Draw;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⇟' => KeyCode::PageDown,
            '⇱' => KeyCode::Home,
            '⇲' => KeyCode::End,
            '→' => KeyCode::Right,
            '←' => KeyCode::Left,
            other => KeyCode::Char(other),
        };
        effect = state.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

fn target(id: &str, text: &str) -> KeyTarget {
    KeyTarget { limit: "per-client".to_owned(), path: id.to_owned(), text: text.to_owned() }
}

#[test]
fn no_digit_of_a_number_is_cut() {
    let title = |width| chart_title("admitted 92/s".to_owned(), "140", width);
    assert_eq!(title(22), "admitted 92/s, max 140");
    assert_eq!(title(21), "admitted 92/s");
}

#[test]
fn every_view_shows_its_numbers() {
    let mut state = ready();
    shows(
        &state,
        &[
            "tollgate 127.0.0.1:9900 · 0.1.0 · serving · up 1 h · 2 workers · file 3f9c2a10 since 14:00:00",
            "1 Overview  2 Limits",
            "per-client refuses 98/s of 920/s requests: over 10/s",
            "192.0.2.7 has 75 % of the refusals of per-client",
            "Banned: 1 key",
            "admitted 840/s, max 840",
            "refused 101/s, max 101",
            "p99 17 ms",
            "backends 2xx 820/s  3xx 0/s  4xx 0/s  5xx 1/s",
            "Keys of per-client",
            "▆",
        ],
    );
    for (view, words) in [
        ('2', &["per-client", "60 %", "10/s for each ip", "trial", "shadow", "3 (+2 waiting)"][..]),
        ('3', &["Keys of per-client", "192.0.2.7", "75 %", "1,234", "counts are exact"]),
        (
            '4',
            &["15:00:00", "192.0.2.7", "429", "per-client: over 10/s", "GET api.example.com/search/\\u{7}"],
        ),
        (
            '5',
            &[
                "search",
                "1 of 2 up; 10.0.0.2:9000 ejected (connection refused)",
                "820",
                "Counters in memory: 9 of at most 1,000",
            ],
        ),
        (
            '6',
            &["203.0.113.9", "per-client", "in force", "1 h", "16:00:00", "by hand", "shadow: not refused"],
        ),
        ('7', &["GET /search/*", "no route matches", "per-client"]),
        ('8', &["edge-1:8080", "live, this one", "edge-2:8080", "gone", "3f9c2a10", "-12"]),
    ] {
        press(&mut state, &view.to_string());
        shows(&state, words);
    }
    press(&mut state, "1?");
    shows(&state, &["ban the key for a time", "Ctrl-C"]);
}

#[test]
fn as_text_all_views_are_there() {
    let text = snapshot_text("127.0.0.1:9900", &snapshot());
    for word in [
        "tollgate 0.1.0 at 127.0.0.1:9900: serving",
        "refused 98/s",
        "Limits\n",
        "Keys of per-client\n",
        "\nBackends\n",
        "203.0.113.9",
        "GET /search/*",
    ] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    assert!(!text.contains(|char: char| char != '\n' && char.is_control()), "{text:?}");
}

#[test]
fn no_character_of_a_client_reaches_the_terminal() {
    let mut state = ready();
    for keys in ["1", "3", "↓\n", "b", "\n", "\u{1b}\u{1b}4"] {
        press(&mut state, keys);
        let picture = picture(&state);
        assert!(!picture.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{picture:?}");
    }
    press(&mut state, "3");
    shows(&state, &["evil\\u{1b}[2J\\u{202e}"]);
}

#[test]
fn rows_are_sorted_filtered_and_stay_selected() {
    let mut state = ready();
    press(&mut state, "3↓");
    let first_key = |state: &TopState| {
        let picture = picture(state);
        let lines: Vec<_> = picture
            .lines()
            .skip_while(|line| {
                !line.starts_with("Key ") && !line.starts_with("Key▼") && !line.starts_with("Key▲")
            })
            .collect();
        lines[1].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(first_key(&state), "192.0.2.7");
    press(&mut state, "sss");
    shows(&state, &["Admitted▼"]);
    assert!(first_key(&state).starts_with("evil"));
    assert_eq!(state.options().order, KeyOrder::Admitted);
    press(&mut state, "S");
    shows(&state, &["Admitted▲"]);
    assert_eq!(first_key(&state), "192.0.2.7");
    press(&mut state, "\n");
    assert_eq!(
        state.look,
        Some(target("id:02", "evil\\u{1b}[2J\\u{202e}")),
        "the selected row keeps its key"
    );
    press(&mut state, "\u{1b}/198x\u{8}");
    shows(&state, &["Filter: 198▏", "(1 of 3)"]);
    assert_eq!(first_key(&state), "198.51.100.1");
    press(&mut state, "\n");
    shows(&state, &["Filter: 198 (Esc clears it)"]);
    press(&mut state, "\u{1b}");
    shows(&state, &["evil"]);
    press(&mut state, "⇲\n");
    assert_eq!(
        state.look.as_ref().map(|key| key.path.as_str()),
        Some("id:02"),
        "the last by admitted, reversed"
    );
    press(&mut state, "\n⇱\n");
    assert_eq!(state.look.as_ref().map(|key| key.path.as_str()), Some("id:01"));
    press(&mut state, "\n⇟↑\n");
    assert_eq!(state.look.as_ref().map(|key| key.path.as_str()), Some("id:03"));
}

#[test]
fn a_key_shows_its_policies_and_a_change_needs_y() {
    let mut state = ready();
    press(&mut state, "\n");
    assert_eq!(state.options().look, Some(target("id:01", "192.0.2.7")));
    shows(
        &state,
        &[
            "192.0.2.7 under per-client",
            "Next request: refused",
            "25 of 50",
            "50 %",
            "84 ms",
            "5.0 s",
            "65 requests lately: 5 admitted, 60 refused.",
        ],
    );
    press(&mut state, "b");
    shows(&state, &["Ban 192.0.2.7 for: 10min▏"]);
    press(&mut state, "\u{8}\u{8}\u{8}\u{8}\u{8}1h\n");
    shows(
        &state,
        &["Ban this key?", "All requests of 192.0.2.7 are refused for 1h on every route with per-client."],
    );
    assert_eq!(press(&mut state, "\n"), TopEffect::Draw, "Enter does not confirm");
    press(&mut state, "n");
    shows(&state, &["Nothing is changed"]);
    let ban = KeyChange { target: target("id:01", "192.0.2.7"), kind: ChangeKind::Ban("10min".to_owned()) };
    assert_eq!(press(&mut state, "b\ny"), TopEffect::Send(ban.clone()));
    state.take_change(&ban, Ok(key_state("banned", Some(1_763_737_800.0))));
    shows(&state, &["Banned: 192.0.2.7 until 15:10:00 UTC"]);
    state.take_change(&ban, Err(ReadError::Refused(403, "the token may not `operate`".to_owned())));
    shows(
        &state,
        &["Nothing has changed for 192.0.2.7: the gateway answers 403: the token may not `operate`"],
    );
    for (key, kind, question, result) in [
        ('u', ChangeKind::Unban, "Lift this ban?", "192.0.2.7 is no longer banned"),
        (
            'r',
            ChangeKind::Reset,
            "192.0.2.7 gets its full allowance of per-client back",
            "Reset: 192.0.2.7 has its full",
        ),
    ] {
        press(&mut state, &key.to_string());
        shows(&state, &[question]);
        let change = KeyChange { target: target("id:01", "192.0.2.7"), kind };
        assert_eq!(press(&mut state, "y"), TopEffect::Send(change.clone()));
        state.take_change(&change, Ok(key_state("admitted", None)));
        shows(&state, &[result]);
    }
}

#[test]
fn a_ban_in_shadow_is_not_to_be_lifted() {
    let mut state = ready();
    press(&mut state, "6↓u");
    shows(&state, &["This ban is in shadow and refuses nothing"]);
    press(&mut state, "↑u");
    shows(&state, &["Lift this ban?"]);
}

#[test]
fn keys_are_found_by_limit_and_by_value() {
    let mut state = ready();
    press(&mut state, "2↓\n");
    assert_eq!(state.view, TopView::Keys);
    assert_eq!(state.options().limit.as_deref(), Some("trial"));
    press(&mut state, "l192.0.2.9,/a\n");
    assert_eq!(state.look, Some(target("192.0.2.9,/a", "192.0.2.9,/a")));
    press(&mut state, "5\n");
    shows(&state, &["This row has no key"]);
    press(&mut state, "b");
    shows(&state, &["No key is selected"]);
    press(&mut state, "→→→→");
    assert_eq!(state.view, TopView::Overview);
    press(&mut state, "←←←");
    assert_eq!(state.view, TopView::Bans);
}

#[test]
fn an_outage_names_its_start_and_the_age_of_the_numbers() {
    let mut state = TopState::new("127.0.0.1:9900".to_owned(), TopView::Overview);
    shows(&state, &["Waiting for the first answer"]);
    state = ready();
    state.take_round(Err(ReadError::Away("connection refused\u{1b}".to_owned())));
    state.now += 65.0;
    state.take_round(Err(ReadError::Away("connection refused\u{1b}".to_owned())));
    shows(
        &state,
        &[
            "No data since 15:00:01 UTC (1 min). The numbers are of 15:00:00 UTC. Reason: connection refused\\u{1b}",
        ],
    );
    let coloured = terminal(&state, (80, 24), Palette::Coloured);
    assert_eq!(coloured.backend().buffer()[(0, 1)].bg, Color::Red);
    assert!(coloured.backend().buffer()[(0, 5)].modifier.contains(Modifier::DIM));
    let plain = terminal(&state, (80, 24), Palette::Plain);
    assert!(
        plain
            .backend()
            .buffer()
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset)
    );
    state.take_round(Ok(snapshot()));
    assert!(!picture(&state).contains("No data since"));
}

#[test]
fn q_and_ctrl_c_quit_but_not_while_text_is_typed() {
    let mut state = ready();
    assert_eq!(press(&mut state, "q"), TopEffect::Quit);
    assert_eq!(press(&mut state, "/q"), TopEffect::Draw);
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), TopEffect::Quit);
}

#[test]
fn no_size_is_too_small_for_any_view_or_dialog() {
    for view in '1'..='8' {
        let mut state = ready();
        press(&mut state, &view.to_string());
        for size in SIZES {
            terminal(&state, size, Palette::Coloured);
        }
        state.take_round(Err(ReadError::Away("away".to_owned())));
        terminal(&state, (20, 5), Palette::Plain);
    }
    for keys in ["?", "\n", "b", "b\n", "r", "/abc", "lkey"] {
        let mut state = ready();
        press(&mut state, keys);
        for size in SIZES {
            terminal(&state, size, Palette::Coloured);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever is pressed, in whatever terminal: a change is sent only after `y`.
    #[test]
    fn keys_in_any_order_do_no_harm(keys in "[1-9a-zA-Z/?\n\u{1b}\u{8}↓↑⇟⇱⇲→←]{0,40}", width in 0..120u16, height in 0..40u16) {
        let mut state = ready();
        for key in keys.chars() {
            let effect = press(&mut state, &key.to_string());
            prop_assert!(!matches!(effect, TopEffect::Send(_)) || matches!(key, 'y' | 'Y'));
            prop_assert!(effect != TopEffect::Quit || key == 'q');
        }
        terminal(&state, (width, height), Palette::Coloured);
    }

    /// A gateway of another version may report anything.
    #[test]
    fn any_response_can_be_drawn(text in "(?s).{0,40}", number in prop_oneof![any::<f64>(), Just(f64::MAX)], count: u64) {
        let mut state = ready();
        let mut odd = snapshot();
        odd.status.time = number;
        odd.status.started = -number;
        odd.bans.bans[0].banned_until = number;
        odd.limits[0].name.clone_from(&text);
        odd.limits[0].minute.admitted = count;
        odd.limits[0].minute.refused = count;
        let keys = odd.keys.as_mut().unwrap();
        keys.keys[0].key = Some(vec![text]);
        keys.keys[0].refused = count;
        state.take_round(Ok(odd));
        for view in ["1", "2", "3", "6", "3\n"] {
            press(&mut state, view);
            let picture = picture(&state);
            prop_assert!(!picture.contains(|char: char| char != '\n' && char.is_control()), "{:?}", picture);
        }
    }
}
