//! The reasons of a proposal, as comments for the config file.

use super::outliers::{CLEAR_RATIO, MIN_PEAK, MIN_RATIO};
use super::proposal::Proposal;
use super::report::{OutlierReport, RefusalCounts, shown};
use super::windows::WINDOWS;

/// The number of outliers and of gaps that are listed.
const MAX_LISTED: usize = 10;

/// The comments, one a line, without `#`. `key` has the parts of the key.
pub(super) fn comments(proposal: &Proposal, key: &[&str]) -> Vec<String> {
    let words = Words {
        key: if matches!(key, ["ip" | "consumer"]) { "client" } else { "key" },
        unit: if proposal.has_costs { "unit" } else { "request" },
    };
    let mut lines = vec![format!(
        "From {} of {} in {}.",
        counted(proposal.requests, "request"),
        counted(proposal.keys as u64, words.key),
        span(proposal.span)
    )];
    lines.extend(peaks(proposal, words));
    lines.extend(gaps(proposal, words));
    lines.extend(outliers(proposal, words));
    lines.extend(effect(proposal, words));
    lines.extend(proposal.notes.iter().map(|note| format!("Note: {note}")));
    lines
}

/// What is counted.
#[derive(Clone, Copy)]
struct Words {
    /// What has a counter of its own: `client`.
    key: &'static str,
    /// What is added to it: `request`.
    unit: &'static str,
}

/// A table of the peaks in each window.
fn peaks(proposal: &Proposal, words: Words) -> Vec<String> {
    if proposal.windows.is_empty() || proposal.rates.is_empty() {
        return Vec::new();
    }
    let has_kept = proposal.windows.iter().any(|window| window.kept_peak < window.ordinary_peak);
    let has_outliers = !proposal.outliers.is_empty();
    let kept = format!("{} % of these", (proposal.keep * 1e6).round() / 1e4);
    let row = |cells: [String; 5]| {
        let [window, ordinary, kept, outlier, limit] = cells;
        let kept = if has_kept { format!(" {kept:>16}") } else { String::new() };
        let outlier = if has_outliers { format!(" {outlier:>12}") } else { String::new() };
        format!("  {window:<8} {ordinary:>12}{kept}{outlier} {limit:>12}").trim_end().to_owned()
    };
    let mut lines =
        vec![format!("The most {}s of one {} in any window of each length:", words.unit, words.key)];
    lines.push(row(["window", "ordinary", &kept, "outlier", "proposed"].map(str::to_owned)));
    for (at, window) in proposal.windows.iter().enumerate() {
        let outlier = proposal.outliers.iter().filter_map(|outlier| outlier.peaks.get(at)).max();
        lines.push(row([
            described(window.window),
            grouped(window.ordinary_peak.into()),
            grouped(window.kept_peak.into()),
            outlier.map_or_else(String::new, |peak| grouped((*peak).into())),
            window.limit.map_or_else(String::new, |limit| grouped(limit.into())),
        ]));
    }
    lines
}

fn gaps(proposal: &Proposal, words: Words) -> Vec<String> {
    let gaps = proposal.gaps.iter().take(MAX_LISTED).map(|gap| {
        format!(
            "Gap in {}: from {} to {} {}s; {} above it.",
            described(gap.window),
            grouped(gap.below.into()),
            grouped(gap.above.into()),
            words.unit,
            counted(gap.keys as u64, words.key)
        )
    });
    let mut lines: Vec<_> = gaps.collect();
    if !lines.is_empty() {
        lines.push(format!(
            "A gap is a factor of at least {CLEAR_RATIO}, or of {MIN_RATIO} where chance does not explain it, with at least \
             {MIN_PEAK} {}s above it.",
            words.unit
        ));
    }
    lines
}

/// The outliers, the targets first.
fn outliers(proposal: &Proposal, words: Words) -> Vec<String> {
    if proposal.outliers.is_empty() {
        return Vec::new();
    }
    let line = |outlier: &OutlierReport| {
        format!(
            "  {}: {}, up to {} in {}{}",
            shown(&outlier.name),
            counted(outlier.units.into(), words.unit),
            grouped(outlier.peak.into()),
            described(outlier.window),
            if outlier.is_denied { "; all answered 401 or 403" } else { "" }
        )
    };
    let mut lines = vec![format!(
        "{}, which the limit need not admit:",
        counted(proposal.outliers.len() as u64, "outlier")
    )];
    lines.extend(proposal.outliers.iter().take(MAX_LISTED).map(line));
    let more = proposal.outliers.len().saturating_sub(MAX_LISTED);
    if more > 0 {
        lines.push(format!("  and {} more", grouped(more as u64)));
    }
    lines
}

/// What the limit does to the requests.
fn effect(proposal: &Proposal, words: Words) -> Option<String> {
    if proposal.rates.is_empty() {
        return None;
    }
    let Some(counts) = proposal.verification else {
        return Some(
            "The limit was not tried on these requests: that needs a second pass over them.".to_owned(),
        );
    };
    let RefusalCounts { ordinary_requests, ordinary_keys, outlier_requests, outlier_requests_seen, .. } =
        counts;
    let all = proposal.keys.saturating_sub(proposal.outliers.len()) as u64;
    let ordinary = match ordinary_keys {
        0 => format!("none of {}", counted(all, &format!("ordinary {}", words.key))),
        some => format!(
            "{} of {some} of {}",
            counted(ordinary_requests, "request"),
            counted(all, &format!("ordinary {}", words.key))
        ),
    };
    Some(match outlier_requests_seen {
        0 => format!("Tried on these requests, the limit refuses {ordinary}."),
        seen => format!(
            "Tried on these requests, the limit refuses {} of the {} of outliers, and {ordinary}.",
            grouped(outlier_requests),
            counted(seen, "request")
        ),
    })
}

/// A window by the period of its rate: `10 min` for `10min`.
fn described(period: &str) -> String {
    let window = WINDOWS.iter().find(|window| window.name == period);
    window.map_or_else(|| period.to_owned(), |window| window.described())
}

fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A time in its largest fitting unit.
fn span(seconds: f64) -> String {
    match seconds {
        long if long >= 86_400.0 => format!("{:.1} days", long / 86_400.0),
        hours if hours >= 3_600.0 => format!("{:.1} h", hours / 3_600.0),
        minutes if minutes >= 60.0 => format!("{:.1} min", minutes / 60.0),
        short => format!("{short:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_groups_of_three_digits() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!((described("10min"), described("s")), ("10 min".to_owned(), "1 s".to_owned()));
    }
}
