//! `[limits]` and `[[descriptors]]` of a file, decided by their definition within one window: of the descriptors that
//! fit a list of entries the one with most literals applies, and of equals the first; all limits of a call are charged,
//! or none. Entries with different keys have no order.

use std::collections::{BTreeMap, HashMap};

/// The entries of a descriptor, in order.
pub(crate) type Entries = Vec<(String, String)>;

/// `a=b, c=d` as entries.
pub(crate) fn entries(text: &str) -> Entries {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap_or_else(|| panic!("`{entry}` has no `=`"));
        (key.to_owned(), value.to_owned())
    };
    text.split(", ").map(entry).collect()
}

/// A limit of the file.
#[derive(Debug)]
pub(crate) struct WindowLimit {
    /// The units of a window.
    pub(crate) count: u64,
    /// Whether it never refuses.
    pub(crate) is_shadow: bool,
    keys: Vec<String>,
}

#[derive(Debug)]
struct Row {
    domain: String,
    fits: Vec<(String, String)>,
    limits: Vec<String>,
}

/// The file, with its counters.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// By their names.
    pub(crate) limits: BTreeMap<String, WindowLimit>,
    rows: Vec<Row>,
    used: HashMap<(String, Vec<String>), u64>,
}

impl Descriptors {
    pub(crate) fn parse(text: &str) -> Self {
        let file: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        let limits = file.get("limits").and_then(toml::Value::as_table).into_iter().flatten();
        let rows = file.get("descriptors").and_then(toml::Value::as_array).into_iter().flatten();
        let descriptors = Self {
            limits: limits.map(|(name, limit)| (name.clone(), window_limit(limit))).collect(),
            rows: rows.map(row).collect(),
            used: HashMap::new(),
        };
        for name in descriptors.rows.iter().flat_map(|row| &row.limits) {
            assert!(descriptors.limits.contains_key(name), "there is no limit `{name}`:\n{text}");
        }
        for name in descriptors.limits.keys() {
            let is_named = descriptors.rows.iter().any(|row| row.limits.contains(name));
            assert!(is_named, "no descriptor names `{name}`:\n{text}");
        }
        descriptors
    }

    /// The names of the limits that apply to these entries.
    pub(crate) fn applied(&self, domain: &str, entries: &Entries) -> &[String] {
        let fitting = self.rows.iter().filter(|row| row.domain == domain && row.fits_entries(entries));
        let literals = |row: &&Row| row.fits.iter().filter(|(_, value)| value != "*").count();
        // The first of those with most: `max_by_key` gives the last.
        fitting.rev().max_by_key(literals).map_or(&[], |row| &row.limits)
    }

    /// The counter of a limit for these entries: the values of its key.
    pub(crate) fn counter(&self, limit: &str, entries: &Entries) -> Vec<String> {
        let values = self.limits[limit].keys.iter().map(|key| {
            let Some(name) = key.strip_prefix("descriptor:") else { return key.clone() };
            let values: Vec<_> =
                entries.iter().filter(|(key, _)| key == name).map(|(_, value)| value).collect();
            assert!(!values.is_empty(), "`{limit}` counts by `{name}`, which is not in {entries:?}");
            format!("{values:?}")
        });
        values.collect()
    }

    /// Whether a call is admitted.
    pub(crate) fn call(&mut self, domain: &str, lists: &[Entries], hits: u64) -> bool {
        let mut charges: BTreeMap<(String, Vec<String>), u64> = BTreeMap::new();
        for list in lists {
            for limit in self.applied(domain, list) {
                *charges.entry((limit.clone(), self.counter(limit, list))).or_default() += hits;
            }
        }
        let has_room = |(counter, units): (&(String, Vec<String>), &u64)| {
            let used = self.used.get(counter).copied().unwrap_or(0);
            used + units <= self.limits[&counter.0].count
        };
        let is_enforced = |charge: &(&(String, Vec<String>), &u64)| !self.limits[&charge.0.0].is_shadow;
        if !charges.iter().filter(is_enforced).all(has_room) {
            return false;
        }
        for (counter, units) in charges {
            *self.used.entry(counter).or_default() += units;
        }
        true
    }
}

impl Row {
    fn fits_entries(&self, entries: &Entries) -> bool {
        let mut sorted: Vec<_> = entries.iter().collect();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        let mut pairs = self.fits.iter().zip(sorted);
        self.fits.len() == entries.len()
            && pairs.all(|((key, value), entry)| *key == entry.0 && (value == "*" || *value == entry.1))
    }
}

fn text(value: &toml::Value) -> String {
    let text = value.as_str().unwrap_or_else(|| panic!("{value} is not a text"));
    assert!(!text.replace("$${", "").contains("${"), "`{text}` has a variable");
    text.replace("$${", "${")
}

/// The texts of a list, or the only one.
fn texts(value: &toml::Value) -> Vec<String> {
    value.as_array().map_or_else(|| vec![text(value)], |items| items.iter().map(text).collect())
}

fn window_limit(limit: &toml::Value) -> WindowLimit {
    assert_eq!(limit["algorithm"].as_str(), Some("fixed-window"));
    let rate = text(&limit["rate"]);
    let (count, period) = rate.split_once('/').expect("a rate");
    assert!(["s", "min", "h", "day", "week", "month", "year"].contains(&period), "{rate}");
    WindowLimit {
        count: count.parse().expect("a count"),
        keys: texts(&limit["key"]),
        is_shadow: limit.get("mode").is_some_and(|mode| mode.as_str() == Some("shadow")),
    }
}

fn row(row: &toml::Value) -> Row {
    let pair = |pair: &toml::Value| match texts(pair).as_slice() {
        [key, value] => (key.clone(), value.clone()),
        other => panic!("{other:?} is not a pair"),
    };
    let mut fits: Vec<_> = match &row["match"] {
        toml::Value::Table(table) => table.iter().map(|(key, value)| (key.clone(), text(value))).collect(),
        pairs => pairs.as_array().expect("a list of pairs").iter().map(pair).collect(),
    };
    fits.sort_by(|one, other| one.0.cmp(&other.0));
    Row { domain: text(&row["domain"]), fits, limits: texts(&row["limits"]) }
}
