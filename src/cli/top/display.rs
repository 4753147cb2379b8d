//! Numbers, times and keys as text.

use crate::replay::report::number::Grouped;
use crate::telemetry::terminal::safe_text;

/// Maximum characters of one text of the gateway.
const MAX_TEXT: usize = 300;
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3_600.0;
const DAY: f64 = 86_400.0;

/// Text of the gateway or its clients, without characters that control a terminal.
pub(super) fn plain(text: &str) -> String {
    safe_text(text, MAX_TEXT)
}

/// `12,480`.
pub(super) fn count(number: u64) -> String {
    Grouped(number).to_string()
}

/// `1 key`, `12 keys`.
pub(super) fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A rate or a time: one decimal below 10, else whole.
pub(super) fn rate(number: f64) -> String {
    let whole = whole(number.round());
    match number {
        ..=0.0 => "0".to_owned(),
        // As the dashboard's page rounds: a half goes up.
        ..9.95 => format!("{:.1}", (number * 10.0).round() / 10.0).trim_end_matches(".0").to_owned(),
        _ => count(whole),
    }
}

/// As [`rate`]; `–` if there is no value.
pub(super) fn maybe(number: Option<f64>) -> String {
    number.map_or_else(|| "–".to_owned(), rate)
}

/// `37 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// The whole part; a negative number is 0.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
pub(super) fn whole(number: f64) -> u64 {
    number as u64
}

/// A duration in seconds: `5 s`, `3 min`, `2 h`, `8 d`.
pub(super) fn span(seconds: f64) -> String {
    let (size, unit) = match seconds {
        DAY.. => (DAY, "d"),
        HOUR.. => (HOUR, "h"),
        MINUTE.. => (MINUTE, "min"),
        _ => (1.0, "s"),
    };
    format!("{} {unit}", whole(seconds / size))
}

/// A wait in milliseconds. `None`: no wait helps.
pub(super) fn wait(milliseconds: Option<u64>) -> String {
    match milliseconds {
        None => "never".to_owned(),
        Some(0) => "now".to_owned(),
        Some(short @ ..1_000) => format!("{short} ms"),
        Some(medium @ ..60_000) => format!("{:.1} s", medium as f64 / 1_000.0),
        Some(long) => span(long as f64 / 1_000.0),
    }
}

/// A latency in milliseconds: `0.4 ms`, `84 ms`, `5.0 s`.
pub(super) fn latency(milliseconds: f64) -> String {
    match milliseconds {
        ..1_000.0 => format!("{} ms", rate(milliseconds)),
        _ => wait(Some(whole(milliseconds.round()))),
    }
}

/// The time of day of a Unix time in seconds, UTC.
pub(super) fn clock(time: f64) -> String {
    let second = whole(time) % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

/// A time as seen at `now`: `12:03:04`, and the number of days if it is more than half a day away.
pub(super) fn moment(time: f64, now: f64) -> String {
    let away = time - now;
    if away.abs() < DAY / 2.0 {
        return clock(time);
    }
    let span = span(away.abs());
    if away > 0.0 { format!("{} (in {span})", clock(time)) } else { format!("{} ({span} ago)", clock(time)) }
}

/// The values of a key; the id if only the id is known.
pub(super) fn key(values: Option<&[String]>, id: &str) -> String {
    match values {
        None => plain(id),
        Some([]) => "everyone".to_owned(),
        Some(values) => plain(&values.join(" · ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(count(number), text);
        }
        let rates = [
            (-1.0, "0"),
            (0.0, "0"),
            (0.25, "0.3"),
            (0.44, "0.4"),
            (3.0, "3"),
            (9.96, "10"),
            (1234.4, "1,234"),
        ];
        for (number, text) in rates {
            assert_eq!(rate(number), text);
        }
        assert_eq!(rate(f64::NAN), "0");
        assert_eq!(rate(f64::INFINITY), count(u64::MAX));
        assert_eq!((share(1, 3), share(0, 0)), ("33 %".to_owned(), "0 %".to_owned()));
    }

    #[test]
    fn times_name_their_unit() {
        for (seconds, text) in
            [(-1.0, "0 s"), (59.9, "59 s"), (60.0, "1 min"), (7_300.0, "2 h"), (9e5, "10 d")]
        {
            assert_eq!(span(seconds), text);
        }
        let waits = [(None, "never"), (Some(0), "now"), (Some(84), "84 ms"), (Some(4_984), "5.0 s")];
        for (milliseconds, text) in waits {
            assert_eq!(wait(milliseconds), text);
        }
        let latencies = [(0.44, "0.4 ms"), (84.4, "84 ms"), (1_234.5, "1.2 s"), (61_000.0, "1 min")];
        for (milliseconds, text) in latencies {
            assert_eq!(latency(milliseconds), text);
        }
        assert_eq!(clock(1_763_737_200.9), "15:00:00");
        assert_eq!(moment(100.0 + DAY, 100.0), "00:01:40 (in 1 d)");
        assert_eq!(moment(100.0, 99.0), "00:01:40");
    }

    #[test]
    fn no_character_of_a_key_controls_the_terminal() {
        let values = ["a\u{1b}[2Jb".to_owned(), "\u{202e}c\r\n".to_owned()];
        let text = key(Some(&values), "id:1");
        assert_eq!(text, "a\\u{1b}[2Jb · \\u{202e}c\\u{d}\\u{a}");
        assert_eq!(key(Some(&[]), "id:1"), "everyone");
        assert_eq!(key(None, "id:1"), "id:1");
    }
}
