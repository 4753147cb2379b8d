//! Tables in Markdown.

use crate::fleet::Outcome;

/// A table of the documentation.
pub(crate) struct Table {
    /// Its name in the comments around it.
    pub(crate) name: &'static str,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(name: &'static str, heads: &[&str]) -> Self {
        Self { name, heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        assert_eq!(row.len(), self.heads.len(), "{row:?}");
        eprintln!("{}: {}", self.name, row.join(", "));
        self.rows.push(row);
    }

    /// Numbers stand on the right.
    pub(crate) fn markdown(&self) -> String {
        let is_number = |column: usize| {
            self.rows.iter().all(|row| !row[column].contains(|char: char| char.is_alphabetic()))
        };
        let rules = (0..self.heads.len()).map(|column| if is_number(column) { "---:" } else { "---" });
        let rules = format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        line(&self.heads) + &rules + &self.rows.iter().map(line).collect::<String>()
    }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 99.95 => "100 %".to_owned(),
        percent if percent > 0.0 && percent < 0.05 => "< 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// A number with two digits that matter.
pub(crate) fn short(number: f64) -> String {
    match number {
        10.0.. => format!("{number:.0}"),
        1.0.. => format!("{number:.1}"),
        0.1.. => format!("{number:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{number:.3}"),
    }
}

impl Outcome {
    fn calls(&self) -> f64 {
        let calls = &self.measures.calls;
        (calls.exact + calls.takes + calls.returns) as f64
    }

    pub(crate) fn calls_per_request(&self) -> f64 {
        self.calls() / self.measures.requests.max(1) as f64
    }

    /// The share of the requests that waited for the store.
    pub(crate) fn waited(&self) -> f64 {
        self.measures.waited as f64 / self.measures.requests.max(1) as f64
    }

    /// The time in ms that 99 % of the requests waited at most.
    pub(crate) fn longest_wait(&self) -> f64 {
        self.measures.waits.quantile(0.99)
    }

    /// The units that gateways hold on average, as a share of those admitted in a second.
    pub(crate) fn held(&self) -> f64 {
        self.measures.held_units() / (self.admitted as f64 / self.seconds)
    }

    /// The share of the units in advance that went back.
    pub(crate) fn returned(&self) -> f64 {
        self.measures.returned as f64 / self.measures.granted.max(1) as f64
    }
}
