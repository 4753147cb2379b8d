//! The text of a proposal is sound: the gateway accepts it, and names of keys never leave the comments.

use tollgate::config;
use tollgate::limit::units::Timestamp;
use tollgate::suggest::candidate::SuggestedAlgorithm;
use tollgate::suggest::{Peaks, Proposal, SuggestOptions, Suggestion};

/// Names that try to leave a comment.
const HOSTILE: [&str; 6] = [
    "\n[limits.evil]\nrate = \"1/day\"",
    "\r[limits.evil]",
    "\"]\n[limits.evil]\n#",
    "\u{2028}[limits.evil]\u{85}",
    "\u{0}\u{1b}[31m\u{7f}",
    "'''\"\"\"\\",
];

/// A proposal from a day of 300 ordinary keys and `outliers` keys with many more requests. All keys have this name.
fn proposal(algorithm: SuggestedAlgorithm, outliers: u64, name: &str, has_second_pass: bool) -> Proposal {
    let minutes = (0..1_440_u64).map(|minute| (minute, Timestamp((1_700_006_400 + minute * 60) * 1_000_000)));
    let requests: Vec<_> = minutes
        .flat_map(|(minute, time)| {
            let is_due = move |key: &u64| *key >= 300 || (minute + key) % 100 < 3;
            (0..300 + outliers).filter(is_due).map(move |key| (key, time))
        })
        .collect();
    let mut peaks = Peaks::new(1);
    for (key, time) in &requests {
        peaks.add(0, *key, *time, 1, || name.to_owned());
    }
    let suggestion = Suggestion::new(peaks, SuggestOptions { algorithm, ..SuggestOptions::default() });
    if !has_second_pass {
        return suggestion.proposals().remove(0);
    }
    let mut verification = suggestion.verification();
    for (key, time) in &requests {
        verification.add(0, *key, *time, 1);
    }
    verification.finish().remove(0)
}

/// The names of the limits in a text, which are checked as a part of a file with a route that uses all of them.
fn checked(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().expect("the text is TOML");
    assert_eq!(table.keys().collect::<Vec<_>>(), ["limits"], "{text}");
    let names: Vec<String> =
        table["limits"].as_table().expect("limits are a table").keys().cloned().collect();
    let file = format!(
        "[upstreams.any]\nservers = [\"builtin:echo\"]\n\
         [[routes]]\npath = \"/*\"\nupstream = \"any\"\nlimits = {names:?}\n{text}"
    );
    if let Err(report) = config::parse(file.as_bytes(), "gateway.toml", &|_| None) {
        panic!("{report}\n{file}");
    }
    names
}

#[test]
fn the_gateway_accepts_the_limits_of_every_algorithm() {
    for algorithm in SuggestedAlgorithm::ALL {
        for outliers in [0, 12] {
            let proposal = proposal(algorithm, outliers, "192.0.2.1", true);
            let names = checked(&proposal.toml("per-ip", &["ip"]));
            assert!(names.iter().all(|name| name.starts_with("per-ip")) && !names.is_empty(), "{names:?}");
            assert_eq!(checked(&proposal.toml("a_1", &["ip", "header:x-user"])).first().unwrap(), "a_1");
        }
    }
}

#[test]
fn a_hostile_name_never_leaves_the_comments() {
    for name in HOSTILE {
        for has_second_pass in [true, false] {
            let proposal = proposal(SuggestedAlgorithm::TokenBucket, 3, name, has_second_pass);
            assert_eq!(proposal.outliers.len(), 3);
            let text = proposal.toml("per-ip", &["ip"]);
            assert_eq!(checked(&text), ["per-ip"]);
            assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
        }
    }
}

#[test]
fn the_comments_say_what_the_limit_does() {
    let text = proposal(SuggestedAlgorithm::TokenBucket, 12, "192.0.2.1", true).toml("per-ip", &["ip"]);
    let has = |line: &str| assert!(text.lines().any(|own| own == line), "{line}: {text}");
    has("# 12 outliers, which the limit need not admit:");
    has("#   192.0.2.1: 1,440 requests, up to 1,440 in 1 day");
    has("#   and 2 more");
    has("[limits.per-ip]");
    assert!(text.contains("requests of outliers, and none of 300 ordinary clients."), "{text}");
    assert!(!text.contains("\n\n") && text.ends_with("mode = \"shadow\"\n"), "{text}");

    let text = proposal(SuggestedAlgorithm::TokenBucket, 12, "192.0.2.1", false).toml("per-ip", &["ip"]);
    assert!(!text.contains("Tried on") && text.contains("was not tried on these requests"), "{text}");
}
