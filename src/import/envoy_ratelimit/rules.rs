//! The tree of rules.

use std::collections::HashSet;

use super::super::remark::{ImportPlace, quoted};
use crate::labels::labels;

/// The rules of all files.
#[derive(Default)]
pub(super) struct RuleTree {
    pub(super) rules: Vec<Rule>,
    pub(super) domains: Vec<RuleDomain>,
    /// Domain, parent, key and value of each rule.
    pub(super) written: HashSet<(usize, Option<usize>, String, String)>,
}

/// A domain with its rules of the first level.
pub(super) struct RuleDomain {
    pub(super) name: String,
    pub(super) rules: Vec<usize>,
}

/// A node of the tree.
pub(super) struct Rule {
    pub(super) key: String,
    pub(super) value: RuleValue,
    pub(super) limit: Option<RuleLimit>,
    /// The values that fit a `*` have one counter.
    pub(super) shares_threshold: bool,
    pub(super) is_shadow: bool,
    pub(super) is_quota: bool,
    /// The index of the domain.
    pub(super) domain: usize,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    pub(super) place: ImportPlace,
}

/// The values that a rule is for.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum RuleValue {
    /// All that no sibling is for.
    Any,
    Literal(String),
    /// With `*`, each of which stands for any characters.
    Pattern(String),
}

/// The limit of a rule.
pub(super) struct RuleLimit {
    pub(super) unlimited: bool,
    pub(super) requests: u32,
    pub(super) unit: WindowUnit,
    /// Empty if it has none.
    pub(super) name: String,
    /// The names of limits that do not apply in a call in which this one does.
    pub(super) replaces: Vec<(String, ImportPlace)>,
    /// Of `requests_per_unit`, or of the whole.
    pub(super) place: ImportPlace,
    /// Of `unit`, or of the whole.
    pub(super) unit_place: ImportPlace,
}

labels! {
    /// The lengths of windows.
    pub(super) enum WindowUnit {
        Second = "second",
        Minute = "minute",
        Hour = "hour",
        Day = "day",
        Week = "week",
        /// 30 days in that service.
        Month = "month",
        /// 365 days in that service.
        Year = "year",
    }
}

impl RuleTree {
    /// The rules from the first level to this one.
    pub(super) fn path(&self, index: usize) -> Vec<&Rule> {
        let parent = |rule: &&Rule| rule.parent.and_then(|parent| self.rules.get(parent));
        let mut path: Vec<_> = std::iter::successors(self.rules.get(index), parent).collect();
        path.reverse();
        path
    }
}

impl Rule {
    /// Whether lists that end here are limited.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.as_ref().is_some_and(|limit| !limit.unlimited)
    }
}

impl RuleValue {
    /// The values that are meant by this text; empty: all.
    pub(super) fn new(value: String) -> Self {
        match value {
            value if value.is_empty() => Self::Any,
            value if value.contains('*') => Self::Pattern(value),
            value => Self::Literal(value),
        }
    }

    /// Whether it is a pattern that every value fits.
    pub(super) fn fits_all(&self) -> bool {
        matches!(self, Self::Pattern(pattern) if pattern.bytes().all(|byte| byte == b'*'))
    }
}

/// Whether `value` fits the pattern: the part before the first `*` begins it, the one after the last ends it, and those
/// between follow each other.
pub(super) fn fits(pattern: &str, value: &str) -> bool {
    let (Some((first, middle)), Some((_, last))) = (pattern.split_once('*'), pattern.rsplit_once('*')) else {
        return pattern == value;
    };
    let Some(mut rest) = value.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else {
        return false;
    };
    let between = middle.strip_suffix(last).unwrap_or(middle);
    for part in between.split('*') {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    true
}

/// A rule in words: `remote_address`, `remote_address = 192.0.2.1`.
pub(super) fn shown(key: &str, value: &RuleValue) -> String {
    match value {
        RuleValue::Any => quoted(key),
        RuleValue::Literal(value) | RuleValue::Pattern(value) => quoted(&format!("{key}: {value}")),
    }
}
