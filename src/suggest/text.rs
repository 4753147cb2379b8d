//! A proposal as a part of the config file: a limit in shadow mode, with its reasons as comments.

use std::fmt::Write as _;

use super::comments::comments;
use super::proposal::{Proposal, ProposedRate};

impl Proposal {
    /// The `[limits.NAME]` tables, with comments. `name` is 1 to 60 letters, digits, `-`, `_` and `.`; `key` has the parts
    /// of the key as the config file writes them (`ip`, `header:NAME`).
    ///
    /// GCRA and leaky buckets have one `burst` or `queue` for all rates of a limit, so that each rate is a limit of its own:
    /// `NAME`, `NAME-2`, …
    pub fn toml(&self, name: &str, key: &[&str]) -> String {
        let comments: String = comments(self, key).iter().map(|line| format!("# {line}\n")).collect();
        let is_split = matches!(self.algorithm, "gcra" | "leaky-bucket");
        let tables: Vec<&[ProposedRate]> = match is_split {
            true => self.rates.chunks(1).collect(),
            false => Some(self.rates.as_slice()).filter(|rates| !rates.is_empty()).into_iter().collect(),
        };
        let tables = (1..).zip(tables).map(|(number, rates)| match number {
            1 => self.table(name, key, rates),
            _ => self.table(&format!("{name}-{number}"), key, rates),
        });
        comments + &tables.collect::<Vec<_>>().join("\n") + &self.without_crowd_text(name, key)
    }

    /// The proposal without a crowd as comments, to be used in place of the other one.
    fn without_crowd_text(&self, name: &str, key: &[&str]) -> String {
        let Some(other) = self.without_crowd.as_ref().filter(|other| !other.rates.is_empty()) else {
            return String::new();
        };
        let count = other.outliers.len();
        let mut text = format!(
            "#\n# Without these {count} keys. If they are no ordinary clients, use in place of the above:\n"
        );
        for line in other.toml(name, key).lines() {
            // Writing to a String cannot fail.
            let _ = match line.strip_prefix('#') {
                Some(comment) => writeln!(text, "#  {comment}"),
                None => writeln!(text, "# {line}"),
            };
        }
        text
    }

    fn table(&self, name: &str, key: &[&str], rates: &[ProposedRate]) -> String {
        let mut text = format!("[limits.{}]\nalgorithm = \"{}\"\n", table_key(name), self.algorithm);
        let key = list(&key.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        let rate = list(&rates.iter().map(|rate| rate.rate.clone()).collect::<Vec<_>>());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "key = {key}\nrate = {rate}");
        if let [ProposedRate { count, period, .. }] = rates {
            match self.algorithm {
                "gcra" => drop(writeln!(text, "burst = {count}")),
                "leaky-bucket" => {
                    let max_wait =
                        if period.starts_with(|first: char| first.is_ascii_digit()) { "" } else { "1" };
                    let _ = writeln!(text, "queue = {count}\nmax_wait = \"{max_wait}{period}\"");
                }
                _ => {}
            }
        }
        text.push_str("mode = \"shadow\"\n");
        text
    }
}

/// A bare key of TOML, where the name is one.
fn table_key(name: &str) -> String {
    let is_bare = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

/// One value as text, several as a list.
fn list(values: &[String]) -> String {
    match values {
        [one] => quoted(one),
        several => format!("[{}]", several.iter().map(|value| quoted(value)).collect::<Vec<_>>().join(", ")),
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            control if control.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(control))),
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::units::Timestamp;
    use crate::suggest::candidate::SuggestedAlgorithm;
    use crate::suggest::{Peaks, SuggestOptions, Suggestion};

    /// A proposal from 120 keys with 20 requests and `outliers` keys with more.
    fn proposal(algorithm: SuggestedAlgorithm, outliers: u64, name: &str) -> Proposal {
        let mut peaks = Peaks::new(1);
        for at in 0..2_000_u64 {
            for key in 0..120 + outliers {
                let is_due = key >= 120 || at % 100 == key % 100;
                (0..if is_due { 1 } else { 0 }).for_each(|_| {
                    peaks
                        .add(0, key, Timestamp((1_700_000_000 + at * 30) * 1_000_000), 1, || name.to_owned());
                });
            }
        }
        let suggestion = Suggestion::new(peaks, SuggestOptions { algorithm, ..SuggestOptions::default() });
        suggestion.proposals().remove(0)
    }

    #[test]
    fn the_text_has_the_limit_and_its_reasons() {
        let text = proposal(SuggestedAlgorithm::TokenBucket, 12, "192.0.2.1").toml("per-client", &["ip"]);
        for line in
            ["[limits.per-client]", "algorithm = \"token-bucket\"", "key = \"ip\"", "mode = \"shadow\""]
        {
            assert!(text.lines().any(|own| own == line), "{line}: {text}");
        }
        assert!(
            text.contains("and 2 more") && text.contains("second pass") && text.contains("whole seconds"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() < 1_000));
    }

    #[test]
    fn each_algorithm_is_written_with_its_parameters() {
        for algorithm in SuggestedAlgorithm::ALL {
            let mut proposal = proposal(algorithm, 0, "");
            proposal.rates.retain(|rate| !rate.rate.is_empty());
            let table: toml::Table = proposal.toml("a.b", &["ip", "header:x"]).parse().expect("TOML");
            let limits = table["limits"].as_table().expect("limits");
            let is_split = matches!(algorithm, SuggestedAlgorithm::Gcra | SuggestedAlgorithm::LeakyBucket);
            assert_eq!(limits.len(), if is_split { proposal.rates.len() } else { 1 });
            assert_eq!(limits["a.b"]["algorithm"].as_str(), Some(algorithm.as_str()));
            assert_eq!(limits["a.b"].get("burst").is_some(), algorithm == SuggestedAlgorithm::Gcra);
            assert_eq!(limits["a.b"].get("max_wait").is_some(), algorithm == SuggestedAlgorithm::LeakyBucket);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn any_name_of_a_key_leaves_the_text_sound(name in any::<String>()) {
            let text = proposal(SuggestedAlgorithm::TokenBucket, 2, &name).toml("x", &["ip", &name]);
            let table: toml::Table = text.parse().expect("TOML");
            prop_assert_eq!(table.keys().collect::<Vec<_>>(), ["limits"]);
        }
    }
}
