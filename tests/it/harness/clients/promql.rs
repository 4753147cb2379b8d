//! Questions to Prometheus: the metrics and labels that they name are declared.

use std::collections::BTreeSet;

use tollgate::telemetry::metrics::{Family, MetricKind, Metrics};

/// The labels that Prometheus adds to each series of a target.
const OF_TARGETS: [&str; 2] = ["job", "instance"];

/// The family of a sample's name.
pub(crate) fn family_of(sample: &str) -> Option<&'static Family> {
    let of_histogram = |family: &&Family| {
        let suffix = sample.strip_prefix(family.name).unwrap_or_default();
        family.kind == MetricKind::Histogram && ["_bucket", "_sum", "_count"].contains(&suffix)
    };
    Metrics::families()
        .find(|family| family.name == sample)
        .or_else(|| Metrics::families().find(of_histogram))
}

/// The metrics of tollgate and its process that a text names.
pub(crate) fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    names_in(text).map(|(_, name)| name)
}

/// Each with its place.
fn names_in(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = ["tollgate_", "process_"].into_iter().flat_map(|prefix| text.match_indices(prefix));
    starts.filter_map(move |(at, _)| {
        let name = text[at..].split(|char| !is_of_name(char)).next().expect("one piece");
        // A file such as tollgate_VERSION.deb is no metric, nor is a variable or a location of nginx.
        let before = &text[..at];
        let is_nginx = before.ends_with(['$', '@']);
        let is_metric = !before.ends_with(is_of_name) && !is_nginx && !name.contains(char::is_uppercase);
        is_metric.then_some((at, name))
    })
}

/// What a text with PromQL says of metrics or labels that are not declared.
pub(crate) fn faults_in(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (at, name) in names_in(text) {
        let Some(labels) = labels_of(name) else {
            faults.push(format!("no metric `{name}`"));
            continue;
        };
        let selector = text[at + name.len()..].strip_prefix('{').map(selected).unwrap_or_default();
        let unknown = selector.iter().filter(|label| !labels.contains(**label));
        faults.extend(unknown.map(|label| format!("`{name}` has no label `{label}`")));
    }
    for (at, _) in text.match_indices(" by (") {
        let (kept, rest) = text[at + " by (".len()..].split_once(')').expect("it closes");
        let Some(scope) = rest.trim_start().strip_prefix('(').map(within) else {
            faults.push(format!("write `sum by ({kept}) (…)`, as elsewhere"));
            continue;
        };
        for label in kept.split(',').map(str::trim).filter(|label| !made_in(scope).contains(label)) {
            let lacks = |name: &&str| labels_of(name).is_some_and(|labels| !labels.contains(label));
            let lacking = metrics_in(scope).filter(lacks);
            faults.extend(lacking.map(|name| format!("`{name}` has no label `{label}` to sum by")));
        }
    }
    faults
}

/// Whether the answer to an expression can have this label.
pub(crate) fn can_have(expression: &str, label: &str) -> bool {
    let mut names = metrics_in(expression).peekable();
    // `up` and such.
    let has_none = names.peek().is_none();
    made_in(expression).contains(label)
        || has_none && OF_TARGETS.contains(&label)
        || names.any(|name| labels_of(name).is_some_and(|labels| labels.contains(label)))
}

fn labels_of(sample: &str) -> Option<BTreeSet<&'static str>> {
    let of_buckets = sample.ends_with("_bucket").then_some("le");
    Some(family_of(sample)?.labels.iter().copied().chain(OF_TARGETS).chain(of_buckets).collect())
}

/// The labels that the inside of a selector names, up to its brace. Prose names labels alone: `{route,code}`.
fn selected(text: &str) -> Vec<&str> {
    let (mut labels, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        let end = rest.find(|char| !is_of_name(char)).expect("a brace closes");
        if end == 0 {
            return labels;
        }
        labels.push(&rest[..end]);
        rest = &rest[end..];
        if rest.starts_with(['=', '!']) {
            // No value has an escaped quote.
            let value = rest.split_once('"').and_then(|(_, value)| value.split_once('"'));
            rest = value.expect("a value in quotes").1;
        }
    }
}

fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

/// The text up to the bracket that closes it.
fn within(text: &str) -> &str {
    let mut depth = 1;
    let end = text.find(|char| {
        depth += match char {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &text[..end.expect("it closes")]
}

/// The labels that `label_replace` makes.
fn made_in(text: &str) -> BTreeSet<&str> {
    let calls = text.split("label_replace(").skip(1);
    calls.filter_map(|call| call.split_once(", \"")?.1.split('"').next()).collect()
}
