//! The result of a replay, or the suggested limits, as one HTML page that needs no other file and makes no request;
//! and the data of that page as JSON.

use serde_json::{Value, json};

use super::{LogSummary, json};
use crate::limit::units::Timestamp;
use crate::limit::wall_clock;
use crate::net::crypto::digest::{SHA256, digest};
use crate::plan::Limit;
use crate::replay::run::Replay;
use crate::replay::statistics::LimitStatistics;
use crate::replay::statistics::timeline::{Calendar, StepCount, Timeline};
use crate::telemetry::access_log::rfc3339;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// One script, so that the policy of the page names one hash.
const SCRIPT: &str = concat!(include_str!("charts.js"), "\n", include_str!("page.js"));

/// The page. `answer` is the sentence on top, which is also shown without JavaScript. Any part of `data` may be missing or
/// empty, and its section is then left out:
/// - `kind`: `replay` or `suggest`.
/// - `report`: the result of a replay, as `replay --json` prints it.
/// - `timeline`: `begin` (RFC 3339), `step_seconds`, and for each step `requests` and `refused`, which is part of it.
/// - `limits`: for each limit `name`, `timeline` and `peaks`, whose `windows` have `seconds`, `keys`, `limit` (what the
///   limit admits) and `bins` (`from`, `to`, which is exclusive, and `keys`).
/// - `calendar`: for each `day` 24 numbers of `requests` and `refused`.
/// - `suggestions`: for each proposed limit `name`, `route`, `key`, `algorithm`, `rates`, `burst`, `requests`, `keys`,
///   `ordinary`, `toml`, `notes`, `windows` (as above, with `ordinary_peak` and `outlier_peak`) and `outliers` (`key`,
///   `requests`, and `peaks` by the seconds of the window).
/// - `span` (`from`, `to`) and `log` (`lines`, `files`, `problems`, `notes`, `interrupted`), where there is no `report`.
///
/// All text is untrusted, since it has keys and paths that clients sent.
pub fn page(data: &Value, answer: &str) -> String {
    let title = match data.get("kind").and_then(Value::as_str) {
        Some("suggest") => "tollgate suggest",
        _ => "tollgate replay",
    };
    fill(&[
        ("title", title),
        ("style", STYLE),
        ("style-hash", &source_hash(STYLE)),
        ("script", SCRIPT),
        ("script-hash", &source_hash(SCRIPT)),
        ("answer", &escape_text(answer)),
        ("data", &escape_json(&data.to_string())),
    ])
}

/// The template with its `{{names}}` replaced. The values are not searched for names.
fn fill(values: &[(&str, &str)]) -> String {
    let mut parts = TEMPLATE.split("{{");
    let mut page = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or_default();
        page.extend(values.iter().filter(|(known, _)| *known == name).map(|(_, value)| *value));
        page.push_str(rest);
    }
    page
}

/// Text between tags.
fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// JSON inside a `script` element. These characters occur only inside of strings.
fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The hash of an inline script or style, as a content security policy names it.
fn source_hash(text: &str) -> String {
    format!("sha256-{}", base64(digest(&SHA256, text.as_bytes()).as_ref()))
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| usize::from(chunk.get(at).copied().unwrap_or(0));
        let group = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let digit = ALPHABET.get((group >> shift) & 63).filter(|_| at <= chunk.len());
            text.push(digit.map_or('=', |digit| char::from(*digit)));
        }
    }
    text
}

/// Columns of a chart.
const COLUMNS: usize = 720;

/// The data of the page. `peaks` are those of the keys of each limit, in file order.
pub fn page_data(replay: &Replay<'_>, log: &LogSummary, peaks: &[Value]) -> Value {
    let sums = replay.statistics();
    let all = sums.plan.limits.iter().zip(&sums.limits).enumerate();
    let limit = |(index, (limit, counts)): (usize, (&Limit, &LimitStatistics))| json!({ "name": &*limit.name, "timeline": timeline(&counts.timeline), "peaks": peaks.get(index) });
    json!({
        "kind": "replay",
        "report": json::report(replay, log),
        "timeline": timeline(&sums.timeline),
        "limits": all.map(limit).collect::<Vec<_>>(),
        "calendar": calendar(&sums.calendar),
        "log": log_data(log),
    })
}

/// What is known of the log itself.
pub fn log_data(log: &LogSummary) -> Value {
    json!({
        "files": log.files,
        "lines": log.lines,
        "problems": log.problems,
        "notes": log.notes,
        "interrupted": log.interrupted,
    })
}

fn timeline(timeline: &Timeline) -> Value {
    let (each, columns) = timeline.columns(COLUMNS);
    let (requests, refused) = apart(&columns);
    json!({
        "begin": String::from_utf8_lossy(&rfc3339(wall_clock::system().wall_time(timeline.begin()))),
        "step_seconds": timeline.step().0 / 1_000_000 * each as u64,
        "requests": requests,
        "refused": refused,
    })
}

fn calendar(calendar: &Calendar) -> Vec<Value> {
    let day = |(day, hours): (u64, &[StepCount; 24])| {
        let (requests, refused) = apart(hours);
        json!({ "day": date(day), "requests": requests, "refused": refused })
    };
    calendar.days().map(day).collect()
}

fn apart(counts: &[StepCount]) -> (Vec<u64>, Vec<u64>) {
    counts.iter().map(|count| (count.requests, count.refused)).unzip()
}

/// The date of a day since 1970.
fn date(day: u64) -> String {
    let time = Timestamp(day.saturating_mul(86_400 * 1_000_000));
    String::from_utf8_lossy(&rfc3339(wall_clock::system().wall_time(time))).chars().take(10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_data_ends_no_element() {
        let hostile = "</script><img src=x onerror=alert(1)>&\u{2028}\u{2029}{{script}}";
        let page = page(&json!({ "kind": "replay", "report": { "notes": [hostile] } }), hostile);
        let (_, rest) = page.split_once("application/json\">").unwrap();
        let (data, rest) = rest.split_once("</script>").unwrap();
        assert!(!data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{data}");
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["report"]["notes"][0], hostile);
        assert_eq!(page.matches("<img").count(), 0);
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(rest.matches(SCRIPT).count(), 1);
        assert!(page.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;"));
    }

    #[test]
    fn each_name_of_the_template_has_a_value() {
        let page = page(&json!({ "kind": "suggest" }), "No limit is suggested.");
        assert_eq!(page.matches("<title>tollgate suggest</title>").count(), 1);
        assert_eq!(page.matches("No limit is suggested.").count(), 1);
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        assert!(page.contains(&format!("script-src '{}'", source_hash(SCRIPT))));
        assert!(page.contains(&format!("style-src '{}'", source_hash(STYLE))));
    }

    #[test]
    fn no_file_of_the_page_ends_its_element() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
        assert!(!STYLE.contains("</style"));
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|text| base64(text.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
        let empty = source_hash("");
        assert_eq!(empty, "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }
}
