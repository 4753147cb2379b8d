//! `[limits]` and `[[descriptors]]` as text, and the remarks about what differs.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::super::ImportFile;
use super::super::remark::{ImportPlace, ImportReport, RemarkLevel, quoted};
use super::super::toml_text::{comment, key, list, one_or_list, string};
use super::matching::RuleMatch;
use super::rules::{Rule, RuleLimit, RuleTree, RuleValue, WindowUnit, shown};
use crate::limit::units::Cost;

/// Maximum length of a limit's name.
const MAX_NAME: usize = 64;
/// What is left of a name that is cut, for a number.
const CUT_NAME: usize = 56;

/// Writes all tables.
pub(super) fn write(
    files: &[ImportFile],
    tree: &RuleTree,
    matches: &[RuleMatch<'_>],
    report: &mut ImportReport,
) -> Option<String> {
    let named = tree.rules.iter().filter_map(|rule| Some((rule.domain, rule.limit.as_ref()?.name.as_str())));
    let mut writer = LimitWriter {
        tree,
        report,
        names: HashMap::new(),
        taken: HashSet::new(),
        written: named.collect(),
        told: HashSet::new(),
    };
    let body: Vec<_> = matches.iter().map(|found| writer.block(found)).collect();
    writer.differences_of_rules();
    let count = writer.names.len();
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    let mut text = comment(&format!(
        "Made by `tollgate import envoy-ratelimit` from {}: {count} {}, {} {}.",
        names.join(", "),
        plural(count, "limit"),
        matches.len(),
        plural(matches.len(), "descriptor")
    ));
    report.sort();
    for remark in report.remarks() {
        let line = report.line_of(remark.place);
        let help = if remark.help.is_empty() { String::new() } else { format!(" ({})", remark.help) };
        text.push_str(&comment(&format!("{line}: {}{help}", remark.message)));
    }
    for block in body {
        text.push('\n');
        text.push_str(&block);
    }
    Some(text)
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { noun.to_owned() } else { format!("{noun}s") }
}

struct LimitWriter<'t, 'r> {
    tree: &'t RuleTree,
    report: &'r mut ImportReport,
    /// By their rules.
    names: HashMap<usize, String>,
    taken: HashSet<String>,
    /// The names of limits in the files, with their domains.
    written: HashSet<(usize, &'t str)>,
    /// Differences that are reported once a file.
    told: HashSet<(usize, WindowName)>,
}

/// The word of a unit.
type WindowName = &'static str;

impl<'t> LimitWriter<'t, '_> {
    /// One `[[descriptors]]`, after the limits that no other one has named.
    fn block(&mut self, found: &RuleMatch<'t>) -> String {
        let place = self.tree.rules.get(found.rule).map(|rule| rule.place).unwrap_or_default();
        let line = self.report.line_of(place);
        let mut text = match found.limits.is_empty() {
            true => comment(&format!("{line}: no limit")),
            false => comment(&line),
        };
        for rule in &found.limits {
            if !self.names.contains_key(rule)
                && let Some(limit) = self.limit(*rule)
            {
                text.push_str(&limit);
            }
        }
        let names: Vec<_> = found.limits.iter().filter_map(|rule| self.names.get(rule).cloned()).collect();
        let domain = self.tree.domains.get(found.domain).map_or("", |domain| &domain.name);
        let pairs = found.entries.iter().map(|(key, literal)| (*key, literal.unwrap_or("*")));
        let pairs: Vec<(&str, &str)> = pairs.collect();
        let keys: HashSet<_> = pairs.iter().map(|(key, _)| *key).collect();
        // A table has a key once only.
        let fits = match keys.len() < pairs.len() {
            true => {
                let pairs = pairs.iter().map(|(key, value)| format!("[{}, {}]", string(key), string(value)));
                format!("[{}]", pairs.collect::<Vec<_>>().join(", "))
            }
            false => {
                let pairs = pairs.iter().map(|(name, value)| format!("{} = {}", key(name), string(value)));
                format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[descriptors]]\ndomain = {}\nmatch  = {fits}\nlimits = {}\n",
            string(domain),
            list(&names)
        );
        text
    }

    /// `[limits.NAME]` of a rule.
    fn limit(&mut self, index: usize) -> Option<String> {
        let (rule, path) = (self.tree.rules.get(index)?, self.tree.path(index));
        let limit = rule.limit.as_ref()?;
        let domain = self.tree.domains.get(rule.domain).map_or("", |domain| &domain.name);
        let name = self.name(&limit.name, domain, &path);
        let keys = self.key(&path);
        let mut text = format!(
            "[limits.{}]\nalgorithm = \"fixed-window\"\nkey       = {}\nrate      = {}\n",
            key(&name),
            one_or_list(&keys),
            string(&rate(limit))
        );
        if rule.is_shadow {
            text.push_str("mode      = \"shadow\"\n");
        }
        text.push('\n');
        self.names.insert(index, name);
        Some(text)
    }

    /// A name that no other limit has: the one in the file, or the domain with the entries.
    fn name(&mut self, written: &str, domain: &str, path: &[&Rule]) -> String {
        let mut parts = vec![domain];
        for rule in path {
            parts.push(&rule.key);
            if let RuleValue::Literal(value) | RuleValue::Pattern(value) = &rule.value {
                parts.push(value);
            }
        }
        let name = [plain(written), plain(&parts.join("-")), "limit".to_owned()];
        let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        let begin = name.get(..CUT_NAME).map_or(&*name, |begin| begin.trim_end_matches(['-', '.']));
        let whole = if name.len() > MAX_NAME { begin } else { &name };
        let numbered = (2_u64..).map(|number| format!("{begin}-{number}"));
        let names = std::iter::once(whole.to_owned()).chain(numbered);
        let name = names.into_iter().find(|name| !self.taken.contains(name)).unwrap_or_default();
        self.taken.insert(name.clone());
        name
    }

    /// The parts of the key: the entries without a literal. Values that share a threshold are not told apart.
    fn key(&mut self, path: &[&Rule]) -> Vec<String> {
        let (mut keys, mut is_lost) = (Vec::new(), None);
        let shared: HashSet<_> =
            path.iter().filter(|rule| rule.shares_threshold).map(|rule| rule.key.as_str()).collect();
        for rule in path.iter().filter(|rule| !matches!(rule.value, RuleValue::Literal(_))) {
            let part = format!("descriptor:{}", rule.key);
            match shared.contains(rule.key.as_str()) {
                true if rule.shares_threshold => {}
                true => is_lost = Some(*rule),
                false if keys.contains(&part) => {}
                false => keys.push(part),
            }
        }
        if let Some(rule) = is_lost {
            let message = format!(
                "{} is repeated, and one of its values shares a threshold: here all values of both share a counter",
                quoted(&rule.key)
            );
            self.warn(rule.place, &message, "let Envoy send another key for one of them");
        }
        if keys.is_empty() {
            keys.push("global".to_owned());
        }
        keys
    }

    // -----------------------------------------------------------------------------------------------------------
    // Remarks

    /// What differs for a limit.
    fn differences(&mut self, rule: &Rule, limit: &RuleLimit) {
        if limit.requests == 0 && !rule.is_shadow {
            let message = "`requests_per_unit: 0` refuses every request: here one a year is admitted";
            self.warn(limit.place, message, "let Envoy refuse such requests");
        }
        if limit.requests > Cost::MAX {
            let message = format!("a limit has at most {} requests", Cost::MAX);
            self.warn(limit.place, &message, "");
        }
        let days = match limit.unit {
            WindowUnit::Month => 30,
            WindowUnit::Year => 365,
            _ => 0,
        };
        if days > 0 && limit.requests > 0 && self.told.insert((limit.unit_place.file, limit.unit.as_str())) {
            let unit = limit.unit.as_str();
            let message = format!(
                "a {unit} has {days} days there, counted since 1970: here it is that of the calendar, in UTC"
            );
            let help = format!("`rate = \"{}/{days}day\"` counts as there", limit.requests.min(Cost::MAX));
            self.warn(limit.unit_place, &message, &help);
        }
        if rule.is_quota {
            let message = "`quota_mode` has no counterpart: there a call is refused once all its quotas are used \
                           up, here once one is";
            self.warn(rule.place, message, "send one quota in a call");
        }
        self.replaced(rule.domain, limit);
    }

    /// Limits that do not apply beside this one, and do here.
    fn replaced(&mut self, domain: usize, limit: &RuleLimit) {
        for (name, place) in &limit.replaces {
            if self.written.contains(&(domain, name)) {
                let message = format!(
                    "`replaces` has no counterpart: in a call with both limits, {} applies, too",
                    quoted(name)
                );
                self.warn(*place, &message, "let Envoy send one of the two descriptors");
            }
        }
    }

    /// What differs for each rule.
    fn differences_of_rules(&mut self) {
        let tree = self.tree;
        let mut catch_all: HashMap<_, usize> = HashMap::new();
        for (index, rule) in tree.rules.iter().enumerate().filter(|(_, rule)| rule.value.fits_all()) {
            catch_all.entry((rule.domain, rule.parent, &*rule.key)).or_insert(index);
        }
        for (index, rule) in tree.rules.iter().enumerate() {
            let earlier = catch_all.get(&(rule.domain, rule.parent, &*rule.key));
            let is_after =
                matches!(rule.value, RuleValue::Pattern(_)) && earlier.is_some_and(|all| *all < index);
            if is_after || rule.value == RuleValue::Any && earlier.is_some() {
                let message = format!(
                    "{} is never reached: a rule with `*` takes all values of {}",
                    shown(&rule.key, &rule.value),
                    quoted(&rule.key)
                );
                self.report.push(RemarkLevel::Note, rule.place, &message, "remove one of the two");
                continue;
            }
            if matches!(rule.value, RuleValue::Pattern(_)) && !rule.value.fits_all() {
                self.difference_of_pattern(rule);
            }
            match &rule.limit {
                Some(limit) if limit.unlimited => self.replaced(rule.domain, limit),
                Some(limit) => self.differences(rule, limit),
                None => {}
            }
        }
    }

    fn difference_of_pattern(&mut self, rule: &Rule) {
        let name = quoted(&rule.key);
        let is_exception =
            rule.children.is_empty() && rule.limit.as_ref().is_none_or(|limit| limit.unlimited);
        let effect = match is_exception {
            true => format!("its values are limited as all others of {name}"),
            false if rule.shares_threshold => format!(
                "its limit applies to all values of {name} without a rule of their own, and they share a counter"
            ),
            false => format!(
                "its limit, or a smaller one beside it, applies to all values of {name} without a rule of their own"
            ),
        };
        let message = format!(
            "{} cannot be written, since `match` has whole values or `*`: {effect}",
            shown(&rule.key, &rule.value)
        );
        self.warn(
            rule.place,
            &message,
            "let Envoy send a value that stands for these, such as a `generic_key`",
        );
    }

    fn warn(&mut self, place: ImportPlace, message: &str, help: &str) {
        self.report.push(RemarkLevel::Warning, place, message, help);
    }
}

/// `10/min`.
fn rate(limit: &RuleLimit) -> String {
    let period = match limit.unit {
        _ if limit.requests == 0 => return "1/year".to_owned(),
        WindowUnit::Second => "s",
        WindowUnit::Minute => "min",
        WindowUnit::Hour => "h",
        WindowUnit::Day => "day",
        WindowUnit::Week => "week",
        WindowUnit::Month => "month",
        WindowUnit::Year => "year",
    };
    format!("{}/{period}", limit.requests.min(Cost::MAX))
}

/// The text with only letters, digits, `_`, `.` and `-`, which a limit's name may have.
fn plain(text: &str) -> String {
    let letter = |letter: char| match letter {
        '_' | '.' => letter,
        letter if letter.is_ascii_alphanumeric() => letter,
        _ => '-',
    };
    let text: String = text.chars().map(letter).collect();
    text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
