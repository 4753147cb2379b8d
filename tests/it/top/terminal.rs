//! `tollgate top` in a pseudo-terminal, beside a gateway that runs.

use rustix::process::Signal;

use crate::harness::api::good;
use crate::harness::{Gateway, TerminalProgram, free_address, get_with};

const ESCAPE: &str = "\u{1b}";

/// A gateway whose clients have two requests an hour each.
fn config(admin: &str) -> String {
    format!(
        "[upstreams]\ndemo = \"builtin:echo\"\n[admin]\n{admin}\n\
         [limits.per-key]\nalgorithm = \"fixed-window\"\nkey = \"header:x-key\"\nreveal = true\nrate = \"2/h\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"demo\"\nlimits = [\"per-key\"]\n"
    )
}

fn start() -> Gateway {
    let gateway = Gateway::start(&config("listen = \"127.0.0.1:0\""));
    send(&gateway, "alice", &[200, 200, 429]);
    send(&gateway, "bob", &[200, 200, 429, 429, 429]);
    gateway
}

fn send(gateway: &Gateway, key: &str, statuses: &[u16]) {
    for status in statuses {
        get_with(gateway.addr(), "/", &format!("x-key: {key}\r\n")).expect(*status);
    }
}

fn top(gateway: &Gateway) -> TerminalProgram {
    let url = format!("http://{}", gateway.admin_addr());
    let terminal = TerminalProgram::start(&["top", "--url", &url], &[]);
    terminal.wait_for("Keys of per-key");
    terminal
}

fn verdict(gateway: &Gateway, key: &str) -> String {
    let state = good(gateway, &format!("GET limits/per-key/keys/{key}"), "");
    state["verdict"].as_str().expect("a verdict").to_owned()
}

#[test]
fn it_shows_what_the_gateway_does() {
    let gateway = start();
    let mut terminal = top(&gateway);
    for text in ["serving", "1 Overview  2 Limits", "per-key", "bob", "alice", "counters 2", "backends 2xx"] {
        terminal.wait_for(text);
    }
    terminal.press("2");
    terminal.wait_for("2/h for each header:x-key");
    // Two of alice's requests and two of bob's passed; one and three were refused.
    terminal.wait_until("4 refused, 50 %, of 2 keys, 4 passed", |screen| {
        let row = screen.lines().find(|line| line.starts_with("per-key"));
        let words: Vec<_> = row.unwrap_or_default().split_whitespace().collect();
        words.starts_with(&["per-key", "enforce", "4", "50", "%", "2", "4"])
    });
    for (key, text) in [
        ("4", "per-key: over 2/h"),
        ("5", "built in"),
        ("6", "No key is banned."),
        ("7", "/*"),
        ("?", "ban the key"),
    ] {
        terminal.press(key);
        terminal.wait_for(text);
    }
    terminal.press("xq");
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn keys_are_looked_at_filtered_and_sorted() {
    let gateway = start();
    let terminal = top(&gateway);
    terminal.press("3");
    let first = |name: &'static str| {
        move |screen: &str| {
            let row =
                screen.lines().skip_while(|line| !line.starts_with("Key") || line.starts_with("Keys")).nth(1);
            row.is_some_and(|row| row.starts_with(name))
        }
    };
    terminal.wait_until("bob first: the most refusals", first("bob"));
    terminal.press("s");
    terminal.wait_for("Key▼");
    terminal.wait_until("alice first by name", first("alice"));
    terminal.press("S");
    terminal.wait_for("Key▲");
    terminal.wait_until("bob first by name, reversed", first("bob"));
    terminal.press("/ALI");
    terminal.wait_for("(1 of 2)");
    terminal.press("\r\r");
    terminal.wait_for("alice under per-key");
    for text in ["Next request: refused", "2 of 2", "100 %", "3 requests lately: 2 admitted, 1 refused."] {
        terminal.wait_for(text);
    }
    terminal.press(ESCAPE);
    terminal.wait_without("alice under per-key");
    // A key that sent nothing is known by its value.
    terminal.press("lcarol\r");
    terminal.wait_for("carol under per-key");
    terminal.wait_for("Next request: admitted");
}

#[test]
fn a_key_is_banned_unbanned_and_reset_after_a_confirmation() {
    let gateway = start();
    let mut terminal = top(&gateway);
    terminal.press("3/bob\rb");
    terminal.wait_for("Ban bob for: 10min");
    terminal.press("\r");
    terminal.wait_for("All requests of bob are refused for 10min on every route with per-key.");
    terminal.press("n");
    terminal.wait_for("Nothing is changed");
    assert_eq!(verdict(&gateway, "bob"), "refused");
    terminal.press("b\ry");
    terminal.wait_for("Banned: bob until");
    assert_eq!(verdict(&gateway, "bob"), "banned");
    terminal.wait_for("banned until");
    terminal.press("6");
    terminal.wait_for("by hand");
    terminal.press("uy");
    terminal.wait_for("bob is no longer banned");
    terminal.wait_for("No key is banned.");
    assert_eq!(verdict(&gateway, "bob"), "refused");
    terminal.press("3r");
    terminal.wait_for("bob gets its full allowance of per-key back.");
    terminal.press("y");
    terminal.wait_for("Reset: bob has its full allowance of per-key again");
    send(&gateway, "bob", &[200, 200, 429]);
    // The gateway refuses a duration that is none, and says so.
    terminal.press("b!\ry");
    terminal.wait_for("Nothing has changed for bob: the gateway answers 400");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let gateway = start();
    let mut terminal = top(&gateway);
    terminal.wait_for("q quit");
    for (columns, rows) in [(20, 5), (4, 2), (60, 12)] {
        terminal.resize(columns, rows);
    }
    terminal.press("3");
    terminal.wait_until("a narrow table", |screen| {
        screen.contains("bob") && screen.contains("counts are exact") && screen.lines().count() <= 12
    });
    terminal.resize(120, 40);
    terminal.wait_until("a high table", |screen| screen.lines().count() == 40 && screen.contains("bob"));
    terminal.press("\u{3}");
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn it_goes_on_trying_while_the_gateway_is_away() {
    let admin = free_address();
    let config = config(&format!("listen = \"{admin}\""));
    let gateway = Gateway::start(&config);
    send(&gateway, "alice", &[200, 200, 429]);
    let mut terminal = top(&gateway);
    terminal.wait_for("alice");
    drop(gateway);
    terminal.wait_for("No data since");
    terminal.wait_for("The numbers are of");
    // Keys have their effect meanwhile.
    terminal.press("3");
    terminal.wait_for("In the last");
    terminal.press("by\r");
    let gateway = Gateway::start(&config);
    terminal.wait_without("No data since");
    terminal.press(ESCAPE);
    send(&gateway, "dave", &[200]);
    terminal.wait_for("dave");
    terminal.wait_without("alice");
    terminal.press(&format!("{ESCAPE}q"));
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn a_signal_ends_it_and_restores_the_terminal() {
    let gateway = start();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut terminal = top(&gateway);
        terminal.signal(signal);
        assert_eq!(terminal.wait_for_exit(), Some(0), "{signal:?}");
    }
    let mut terminal = top(&gateway);
    terminal.hang_up();
    assert_eq!(terminal.wait_for_exit(), Some(0));
}

#[test]
fn colours_follow_the_rule_of_all_output() {
    let gateway = start();
    let url = format!("http://{}", gateway.admin_addr());
    for (arguments, environment, coloured) in [
        (&[][..], &[][..], true),
        (&[], &[("NO_COLOR", "1")], false),
        (&["--color=always"], &[("NO_COLOR", "1")], true),
    ] {
        let terminal = TerminalProgram::start(&[&["top", "--url", &url], arguments].concat(), environment);
        // "refused" is red where there are colours.
        terminal.wait_for("bob");
        let red = b"38;5;1;";
        let found = terminal.bytes().windows(red.len()).any(|part| part == red);
        assert_eq!(found, coloured, "{arguments:?} {environment:?}");
    }
}
