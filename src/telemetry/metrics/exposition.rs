//! Prometheus' text format, version 0.0.4: every Prometheus reads it.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. It is written by hand because the
//! `prometheus-client` crate writes only OpenMetrics, where the family of `tollgate_requests_total` has another name,
//! and because nothing else of that crate would be used.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::counter::{HistogramTotal, Scale};

/// A page of metrics.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    text: String,
}

/// A label's name and value.
pub(super) type Label<'a> = (&'static str, &'a str);

/// The type of a family.
#[derive(Clone, Copy, Debug)]
pub(super) enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by duration.
    Histogram,
}

impl Exposition {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Begins a family; its samples follow. `help` has neither a backslash nor a line feed.
    pub(super) fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    pub(super) fn sample(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            self.escape(value);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    /// A family of one sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A family of sums of counts, by the values of these labels. It is left out if all are 0.
    pub(super) fn sums<'v, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        labels: [&'static str; N],
        counts: impl Iterator<Item = ([&'v str; N], u64)>,
    ) {
        let mut sums: BTreeMap<[&str; N], u64> = BTreeMap::new();
        for (values, count) in counts.filter(|(_, count)| *count > 0) {
            *sums.entry(values).or_default() += count;
        }
        if !sums.is_empty() {
            self.family(name, MetricKind::Counter, help);
        }
        for (values, sum) in sums {
            self.sample(name, &std::array::from_fn::<_, N, _>(|place| (labels[place], values[place])), sum);
        }
    }

    /// The samples of one histogram in the family `name`.
    pub(super) fn histogram<S: Scale>(
        &mut self,
        name: &str,
        label: Option<Label<'_>>,
        total: &HistogramTotal<S>,
    ) {
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (bound, amount) in total.buckets() {
            count += amount;
            let labels: Vec<_> = label.into_iter().chain([("le", &*bound)]).collect();
            self.sample(&bucket, &labels, count);
        }
        let (seconds, micros) = (total.sum().0 / 1_000_000, total.sum().0 % 1_000_000);
        let labels = label.as_slice();
        self.sample(&format!("{name}_sum"), labels, format_args!("{seconds}.{micros:06}"));
        self.sample(&format!("{name}_count"), labels, count);
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.text, "{text}");
    }

    fn escape(&mut self, value: &str) {
        for char in value.chars() {
            match char {
                '\\' => self.text.push_str("\\\\"),
                '"' => self.text.push_str("\\\""),
                '\n' => self.text.push_str("\\n"),
                _ => self.text.push(char),
            }
        }
    }
}
