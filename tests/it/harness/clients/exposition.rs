//! A strict reader of Prometheus' text format 0.0.4: what it takes, every Prometheus takes.

use std::collections::{BTreeMap, BTreeSet};

/// A page of metrics.
#[derive(Debug)]
pub(crate) struct Page {
    /// `counter`, `gauge` or `histogram` by family.
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<Series, f64>,
}

/// A sample's name and its labels, sorted.
pub(crate) type Series = (String, Vec<(String, String)>);

impl Page {
    /// Reads a page; panics at whatever is not exactly as the format says.
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut page = Self { kinds: BTreeMap::new(), samples: BTreeMap::new() };
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                name.clone_into(&mut family);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert_eq!(name, family, "the type follows its help");
                assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
                assert!(kind != "counter" || name.ends_with("_total"), "{line}");
                assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
            } else {
                let (series, value) = sample(line);
                page.belongs(&series.0, &family);
                assert!(page.samples.insert(series, value).is_none(), "twice: {line}");
            }
        }
        page.check_histograms();
        page
    }

    /// The value of a sample; its labels may be in any order.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut labels: Vec<_> =
            labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        labels.sort();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// The families by name, each with its kind.
    pub(crate) fn kinds(&self) -> Vec<(&str, &str)> {
        self.kinds.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect()
    }

    /// Which labels a family's samples carry, `le` left out.
    pub(crate) fn labels_of(&self, family: &str) -> BTreeSet<Vec<&str>> {
        let of_family = self.samples.keys().filter(|(name, _)| self.family_of(name) == family);
        of_family
            .map(|(_, labels)| labels.iter().map(|(label, _)| label.as_str()).filter(|label| *label != "le"))
            .map(Iterator::collect)
            .collect()
    }

    /// All samples.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Series, f64)> {
        self.samples.iter().map(|(series, value)| (series, *value))
    }

    /// All samples of this name, each with its labels, sorted.
    pub(crate) fn samples(&self, name: &str) -> impl Iterator<Item = (&[(String, String)], f64)> {
        let of_name = move |((own, _), _): &(&Series, &f64)| own == name;
        self.samples.iter().filter(of_name).map(|((_, labels), value)| (labels.as_slice(), *value))
    }

    /// The sum of all samples of this name that carry these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |own: &[(String, String)], (label, value): &(&str, &str)| {
            own.iter().any(|(name, text)| name == label && text == value)
        };
        let fits = |own: &[(String, String)]| labels.iter().all(|label| has(own, label));
        self.samples(name).filter(|(own, _)| fits(own)).map(|(_, value)| value).sum()
    }

    /// Every value of every label but `le`.
    pub(crate) fn label_values(&self) -> BTreeSet<&str> {
        let labels = self.samples.keys().flat_map(|(_, labels)| labels);
        labels.filter(|(label, _)| label != "le").map(|(_, value)| value.as_str()).collect()
    }

    /// The family that a sample of this name stands under.
    pub(crate) fn family_of<'a>(&self, name: &'a str) -> &'a str {
        let of_histogram = |family: &&str| self.kinds.get(*family).is_some_and(|kind| kind == "histogram");
        let without = |suffix| name.strip_suffix(suffix).filter(of_histogram);
        ["_bucket", "_sum", "_count"].into_iter().find_map(without).unwrap_or(name)
    }

    fn belongs(&self, name: &str, family: &str) {
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{name} stands under {family}"));
        let histogram = self.kinds.get(family).map(String::as_str) == Some("histogram");
        let suffixes: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{name} stands under {family}");
    }

    /// Buckets grow up to `+Inf`, which is the count.
    fn check_histograms(&self) {
        let mut buckets: BTreeMap<Series, Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, labels), value) in &self.samples {
            let Some(family) = name.strip_suffix("_bucket") else { continue };
            let (le, others): (Vec<_>, Vec<_>) = labels.iter().cloned().partition(|(label, _)| label == "le");
            let bound = number(&le.first().expect("a bucket has `le`").1);
            buckets.entry((format!("{family}_count"), others)).or_default().push((bound, *value));
        }
        for (count, mut buckets) in buckets {
            buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{count:?}: {buckets:?}");
            let (last, total) = *buckets.last().expect("one at least");
            assert!(last.is_infinite() && (total - self.samples[&count]).abs() < 0.5, "{count:?}");
        }
    }
}

fn sample(line: &str) -> (Series, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if rest.starts_with('{') {
        while !rest.starts_with('}') {
            let (label, value) = rest[1..].split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(is_name(label) && !label.contains(':'), "{line}");
            let (value, after) = unquote(value);
            labels.push((label.to_owned(), value));
            assert!(after.starts_with([',', '}']), "{line}");
            rest = after;
        }
        rest = &rest[1..];
    }
    labels.sort();
    assert!(labels.windows(2).all(|pair| pair[0].0 != pair[1].0), "a label twice: {line}");
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no blank before the value: {line}"));
    ((name.to_owned(), labels), number(value))
}

/// Reads up to the closing quote; what follows it comes back too.
fn unquote(text: &str) -> (String, &str) {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next().expect("a closing quote") {
            '"' => return (value, chars.as_str()),
            '\\' => value.push(match chars.next() {
                Some('n') => '\n',
                Some(char @ ('"' | '\\')) => char,
                other => panic!("\\{other:?} is not an escape"),
            }),
            char => value.push(char),
        }
    }
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        _ => {
            let digits = text.strip_prefix('-').unwrap_or(text);
            assert!(digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{text}");
            text.parse().expect("a number")
        }
    }
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'))
}
