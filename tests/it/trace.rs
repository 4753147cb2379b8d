//! One specification, several executors: `tests/traces/*.trace` are tables that a person can read, played against the pure
//! functions and against the memory store.
//!
//! ```text
//! # a comment
//! limit token-bucket rate 10/s burst 10
//! at 0ms cost 5 → allow remaining 5 reset 100ms
//! at 0ms cost 10 → deny wait 500ms remaining 5
//! ```
//!
//! A `limit` line begins afresh. Times count from midnight UTC. `remaining` and `reset` may be left out.

use std::path::{Path, PathBuf};

use tollgate::limit::units::{Cost, Fingerprint, Micros, Rate, Timestamp};
use tollgate::limit::{Algorithm, Align, Decision, State, Verdict, Wait};
use tollgate::store::{Charge, Group, NumbersId, Store};

/// 2026-01-01T00:00:00Z, where windows of all ordinary lengths begin.
const MIDNIGHT: Timestamp = Timestamp(1_767_225_600_000_000);

/// Something that decides one request after the other.
trait Executor {
    fn decide(&mut self, algorithm: &Algorithm, now: Timestamp, cost: Cost) -> Decision;
}

#[derive(Default)]
struct Pure(State);

impl Executor for Pure {
    fn decide(&mut self, algorithm: &Algorithm, now: Timestamp, cost: Cost) -> Decision {
        let (state, decision) = algorithm.decide(std::mem::take(&mut self.0), now, cost);
        self.0 = state;
        decision
    }
}

struct InMemory(Store);

impl Executor for InMemory {
    fn decide(&mut self, algorithm: &Algorithm, now: Timestamp, cost: Cost) -> Decision {
        self.0.register(algorithm);
        let numbers = NumbersId::of(algorithm);
        let charge = Charge { algorithm, numbers, key: Fingerprint(7), cost, group: Group::Enforced };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.0.decide(&[charge], now)).decisions[0]
    }
}

#[test]
fn traces_hold_for_the_pure_functions() {
    play_all(|| Box::new(Pure::default()));
}

#[test]
fn traces_hold_for_the_memory_store() {
    play_all(|| Box::new(InMemory(Store::memory(100))));
}

fn play_all(executor: impl Fn() -> Box<dyn Executor>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "one trace an algorithm at least, but found {files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let steps = play(&text, &file.display().to_string(), &executor);
        assert!(steps > 0, "{} has no steps", file.display());
    }
}

/// Plays a file and says how many steps it had.
fn play(text: &str, file: &str, executor: &impl Fn() -> Box<dyn Executor>) -> usize {
    let mut limit: Option<(Algorithm, Box<dyn Executor>)> = None;
    let mut steps = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = format!("{file}:{}: {line}", index + 1);
        match words.as_slice() {
            [] => {}
            ["limit", name, parameters @ ..] => {
                limit = Some((algorithm(name, parameters, &place), executor()))
            }
            ["at", at, "cost", cost, "→", expected @ ..] => {
                let (algorithm, executor) = limit.as_mut().unwrap_or_else(|| panic!("{place}: no limit yet"));
                let cost = Cost::new(cost.parse().unwrap()).unwrap();
                let decision = executor.decide(algorithm, MIDNIGHT.plus(span(at)), cost);
                expect(&decision, expected, &place);
                steps += 1;
            }
            _ => panic!("{place}: neither `limit …` nor `at TIME cost N → …`"),
        }
    }
    steps
}

fn algorithm(name: &str, parameters: &[&str], place: &str) -> Algorithm {
    let value = |name: &str| {
        parameters.iter().position(|word| *word == name).map(|position| parameters[position + 1])
    };
    let (count, period) = value("rate").unwrap().split_once('/').unwrap();
    let rate = Rate::new(count.parse().unwrap(), span(period)).unwrap();
    let units =
        |name, default: u32| Cost::new(value(name).map_or(default, |text| text.parse().unwrap())).unwrap();
    match name {
        "token-bucket" => Algorithm::token_bucket(rate, units("burst", rate.count())),
        "gcra" => Algorithm::gcra(rate, units("burst", 1)),
        "leaky-bucket" => Algorithm::leaky_bucket(
            rate,
            units("queue", rate.count()),
            span(value("max_wait").unwrap_or("10s")),
        ),
        "fixed-window" if value("align") == Some("first-request") => {
            Algorithm::fixed_window(rate, Align::FirstRequest)
        }
        "fixed-window" => Algorithm::fixed_window(rate, Align::Clock),
        "sliding-window" => Algorithm::sliding_window(rate),
        "sliding-log" => {
            Algorithm::sliding_log(rate, value("spacing").map(span), value("count_denied") == Some("true"))
        }
        _ => panic!("{place}: no such algorithm"),
    }
}

/// `500ms`, `1s`, and as a rate's period `s`.
fn span(text: &str) -> Micros {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "day" => 86_400_000_000,
        _ => panic!("`{text}` is no span"),
    };
    Micros(unit * if number.is_empty() { 1 } else { number.parse::<u64>().unwrap() })
}

fn expect(decision: &Decision, expected: &[&str], place: &str) {
    let rest = match expected {
        ["allow", rest @ ..] => {
            assert_eq!(decision.verdict, Verdict::Allow, "{place}");
            rest
        }
        ["delay", wait, rest @ ..] => {
            assert_eq!(decision.verdict, Verdict::Delay(span(wait)), "{place}");
            rest
        }
        ["deny", "wait", wait, rest @ ..] => {
            assert_eq!(decision.verdict, Verdict::Deny(Wait::After(span(wait))), "{place}");
            rest
        }
        ["deny", "never", rest @ ..] => {
            assert_eq!(decision.verdict, Verdict::Deny(Wait::Never), "{place}");
            rest
        }
        _ => panic!("{place}: expected `allow`, `delay TIME`, `deny wait TIME` or `deny never`"),
    };
    for pair in rest.chunks(2) {
        match pair {
            ["remaining", units] => assert_eq!(decision.remaining.to_string(), *units, "{place}"),
            ["reset", after] => assert_eq!(decision.reset_after, span(after), "{place}"),
            _ => panic!("{place}: `{}` is unknown here", pair.join(" ")),
        }
    }
}
