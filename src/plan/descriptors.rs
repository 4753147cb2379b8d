//! `[[descriptors]]`: the limits of what other proxies ask about.
//!
//! A rule names every entry of the descriptors that it is for, with a value or with any. Of the rules that a descriptor
//! meets the one with the most values wins; of these one with a domain, and then the first in the file.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::limit::units::Cost;
use crate::route::RouteIndex;
use crate::route::descriptor::DescriptorEntry;

/// The maximum number of entries of a descriptor that a rule is for.
pub const MAX_ENTRIES: usize = 16;

/// One of `[[descriptors]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorRule {
    /// `None`: any domain.
    pub domain: Option<Box<str>>,
    /// The entries, in the order of the file.
    pub entries: Vec<EntryPattern>,
    /// Its name in logs and metrics, and its limits: they stand in a route that takes no request.
    pub route: RouteIndex,
    /// Units of a call; times its `hits_addend`.
    pub cost: Cost,
    /// Its descriptors report what has happened: they are always charged, if necessary into debt.
    pub report: bool,
    /// Its descriptors may bring other numbers of the only policy of its limits.
    pub overrides: bool,
}

/// An entry of the descriptors that a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    /// The name.
    pub name: Box<str>,
    /// The value; `None`: any.
    pub value: Option<Box<str>>,
}

/// Why a rule is, or is not, the one for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DescriptorMatch<'r> {
    /// It is.
    Chosen,
    /// It is for descriptors with other names.
    Names,
    /// It is for another domain.
    Domain,
    /// It is for another value of the entry with this name.
    Value(&'r str),
    /// The chosen rule has more values.
    FewerValues,
    /// The chosen rule has as many values, and is for this domain only.
    AnyDomain,
    /// The chosen rule has the same rank, and stands first.
    Later,
}

/// All rules, in file order, and how they are found.
#[derive(Clone, Debug, Default)]
pub struct DescriptorRules {
    rules: Vec<DescriptorRule>,
    /// By the names of their entries.
    by_names: HashMap<Vec<u8>, Vec<SameNames>>,
}

/// Rules whose entries have the same names, and values in the same places.
#[derive(Clone, Debug)]
struct SameNames {
    /// Whether there is a value in this place of the sorted entries.
    has_value: SmallVec<[bool; 4]>,
    /// The rules with these values.
    by_values: HashMap<Vec<u8>, SmallVec<[usize; 1]>>,
}

impl DescriptorRules {
    /// Rules in file order.
    pub fn new(rules: Vec<DescriptorRule>) -> Self {
        let mut all = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            let sorted = sorted(&rule.entries, |entry| entry.name.as_bytes());
            let names = joined(sorted.iter().map(|entry| entry.name.as_bytes()));
            let has_value: SmallVec<[bool; 4]> = sorted.iter().map(|entry| entry.value.is_some()).collect();
            let values = joined(sorted.iter().filter_map(|entry| Some(entry.value.as_deref()?.as_bytes())));
            let same_names = all.by_names.entry(names).or_default();
            let found = same_names.iter().position(|same| same.has_value == has_value);
            let same = match found {
                Some(found) => &mut same_names[found],
                None => {
                    same_names.push(SameNames { has_value, by_values: HashMap::new() });
                    let last = same_names.len() - 1;
                    &mut same_names[last]
                }
            };
            same.by_values.entry(values).or_default().push(index);
        }
        Self { rules, ..all }
    }

    /// All rules, in file order.
    pub fn iter(&self) -> std::slice::Iter<'_, DescriptorRule> {
        self.rules.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule for a descriptor of this domain. `None`: no rule names its entries, so that no limit applies.
    pub fn find(&self, domain: &[u8], entries: &[DescriptorEntry]) -> Option<&DescriptorRule> {
        if entries.is_empty() || entries.len() > MAX_ENTRIES {
            return None;
        }
        let sorted = sorted(entries, |entry| &entry.name);
        let same_names = self.by_names.get(&joined(sorted.iter().map(|entry| &*entry.name)))?;
        let of_same = |same: &SameNames| {
            let in_place = sorted.iter().zip(&same.has_value).filter(|(_, has_value)| **has_value);
            let rules = same.by_values.get(&joined(in_place.map(|(entry, _)| &*entry.value)))?;
            let values = same.has_value.iter().filter(|has_value| **has_value).count();
            let of_domain = rules.iter().filter_map(|&index| {
                let rule = self.rules.get(index)?;
                let fits = rule.domain.as_deref().is_none_or(|own| own.as_bytes() == domain);
                fits.then_some(((values, rule.domain.is_some(), std::cmp::Reverse(index)), rule))
            });
            of_domain.max_by_key(|(rank, _)| *rank)
        };
        same_names.iter().filter_map(of_same).max_by_key(|(rank, _)| *rank).map(|(_, rule)| rule)
    }

    /// Why each rule is, or is not, the one for this descriptor; in file order.
    pub fn explain(
        &self,
        domain: &[u8],
        entries: &[DescriptorEntry],
    ) -> Vec<(&DescriptorRule, DescriptorMatch<'_>)> {
        let chosen = self.find(domain, entries);
        self.rules.iter().map(|rule| (rule, rule.explain(domain, entries, chosen))).collect()
    }
}

impl DescriptorRule {
    /// The number of its values.
    fn values(&self) -> usize {
        self.entries.iter().filter(|entry| entry.value.is_some()).count()
    }

    fn explain(
        &self,
        domain: &[u8],
        entries: &[DescriptorEntry],
        chosen: Option<&Self>,
    ) -> DescriptorMatch<'_> {
        let own = sorted(&self.entries, |entry| entry.name.as_bytes());
        let sent = sorted(entries, |entry| &entry.name);
        let pairs = || own.iter().zip(&sent);
        if own.len() != sent.len() || pairs().any(|(own, sent)| own.name.as_bytes() != sent.name) {
            return DescriptorMatch::Names;
        }
        if self.domain.as_deref().is_some_and(|own| own.as_bytes() != domain) {
            return DescriptorMatch::Domain;
        }
        let differs = |(own, sent): &(&&EntryPattern, &&DescriptorEntry)| {
            own.value.as_deref().is_some_and(|value| value.as_bytes() != sent.value)
        };
        if let Some((own, _)) = pairs().find(differs) {
            return DescriptorMatch::Value(&own.name);
        }
        match chosen {
            Some(chosen) if std::ptr::eq(chosen, self) => DescriptorMatch::Chosen,
            Some(chosen) if chosen.values() > self.values() => DescriptorMatch::FewerValues,
            Some(chosen) if chosen.domain.is_some() && self.domain.is_none() => DescriptorMatch::AnyDomain,
            _ => DescriptorMatch::Later,
        }
    }
}

/// Entries in the order of their names; those with one name stay in their order.
fn sorted<T>(entries: &[T], name: impl Fn(&T) -> &[u8]) -> SmallVec<[&T; 8]> {
    let mut sorted: SmallVec<[&T; 8]> = entries.iter().collect();
    sorted.sort_by(|one, other| name(one).cmp(name(other)));
    sorted
}

/// Texts with their lengths, so that no two lists are equal.
fn joined<'t>(texts: impl Iterator<Item = &'t [u8]>) -> Vec<u8> {
    let mut joined = Vec::with_capacity(64);
    for text in texts {
        joined.extend_from_slice(&(text.len() as u64).to_le_bytes());
        joined.extend_from_slice(text);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(domain: Option<&str>, entries: &[(&str, Option<&str>)]) -> DescriptorRule {
        let entry = |&(name, value): &(&str, Option<&str>)| EntryPattern {
            name: name.into(),
            value: value.map(Into::into),
        };
        DescriptorRule {
            domain: domain.map(Into::into),
            entries: entries.iter().map(entry).collect(),
            route: RouteIndex(0),
            cost: Cost::ONE,
            report: false,
            overrides: false,
        }
    }

    fn found(rules: &[DescriptorRule], domain: &str, entries: &[(&str, &str)]) -> Option<usize> {
        let rules = DescriptorRules::new(rules.to_vec());
        let entry =
            |&(name, value): &(&str, &str)| DescriptorEntry { name: name.into(), value: value.into() };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let found = rules.find(domain.as_bytes(), &entries)?;
        rules.iter().position(|rule| std::ptr::eq(rule, found))
    }

    #[test]
    fn a_rule_names_every_entry_in_any_order() {
        let rules = [rule(None, &[("a", None), ("b", None)])];
        assert_eq!(found(&rules, "x", &[("b", "1"), ("a", "2")]), Some(0));
        assert_eq!(found(&rules, "x", &[("a", "2")]), None);
        assert_eq!(found(&rules, "x", &[("a", "2"), ("b", "1"), ("c", "1")]), None);
        assert_eq!(found(&rules, "x", &[("a", "2"), ("a", "2"), ("b", "1")]), None);
        assert_eq!(found(&rules, "x", &[]), None);
    }

    #[test]
    fn the_rule_with_the_most_values_wins_then_one_with_a_domain_then_the_first() {
        let any = [("a", None), ("b", None)];
        let rules = [
            rule(None, &any),
            rule(None, &[("a", Some("1")), ("b", None)]),
            rule(None, &[("a", None), ("b", Some("2"))]),
            rule(Some("shop"), &any),
            rule(Some("shop"), &[("a", None), ("b", Some("2"))]),
            rule(None, &[("a", Some("1")), ("b", Some("2"))]),
        ];
        for (domain, a, b, expected) in [
            ("x", "0", "0", 0),
            ("shop", "0", "0", 3),
            ("x", "1", "0", 1),
            ("x", "0", "2", 2),
            ("shop", "0", "2", 4),
            ("x", "1", "2", 5),
            ("shop", "1", "2", 5),
        ] {
            assert_eq!(found(&rules, domain, &[("a", a), ("b", b)]), Some(expected), "{domain} {a} {b}");
        }
    }

    #[test]
    fn each_rule_says_why_it_is_not_the_one() {
        let any = [("a", None), ("b", None)];
        let rules = DescriptorRules::new(vec![
            rule(Some("shop"), &any),
            rule(None, &[("a", Some("1")), ("b", None)]),
            rule(Some("shop"), &[("a", Some("1")), ("b", None)]),
            rule(Some("shop"), &[("a", Some("1")), ("b", None)]),
            rule(Some("other"), &any),
            rule(None, &[("a", Some("2")), ("b", None)]),
            rule(None, &[("a", None)]),
        ]);
        let entry = |name: &str| DescriptorEntry { name: name.into(), value: "1".into() };
        let explained = rules.explain(b"shop", &[entry("b"), entry("a")]);
        let matches: Vec<_> = explained.iter().map(|(_, verdict)| *verdict).collect();
        use DescriptorMatch::{AnyDomain, Chosen, Domain, FewerValues, Later, Names, Value};
        assert_eq!(matches, [FewerValues, AnyDomain, Chosen, Later, Domain, Value("a"), Names]);
    }

    proptest::proptest! {
        /// The explanation chooses the rule that decides, and that rule is the only one.
        #[test]
        fn the_explanation_agrees(
            rules in proptest::collection::vec(
                (proptest::option::of("[xy]"), proptest::collection::vec(("[ab]", proptest::option::of("[12]")), 1..4)),
                0..12,
            ),
            domain in "[xy]",
            sent in proptest::collection::vec(("[ab]", "[12]"), 0..4),
        ) {
            let with = |(domain, entries): &(Option<String>, Vec<(String, Option<String>)>)| {
                let entries: Vec<_> = entries.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
                rule(domain.as_deref(), &entries)
            };
            let rules = DescriptorRules::new(rules.iter().map(with).collect());
            let entry = |(name, value): &(String, String)| DescriptorEntry {
                name: name.clone().into(),
                value: value.clone().into(),
            };
            let sent: Vec<_> = sent.iter().map(entry).collect();
            let found = rules.find(domain.as_bytes(), &sent).map(std::ptr::from_ref);
            let explained = rules.explain(domain.as_bytes(), &sent);
            let chosen: Vec<_> = explained
                .iter()
                .filter(|(_, verdict)| *verdict == DescriptorMatch::Chosen)
                .map(|(rule, _)| std::ptr::from_ref(*rule))
                .collect();
            proptest::prop_assert_eq!(chosen, Vec::from_iter(found));
            let is_open = |verdict: &DescriptorMatch<'_>| matches!(verdict, DescriptorMatch::FewerValues | DescriptorMatch::AnyDomain | DescriptorMatch::Later);
            proptest::prop_assert!(found.is_some() || !explained.iter().any(|(_, verdict)| is_open(verdict)));
        }
    }

    #[test]
    fn entries_with_one_name_are_told_apart_by_their_order() {
        let rules = [rule(None, &[("k", Some("a")), ("k", Some("b"))])];
        assert_eq!(found(&rules, "x", &[("k", "a"), ("k", "b")]), Some(0));
        assert_eq!(found(&rules, "x", &[("k", "b"), ("k", "a")]), None);
    }

    #[test]
    fn no_value_runs_into_the_next() {
        let rules = [rule(None, &[("a", Some("1")), ("b", Some("2"))])];
        assert_eq!(found(&rules, "x", &[("a", "12"), ("b", "")]), None);
        assert_eq!(found(&rules, "x", &[("a1", ""), ("b", "2")]), None);
    }
}
