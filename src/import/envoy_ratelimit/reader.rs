//! Reads the tree of rules, as the service does.
//!
//! What the service refuses is an error here, too: no file with it is in use. One reading is left out: the service
//! compares `KEY_VALUE` as one text, so that there a rule with the key `a_b` also takes the entry `a` with the value `b`.

use std::collections::{HashMap, HashSet};

use super::super::ImportFile;
use super::super::remark::{ImportPlace, ImportReport, RemarkLevel, quoted};
use super::super::yaml::{self, YamlFault, YamlIndex, YamlKind, YamlTree};
use super::rules::{Rule, RuleDomain, RuleLimit, RuleTree, RuleValue, WindowUnit, shown};

/// The maximum number of rules of all files, each as often as an alias names it.
const MAX_RULES: usize = 20_000;
/// The maximum number of levels, as `match` has at most as many entries.
const MAX_LEVELS: usize = 16;
/// The maximum number of bytes of a domain and of a key, as `[[descriptors]]` has them.
const MAX_NAME: usize = 256;

const OF_FILE: [&str; 2] = ["domain", "descriptors"];
const OF_RULE: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const OF_LIMIT: [&str; 5] = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const OF_REPLACED: [&str; 1] = ["name"];

/// Reads all files. What is wrong is in the report.
pub(super) fn read(files: &[ImportFile], report: &mut ImportReport) -> RuleTree {
    let mut tree = RuleTree::default();
    for (file, ImportFile { text, .. }) in files.iter().enumerate() {
        match yaml::parse(text) {
            Ok(yaml) => {
                RuleReader { yaml: &yaml, file, tree: &mut tree, report, told: HashSet::new() }.read()
            }
            Err(fault) => report.error(place(file, fault.place), &fault.message, fault.help),
        }
    }
    tree
}

fn place(file: usize, (start, end): (usize, usize)) -> ImportPlace {
    ImportPlace { file, start, end }
}

/// The fields of a mapping: by its key the key's place and the value.
type RuleFields = HashMap<&'static str, (ImportPlace, YamlIndex)>;

struct RuleReader<'a, 't> {
    yaml: &'a YamlTree<'t>,
    file: usize,
    tree: &'a mut RuleTree,
    report: &'a mut ImportReport,
    /// Keys without a counterpart that were reported.
    told: HashSet<&'static str>,
}

/// Where a rule stands.
#[derive(Clone, Copy)]
struct RuleLevel {
    domain: usize,
    parent: Option<usize>,
    depth: usize,
}

impl RuleReader<'_, '_> {
    fn read(mut self) {
        let yaml = self.yaml;
        if let Some(second) = yaml.second {
            let message = "the file has a second document, which that service does not read";
            self.warn(place(self.file, second), message, "give each document a file of its own");
        }
        if let Some(Ok(entries)) = yaml.entries(yaml.root)
            && let Some(kind) = entries.iter().find(|entry| entry.key == "apiVersion")
        {
            let message = "this is an object of Kubernetes: the file of that service is a text inside of it";
            let help = "save the text under `data` and name that file, or pipe it to \
                        `tollgate import envoy-ratelimit -`";
            return self.report.error(place(self.file, kind.key_place), message, help);
        }
        let Some(mut fields) = self.fields(yaml.root, "the file", &OF_FILE) else { return };
        let whole = self.place(yaml.root);
        let domain = fields.remove("domain").map(|(_, value)| (self.place(value), self.text(value)));
        let (domain_place, name) = domain.unwrap_or((whole, Some(String::new())));
        let Some(name) = name else { return };
        if name.is_empty() {
            return self.report.error(domain_place, "the file has no `domain`", "name it: `domain: shop`");
        }
        if name.len() > MAX_NAME {
            return self.too_long(domain_place, "the domain");
        }
        let known = self.tree.domains.iter().position(|domain| domain.name == name);
        if known.is_some() {
            let message = format!("another file has the domain {}", quoted(&name));
            let help = "the rules of both are joined here, as with MERGE_DOMAIN_CONFIG there";
            self.note(domain_place, &message, help);
        }
        let domain = known.unwrap_or_else(|| {
            self.tree.domains.push(RuleDomain { name, rules: Vec::new() });
            self.tree.domains.len() - 1
        });
        if let Some((_, descriptors)) = fields.remove("descriptors") {
            self.rules(descriptors, RuleLevel { domain, parent: None, depth: 1 });
        }
    }

    /// The rules of a list.
    fn rules(&mut self, list: YamlIndex, level: RuleLevel) {
        let yaml = self.yaml;
        let items = match yaml.value(list).map(|value| &value.kind) {
            Some(YamlKind::Sequence(items)) => items,
            Some(YamlKind::Scalar { .. }) if self.is_null(list) => return,
            _ => {
                let help = "write a list: `descriptors: [{ key: … }]`";
                return self.report.error(self.place(list), "`descriptors` is not a list", help);
            }
        };
        if level.depth > MAX_LEVELS {
            let message = format!("more than {MAX_LEVELS} levels of `descriptors`");
            return self.report.error(self.place(list), &message, "remove levels");
        }
        for item in items {
            if self.tree.rules.len() >= MAX_RULES {
                let message = format!("more than {MAX_RULES} rules");
                return self.report.error(self.place(*item), &message, "import some of them at a time");
            }
            self.rule(*item, level);
        }
    }

    fn rule(&mut self, item: YamlIndex, level: RuleLevel) {
        let Some(mut fields) = self.fields(item, "a rule", &OF_RULE) else { return };
        let place = fields.get("key").map_or(self.place(item), |(place, _)| *place);
        let mut text = |name| match fields.remove(name) {
            Some((_, value)) => self.text(value),
            None => Some(String::new()),
        };
        let (Some(key), Some(value)) = (text("key"), text("value")) else { return };
        if key.is_empty() {
            return self.report.error(place, "the rule has no `key`", "name it: `key: remote_address`");
        }
        if key.contains('*') {
            let message = format!("the key {} has a `*`", quoted(&key));
            return self.report.error(place, &message, "write a rule for each key");
        }
        if key.len() > MAX_NAME {
            return self.too_long(place, "the key");
        }
        let is_first = self.tree.written.insert((level.domain, level.parent, key.clone(), value.clone()));
        let value = RuleValue::new(value);
        if !is_first {
            let message = format!("{} is written twice", shown(&key, &value));
            return self.report.error(place, &message, "remove one of the two rules");
        }
        let mut flag = |name| fields.remove(name).is_some_and(|(_, value)| self.boolean(value));
        let (is_shadow, is_quota) = (flag("shadow_mode"), flag("quota_mode"));
        let (shares_threshold, detailed, with_value) =
            (flag("share_threshold"), flag("detailed_metric"), flag("value_to_metric"));
        if shares_threshold && !matches!(value, RuleValue::Pattern(_)) {
            let help = "remove it, or write a `value` with `*`";
            self.report.error(place, "`share_threshold` of a rule without `*` in its `value`", help);
        }
        self.tell_metrics(place, detailed, with_value, fields.get("metadata").map(|(place, _)| *place));
        let limit = fields.remove("rate_limit").and_then(|(place, value)| self.limit(place, value));
        let RuleLevel { domain, parent, depth } = level;
        let rule = self.tree.rules.len();
        let children = Vec::new();
        self.tree.rules.push(Rule {
            key,
            value,
            limit,
            shares_threshold,
            is_shadow,
            is_quota,
            domain,
            parent,
            children,
            place,
        });
        self.attach(rule, level);
        if let Some((_, descriptors)) = fields.remove("descriptors") {
            self.rules(descriptors, RuleLevel { domain, parent: Some(rule), depth: depth + 1 });
        }
    }

    fn tell_metrics(
        &mut self,
        place: ImportPlace,
        detailed: bool,
        with_value: bool,
        data: Option<ImportPlace>,
    ) {
        let help = "`tollgate top` and the dashboard show the keys of each limit";
        for (name, is_set) in [("detailed_metric", detailed), ("value_to_metric", with_value)] {
            if is_set && self.told.insert(name) {
                let message = format!("`{name}` has no counterpart: no metric has values of a client");
                self.note(place, &message, help);
            }
        }
        if let Some(place) = data
            && self.told.insert("metadata")
        {
            let message = "`metadata` has no counterpart: answers have no dynamic metadata";
            self.warn(place, message, "");
        }
    }

    fn limit(&mut self, place: ImportPlace, value: YamlIndex) -> Option<RuleLimit> {
        if self.is_null(value) {
            return None;
        }
        let mut fields = self.fields(value, "`rate_limit`", &OF_LIMIT)?;
        let unlimited = fields.remove("unlimited").is_some_and(|(_, value)| self.boolean(value));
        let (unit_place, unit) = match fields.remove("unit") {
            Some((place, value)) => (place, self.text(value)?),
            None => (place, String::new()),
        };
        let known = WindowUnit::WORDS.iter().find(|(word, _)| unit.eq_ignore_ascii_case(word));
        let unit = match (known, unlimited) {
            (Some(_), true) => {
                let help = "remove `unit`, or `unlimited`";
                self.report.error(unit_place, "an unlimited rule has a `unit`", help);
                return None;
            }
            (Some((_, unit)), false) => *unit,
            (None, true) => WindowUnit::Second,
            (None, false) => {
                let message = match unit.as_str() {
                    "" => "the limit has no `unit`".to_owned(),
                    unit => format!("{} is not a unit", quoted(unit)),
                };
                let words: Vec<_> = WindowUnit::ALL.iter().map(|unit| unit.as_str()).collect();
                self.report.error(unit_place, &message, &format!("write one of {}", words.join(", ")));
                return None;
            }
        };
        let (count_place, requests) = match fields.remove("requests_per_unit") {
            Some((place, value)) => (place, self.whole(value)?),
            None => (place, 0),
        };
        let name = match fields.remove("name") {
            Some((_, value)) => self.text(value)?,
            None => String::new(),
        };
        let replaces = fields
            .remove("replaces")
            .map_or_else(Vec::new, |(place, value)| self.replaces(place, value, &name));
        Some(RuleLimit { unlimited, requests, unit, name, replaces, place: count_place, unit_place })
    }

    fn replaces(&mut self, place: ImportPlace, list: YamlIndex, own: &str) -> Vec<(String, ImportPlace)> {
        let yaml = self.yaml;
        let items = match yaml.value(list).map(|value| &value.kind) {
            Some(YamlKind::Sequence(items)) => items,
            Some(YamlKind::Scalar { .. }) if self.is_null(list) => return Vec::new(),
            _ => {
                self.report.error(place, "`replaces` is not a list", "write `replaces: [{ name: … }]`");
                return Vec::new();
            }
        };
        let mut replaced = Vec::new();
        for item in items {
            let Some(mut fields) = self.fields(*item, "an item of `replaces`", &OF_REPLACED) else {
                continue;
            };
            let name = match fields.remove("name") {
                Some((_, value)) => self.text(value),
                None => Some(String::new()),
            };
            match name {
                Some(name) if name.is_empty() => {
                    self.report.error(place, "`replaces` has an item without `name`", "name a limit");
                }
                Some(name) if name == own => {
                    self.report.error(place, "the limit replaces itself", "name another limit");
                }
                Some(name) => replaced.push((name, place)),
                None => {}
            }
        }
        replaced
    }

    // -----------------------------------------------------------------------------------------------------------
    // Values

    /// The fields of a mapping. One that nothing knows is an error; one of another place has no effect there.
    fn fields(&mut self, index: YamlIndex, what: &str, known: &[&str]) -> Option<RuleFields> {
        let entries = match self.yaml.entries(index) {
            Some(Ok(entries)) => entries,
            Some(Err(YamlFault { message, help, place: at })) => {
                self.report.error(place(self.file, at), &message, help);
                return None;
            }
            None => {
                self.report.error(
                    self.place(index),
                    &format!("{what} is not a mapping"),
                    "write `key: value`",
                );
                return None;
            }
        };
        let mut fields = RuleFields::new();
        for entry in entries {
            let at = place(self.file, entry.key_place);
            let all = [&OF_FILE[..], &OF_RULE, &OF_LIMIT, &OF_REPLACED].concat();
            match all.iter().find(|name| **name == entry.key) {
                Some(name) if known.contains(name) => drop(fields.insert(*name, (at, entry.value))),
                Some(name) => {
                    let message = format!("`{name}` has no effect in {what}, as in that service");
                    self.report.push(RemarkLevel::Note, at, &message, "remove it");
                }
                None => {
                    let message = format!("unknown key {} in {what}", quoted(entry.key));
                    let help = format!("{what} has {}", known.join(", "));
                    self.report.error(at, &message, &help);
                }
            }
        }
        Some(fields)
    }

    fn scalar(&self, index: YamlIndex) -> Option<(&str, bool)> {
        match &self.yaml.value(index)?.kind {
            YamlKind::Scalar { text, is_plain } => Some((text, *is_plain)),
            _ => None,
        }
    }

    fn is_null(&self, index: YamlIndex) -> bool {
        matches!(self.scalar(index), Some(("" | "~" | "null" | "Null" | "NULL", true)))
    }

    /// The text of a scalar, as it is written; empty for null.
    fn text(&mut self, index: YamlIndex) -> Option<String> {
        if self.is_null(index) {
            return Some(String::new());
        }
        let text = self.scalar(index).map(|(text, _)| text.to_owned());
        if text.is_none() {
            self.report.error(self.place(index), "this is not a text", "write one value");
        }
        text
    }

    fn boolean(&mut self, index: YamlIndex) -> bool {
        let (text, is_plain) = self.scalar(index).map_or(("", false), |(text, plain)| (text, plain));
        let word = if is_plain { text.to_ascii_lowercase() } else { "?".to_owned() };
        match word.as_str() {
            "true" | "yes" | "on" | "y" => true,
            "false" | "no" | "off" | "n" | "" | "~" | "null" => false,
            _ => {
                self.report.error(self.place(index), "this is neither true nor false", "write `true`");
                false
            }
        }
    }

    /// A whole number of 32 bits: decimal, `0x`, `0o`, `0b` or with a leading 0 octal, with `_` anywhere.
    fn whole(&mut self, index: YamlIndex) -> Option<u32> {
        if self.is_null(index) {
            return Some(0);
        }
        let plain =
            self.scalar(index).filter(|(_, is_plain)| *is_plain).map(|(text, _)| text.replace('_', ""));
        let number = plain.and_then(|text| number(text.strip_prefix('+').unwrap_or(&text)));
        if number.is_none() {
            let help = "write a whole number from 0 to 4294967295, without quotes";
            self.report.error(self.place(index), "this is not a whole number", help);
        }
        number
    }

    // -----------------------------------------------------------------------------------------------------------
    // Places

    fn place(&self, index: YamlIndex) -> ImportPlace {
        place(self.file, self.yaml.value(index).map_or((0, 0), |value| value.place))
    }

    fn attach(&mut self, rule: usize, level: RuleLevel) {
        let tree = &mut *self.tree;
        let siblings = match level.parent {
            Some(parent) => tree.rules.get_mut(parent).map(|rule| &mut rule.children),
            None => tree.domains.get_mut(level.domain).map(|domain| &mut domain.rules),
        };
        siblings.into_iter().for_each(|siblings| siblings.push(rule));
    }

    fn too_long(&mut self, place: ImportPlace, what: &str) {
        let message = format!("{what} has more than {MAX_NAME} bytes");
        self.report.error(place, &message, "write a shorter one");
    }

    fn warn(&mut self, place: ImportPlace, message: &str, help: &str) {
        self.report.push(RemarkLevel::Warning, place, message, help);
    }

    fn note(&mut self, place: ImportPlace, message: &str, help: &str) {
        self.report.push(RemarkLevel::Note, place, message, help);
    }
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..)?, 16),
        [b'0', b'o' | b'O', ..] => (text.get(2..)?, 8),
        [b'0', b'b' | b'B', ..] => (text.get(2..)?, 2),
        [b'0', _, ..] => (text.get(1..)?, 8),
        _ => (text, 10),
    };
    let is_digit = |digit: char| digit.is_digit(radix);
    digits.chars().all(is_digit).then(|| u32::from_str_radix(digits, radix).ok()).flatten()
}
