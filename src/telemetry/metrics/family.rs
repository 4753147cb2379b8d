//! Metric families, and how they are written in Prometheus' text format, version 0.0.4: every Prometheus reads it.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. It is written by hand because the
//! `prometheus-client` crate writes only OpenMetrics, where the family of `tollgate_requests_total` has another name,
//! and because nothing else of that crate would be used.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::counter::{Counter, HistogramTotal, Scale};
use crate::labels::labels;

/// A metric, as `/metrics` declares it. Its samples differ in the values of its labels.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The name of its samples; those of a histogram have it with a suffix.
    pub name: &'static str,
    /// The type.
    pub kind: MetricKind,
    /// The labels of each sample, in their order. Buckets of a histogram have `le`, too.
    pub labels: &'static [&'static str],
    /// The HELP text, without backslash and line feed.
    pub help: &'static str,
}

labels! {
    /// The type of a family.
    pub enum MetricKind {
        /// Only grows.
        Counter = "counter",
        /// Goes up and down.
        Gauge = "gauge",
        /// Counts by duration.
        Histogram = "histogram",
    }
}

/// Declares families, in the order of the page. For example, with the counters of each `[auth]` as a source:
///
/// ```text
/// families! {
///     from (auths: &Groups<'_, AuthCounters, 1>)
///     Counter tollgate_auth_total{auth, result} "Results of checking the credentials of requests."
///         = by(auths, AuthResult::ALL.map(AuthResult::as_str), |auth| &auth.results);
/// }
/// ```
///
/// After `=` stands the method of [`Samples`] that reads the values; after `and` a further one. A family without
/// samples is left out of the page, unless `always` follows its HELP text, or `only_if(condition)`: then it is there
/// while the condition holds, and only then.
///
/// This makes `FAMILIES`, their list, and `write`, which writes them from the sources.
macro_rules! families {
    (
        from ($($source:ident: $type:ty),+ $(,)?)
        $($kind:ident $name:ident {$($label:ident),*} $help:literal $($shown:ident $(($condition:expr))?)?
            = $($read:ident($($argument:expr),+ $(,)?))and+;)+
    ) => {
        /// The families, in the order of the page.
        pub(super) const FAMILIES: &[$crate::telemetry::metrics::Family] =
            &[$($crate::telemetry::metrics::family::families!(@family $kind $name {$($label),*} $help)),+];

        /// Writes the families.
        pub(super) fn write(page: &mut String, $($source: $type),+) {
            $({
                let family = &$crate::telemetry::metrics::family::families!(@family $kind $name {$($label),*} $help);
                let mut samples = $crate::telemetry::metrics::family::Samples::of(family, page);
                $(samples.$shown($($condition)?);)?
                $(samples.$read($($argument),+);)+
            })+
        }
    };
    (@family $kind:ident $name:ident {$($label:ident),*} $help:literal) => {
        $crate::telemetry::metrics::Family {
            name: stringify!($name),
            kind: $crate::telemetry::metrics::MetricKind::$kind,
            labels: &[$(stringify!($label)),*],
            help: $help,
        }
    };
}
pub(super) use families;

/// The counters of all workers, by the values of their labels.
pub(super) type Groups<'w, T, const N: usize> = BTreeMap<[&'w str; N], Vec<&'w T>>;

/// Writes the samples of a family. The values of labels are in the order of the family's labels.
pub(super) struct Samples<'p> {
    family: &'static Family,
    page: &'p mut String,
    /// HELP and TYPE are written.
    is_begun: bool,
    is_hidden: bool,
}

impl<'p> Samples<'p> {
    pub(super) fn of(family: &'static Family, page: &'p mut String) -> Self {
        Self { family, page, is_begun: false, is_hidden: false }
    }

    /// The family is on the page even without samples.
    pub(super) fn always(&mut self) {
        self.begin();
    }

    /// The family is on the page while this holds, even without samples, and only then.
    pub(super) fn only_if(&mut self, shown: bool) {
        if shown { self.begin() } else { self.is_hidden = true }
    }

    /// A sample without labels, if there is a value.
    pub(super) fn value(&mut self, value: Option<impl Display>) {
        self.values(value.map(|value| ([], value)));
    }

    /// A sample for each of these values of labels.
    pub(super) fn values<'v, const N: usize>(
        &mut self,
        values: impl IntoIterator<Item = ([&'v str; N], impl Display)>,
    ) {
        for (labels, value) in values {
            self.sample("", &labels, value);
        }
    }

    /// The sum of a number over all workers.
    pub(super) fn sum<T, const N: usize>(&mut self, groups: &Groups<'_, T, N>, read: impl Fn(&T) -> u64) {
        self.values(groups.iter().map(|(labels, group)| (*labels, total(group, &read))));
    }

    /// The sums of several counters. `words`, in their order, are the values of the last label.
    pub(super) fn by<T, const N: usize>(
        &mut self,
        groups: &Groups<'_, T, N>,
        words: impl AsRef<[&'static str]>,
        counters: impl Fn(&T) -> &[Counter],
    ) {
        for (labels, group) in groups {
            for (index, word) in words.as_ref().iter().enumerate() {
                let sum = total(group, |cells| counters(cells).get(index).map_or(0, Counter::get));
                self.sample("", labels.iter().chain([word]), sum);
            }
        }
    }

    /// The same without sums of 0, and in the order of the alphabet.
    pub(super) fn used_by<T, const N: usize>(
        &mut self,
        groups: &Groups<'_, T, N>,
        words: impl AsRef<[&'static str]>,
        counters: impl Fn(&T) -> &[Counter],
    ) {
        self.by_key(groups, |cells, sums| {
            let counts =
                words.as_ref().iter().zip(counters(cells)).map(|(word, counter)| (*word, counter.get()));
            counts
                .filter(|(_, count)| *count > 0)
                .for_each(|(word, count)| *sums.entry(word).or_default() += count);
        });
    }

    /// The sums by keys, which are the values of the last label; `add` adds those of a worker.
    pub(super) fn by_key<T, K: Ord + Display, const N: usize>(
        &mut self,
        groups: &Groups<'_, T, N>,
        add: impl Fn(&T, &mut BTreeMap<K, u64>),
    ) {
        for (labels, group) in groups {
            let mut sums = BTreeMap::new();
            group.iter().for_each(|cells| add(cells, &mut sums));
            for (key, sum) in sums {
                self.sample("", labels.iter().chain([&&*key.to_string()]), sum);
            }
        }
    }

    /// A histogram; `add` adds that of a worker.
    pub(super) fn durations<T, S: Scale + Default, const N: usize>(
        &mut self,
        groups: &Groups<'_, T, N>,
        add: impl Fn(&T, &mut HistogramTotal<S>),
    ) {
        for (labels, group) in groups {
            let mut total = HistogramTotal::default();
            group.iter().for_each(|cells| add(cells, &mut total));
            let mut count = 0;
            for (bound, amount) in total.buckets() {
                count += amount;
                self.sample("_bucket", labels.iter().chain([&&*bound]), count);
            }
            let (seconds, micros) = (total.sum().0 / 1_000_000, total.sum().0 % 1_000_000);
            self.sample("_sum", labels, format_args!("{seconds}.{micros:06}"));
            self.sample("_count", labels, count);
        }
    }

    /// A value more than there are labels is that of `le`.
    fn sample<'v>(
        &mut self,
        suffix: &str,
        values: impl IntoIterator<Item = &'v &'v str>,
        value: impl Display,
    ) {
        if self.is_hidden {
            return;
        }
        self.begin();
        self.page.push_str(self.family.name);
        self.page.push_str(suffix);
        let labels = self.family.labels.iter().chain([&"le"]);
        let mut separator = '{';
        for (label, value) in labels.zip(values) {
            self.page.push(separator);
            self.page.push_str(label);
            self.page.push_str("=\"");
            escape(value, self.page);
            self.page.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.page.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true) {
            let Family { name, kind, help, .. } = self.family;
            self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {}", kind.as_str()));
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(self.page, "{text}");
    }
}

fn total<T>(group: &[&T], read: impl Fn(&T) -> u64) -> u64 {
    group.iter().map(|cells| read(cells)).sum()
}

fn escape(value: &str, page: &mut String) {
    for char in value.chars() {
        match char {
            '\\' => page.push_str("\\\\"),
            '"' => page.push_str("\\\""),
            '\n' => page.push_str("\\n"),
            _ => page.push(char),
        }
    }
}
