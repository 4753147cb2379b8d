//! The tree of rules as `[[descriptors]]`, of which the one with most literals applies, and of equals the first.
//!
//! The service walks from level to level and never goes back; here whole lists are compared. So for each list of keys
//! all combinations of values are walked that the tree tells apart, `*` standing for the rest, and a combination is
//! written if without it another one would apply. For example, a rule `a = x` without a limit needs
//! `{ a = "x", b = "*" }` beside `{ a = "*", b = "*" }`, since there a list with `a = x` never reaches the rules of `a`.
//!
//! Of all combinations that fit a list, the one with all its literals that the tree tells apart contains each other, so
//! it has most. A `value` with `*` cannot be written: the limits of all rules that may fit then apply together. `match`
//! does not know the order of entries with different keys: rules with both orders are an error.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::super::remark::ImportReport;
use super::rules::{Rule, RuleTree, RuleValue, fits, shown};
use crate::store::MAX_CHARGES;

/// The maximum number of combinations that are walked.
const MAX_COMBINATIONS: usize = 100_000;
/// The maximum number of rules that are looked at on the way.
const MAX_LOOKS: usize = 10_000_000;

/// One `[[descriptors]]`.
#[derive(Clone, Debug)]
pub(super) struct RuleMatch<'t> {
    /// The index of the domain.
    pub(super) domain: usize,
    /// Keys with their literal value, or `None` for all values.
    pub(super) entries: Vec<(&'t str, Option<&'t str>)>,
    /// The rules with limits, each once.
    pub(super) limits: Vec<usize>,
    /// The rule for which it is written.
    pub(super) rule: usize,
}

impl RuleMatch<'_> {
    /// The positions of literals, a bit each.
    fn literals(&self) -> u64 {
        let bits = self.entries.iter().take(64).enumerate();
        bits.filter(|(_, (_, literal))| literal.is_some()).map(|(at, _)| 1 << at).sum()
    }

    /// The values at these positions.
    fn values(&self, positions: u64) -> Vec<&str> {
        let at = self.entries.iter().take(64).enumerate();
        at.filter(|(at, _)| positions & 1 << at != 0).filter_map(|(_, (_, literal))| *literal).collect()
    }
}

/// All `[[descriptors]]`, in the order of their rules. `None` if there are too many combinations.
pub(super) fn descriptors<'t>(tree: &'t RuleTree, report: &mut ImportReport) -> Option<Vec<RuleMatch<'t>>> {
    let mut walk = RuleWalk::new(tree);
    for domain in 0..tree.domains.len() {
        let root = RuleState {
            active: vec![RuleNode::Root],
            others: Rc::default(),
            possible: vec![RuleNode::Root],
            rule: None,
        };
        if walk.level(domain, &root).is_none() {
            let first = tree.rules.iter().find(|rule| rule.domain == domain);
            let message = "the rules tell too many combinations of values apart";
            let help = "import some of the rules at a time, or name fewer values on several levels";
            report.error(first.map(|rule| rule.place).unwrap_or_default(), message, help);
            return None;
        }
    }
    let mut found = walk.found;
    refuse_what_cannot_be_loaded(tree, &found, report);
    if report.has_errors() {
        return None;
    }
    found.sort_by_cached_key(|found| {
        let place = tree.rules.get(found.rule).map(|rule| rule.place);
        (found.domain, place, Reverse(found.literals().count_ones()), found.entries.clone())
    });
    let mut needed = needed(&found).into_iter();
    found.retain(|_| needed.next().unwrap_or(false));
    Some(found)
}

/// Adds errors for rules that have no translation.
fn refuse_what_cannot_be_loaded(tree: &RuleTree, found: &[RuleMatch<'_>], report: &mut ImportReport) {
    let mut orders: HashMap<_, Vec<&str>> = HashMap::new();
    let mut told = HashSet::new();
    for combination in found {
        let Some(rule) = tree.rules.get(combination.rule) else { continue };
        let keys: Vec<_> = combination.entries.iter().map(|(key, _)| *key).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        let first = orders.entry((combination.domain, sorted)).or_insert_with(|| keys.clone());
        if *first != keys && told.insert(keys.clone()) {
            let message =
                format!("rules for {} and for {}: `match` knows no order", first.join(", "), keys.join(", "));
            report.error(rule.place, &message, "import the file without one of them");
        }
        if combination.limits.len() > MAX_CHARGES && told.insert(keys) {
            let message = format!(
                "more than {MAX_CHARGES} limits may apply to values of {}: `match` has whole values or `*`",
                shown(&rule.key, &RuleValue::Any)
            );
            report.error(rule.place, &message, "name the values, or leave rules with `*` out");
        }
    }
}

/// Whether each combination is needed. They are in the order in which they are written.
fn needed(found: &[RuleMatch<'_>]) -> Vec<bool> {
    let mut groups: HashMap<_, Vec<usize>> = HashMap::new();
    for (at, combination) in found.iter().enumerate() {
        let keys: Vec<_> = combination.entries.iter().map(|(key, _)| *key).collect();
        groups.entry((combination.domain, keys)).or_default().push(at);
    }
    let mut needed = vec![false; found.len()];
    for mut group in groups.into_values() {
        group.sort_by_key(|at| found.get(*at).map(|combination| combination.literals().count_ones()));
        // The combinations that are written: by the positions of their literals, by their values.
        let mut written: HashMap<u64, HashMap<Vec<&str>, usize>> = HashMap::new();
        for at in group {
            let Some(combination) = found.get(at) else { continue };
            let literals = combination.literals();
            let fitting = written.iter().filter(|(positions, _)| *positions & !literals == 0);
            let fitting = fitting.filter_map(|(positions, of_values)| {
                let at = of_values.get(&combination.values(*positions))?;
                Some((Reverse(positions.count_ones()), *at))
            });
            let applies = fitting.min().and_then(|(_, at)| found.get(at));
            if applies.map_or(&[][..], |applies| &applies.limits) != combination.limits {
                written.entry(literals).or_default().insert(combination.values(literals), at);
                needed.iter_mut().skip(at).take(1).for_each(|needed| *needed = true);
            }
        }
    }
    needed
}

/// A node of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum RuleNode {
    Root,
    Rule(usize),
}

impl RuleNode {
    fn rule(self) -> Option<usize> {
        match self {
            Self::Root => None,
            Self::Rule(rule) => Some(rule),
        }
    }
}

/// Where a combination leads.
struct RuleState {
    /// The nodes that a reading of the values leads to.
    active: Vec<RuleNode>,
    /// Further ones, that other values lead to as well.
    others: Rc<OtherRules>,
    /// Those of both that the service may be at.
    possible: Vec<RuleNode>,
    /// The last rule that the service was at.
    rule: Option<usize>,
}

/// The rules of a level without a literal: each value may lead to them.
#[derive(Default)]
struct OtherRules {
    nodes: Vec<RuleNode>,
    has_limit: bool,
    has_children: bool,
}

/// The rules below a node with the same key.
#[derive(Default)]
struct SiblingRules<'t> {
    literals: Vec<&'t str>,
    by_literal: HashMap<&'t str, usize>,
    patterns: Vec<usize>,
    any: Option<usize>,
}

/// The rules below a node.
#[derive(Default)]
struct ChildRules<'t> {
    keys: Vec<&'t str>,
    by_key: HashMap<&'t str, SiblingRules<'t>>,
}

struct RuleWalk<'t> {
    tree: &'t RuleTree,
    of_domain: Vec<ChildRules<'t>>,
    of_rule: Vec<ChildRules<'t>>,
    path: Vec<(&'t str, Option<&'t str>)>,
    found: Vec<RuleMatch<'t>>,
    combinations: usize,
    looks: Cell<usize>,
}

impl<'t> RuleWalk<'t> {
    fn new(tree: &'t RuleTree) -> Self {
        let of_domain = tree.domains.iter().map(|domain| ChildRules::new(tree, &domain.rules)).collect();
        let of_rule = tree.rules.iter().map(|rule| ChildRules::new(tree, &rule.children)).collect();
        let (path, found, looks) = (Vec::new(), Vec::new(), Cell::new(0));
        Self { tree, of_domain, of_rule, path, found, combinations: 0, looks }
    }

    fn children(&self, domain: usize, node: RuleNode) -> Option<&ChildRules<'t>> {
        match node {
            RuleNode::Root => self.of_domain.get(domain),
            RuleNode::Rule(rule) => self.of_rule.get(rule),
        }
    }

    /// Counts rules that are looked at. `None` if there were too many.
    fn look(&self, count: usize) -> Option<()> {
        self.looks.set(self.looks.get() + count);
        (self.looks.get() <= MAX_LOOKS).then_some(())
    }

    /// Walks all combinations below a state. `None` if there are too many.
    fn level(&mut self, domain: usize, state: &RuleState) -> Option<()> {
        let mut active = state.active.clone();
        if state.others.has_children {
            active.extend(&state.others.nodes);
        }
        self.look(active.len())?;
        let of_active = active.iter().filter_map(|node| self.children(domain, *node));
        let keys = unique(of_active.flat_map(|children| children.keys.iter().copied()));
        for key in keys {
            self.look(active.len() + state.possible.len())?;
            for (literal, next) in self.nexts(domain, &active, state, key)? {
                self.combinations += 1;
                if self.combinations > MAX_COMBINATIONS {
                    return None;
                }
                self.path.push((key, literal));
                self.note(domain, &next)?;
                self.level(domain, &next)?;
                self.path.pop();
            }
        }
        Some(())
    }

    /// The states behind an entry with this key: one for each literal, and one for all other values.
    fn nexts(
        &self,
        domain: usize,
        active: &[RuleNode],
        state: &RuleState,
        key: &str,
    ) -> Option<NextStates<'t>> {
        let siblings = |nodes: &[RuleNode]| -> Vec<&SiblingRules<'t>> {
            let children = nodes.iter().filter_map(|node| self.children(domain, *node));
            children.filter_map(|children| children.by_key.get(key)).collect()
        };
        let (active, possible) = (siblings(active), siblings(&state.possible));
        let others =
            active.iter().flat_map(|siblings| siblings.patterns.iter().chain(&siblings.any).copied());
        let others = Rc::new(self.others(others.collect()));
        self.look(others.nodes.len())?;
        let nodes = |rules: &[usize]| rules.iter().copied().map(RuleNode::Rule).collect::<Vec<_>>();
        let mut nexts = Vec::new();
        for literal in unique(active.iter().flat_map(|siblings| siblings.literals.iter().copied())) {
            self.look(active.len() + possible.len())?;
            let named = active.iter().filter_map(|siblings| siblings.by_literal.get(literal).copied());
            let named: Vec<_> = named.collect();
            let mut taken = Vec::new();
            for siblings in &possible {
                if !siblings.by_literal.contains_key(literal) {
                    self.look(siblings.patterns.len())?;
                }
                taken.extend(siblings.taken_by(self.tree, literal));
            }
            let rule = taken.first().copied().or(state.rule).or_else(|| named.first().copied());
            let (active, others, possible) = (nodes(&named), Rc::clone(&others), nodes(&taken));
            nexts.push((Some(literal), RuleState { active, others, possible, rule }));
        }
        if !others.nodes.is_empty() {
            let taken = possible.iter().flat_map(|siblings| siblings.taken_by_others(self.tree));
            let taken: Vec<_> = taken.collect();
            let first = others.nodes.first().and_then(|node| node.rule());
            let rule = taken.first().copied().or(state.rule).or(first);
            nexts.push((None, RuleState { active: Vec::new(), others, possible: nodes(&taken), rule }));
        }
        Some(nexts)
    }

    fn others(&self, rules: Vec<usize>) -> OtherRules {
        let all = || rules.iter().filter_map(|rule| self.tree.rules.get(*rule));
        OtherRules {
            has_limit: all().any(Rule::is_limited),
            has_children: all().any(|rule| !rule.children.is_empty()),
            nodes: rules.iter().copied().map(RuleNode::Rule).collect(),
        }
    }

    /// Notes a combination, if a rule with a limit is at its end. `None` if too many rules were looked at.
    fn note(&mut self, domain: usize, state: &RuleState) -> Option<()> {
        let limited = |nodes: &[RuleNode]| -> Vec<usize> {
            let is_limited = |rule: &usize| self.tree.rules.get(*rule).is_some_and(Rule::is_limited);
            nodes.iter().filter_map(|node| node.rule()).filter(is_limited).collect()
        };
        let has_limit = state.others.has_limit || !limited(&state.active).is_empty();
        self.look(state.possible.len())?;
        if let Some(rule) = state.rule.filter(|_| has_limit) {
            let limits = self.least(limited(&state.possible));
            self.found.push(RuleMatch { domain, entries: self.path.clone(), limits, rule });
        }
        Some(())
    }
}

/// A literal, or `None` for all other values, with the state behind it.
type NextStates<'t> = Vec<(Option<&'t str>, RuleState)>;

impl<'t> RuleWalk<'t> {
    /// Of limits that count the same calls in the same windows, the smallest: the others never refuse. Only of those that
    /// count each list of values alone, so that no other list is counted elsewhere.
    fn least(&self, mut limits: Vec<usize>) -> Vec<usize> {
        limits.sort_unstable();
        let counts_alone = |rule: &&Rule| !matches!(rule.value, RuleValue::Literal(_));
        let mut least: HashMap<_, usize> = HashMap::new();
        let mut kept = Vec::new();
        for index in limits {
            let path = self.tree.path(index);
            let Some(rule) = path.last() else { continue };
            let Some(limit) = rule.limit.as_ref() else { continue };
            if limit.requests == 0 || path.iter().any(|rule| rule.shares_threshold) {
                kept.push(index);
                continue;
            }
            let keys: Vec<_> = path.iter().filter(|rule| counts_alone(rule)).map(|rule| &*rule.key).collect();
            let requests = |rule: usize| {
                self.tree.rules.get(rule).and_then(|rule| rule.limit.as_ref()).map(|limit| limit.requests)
            };
            let same = least.entry((keys, limit.unit.as_str(), rule.is_shadow)).or_insert(index);
            if requests(index) < requests(*same) {
                *same = index;
            }
        }
        kept.extend(least.into_values());
        kept.sort_unstable();
        kept
    }
}

impl<'t> ChildRules<'t> {
    fn new(tree: &'t RuleTree, rules: &[usize]) -> Self {
        let mut children = Self::default();
        for (index, rule) in rules.iter().filter_map(|rule| Some((*rule, tree.rules.get(*rule)?))) {
            if !children.by_key.contains_key(&*rule.key) {
                children.keys.push(&rule.key);
            }
            let siblings = children.by_key.entry(&rule.key).or_default();
            match &rule.value {
                RuleValue::Any => siblings.any = Some(index),
                RuleValue::Pattern(_) => siblings.patterns.push(index),
                RuleValue::Literal(literal) => {
                    siblings.literals.push(literal);
                    siblings.by_literal.insert(literal, index);
                }
            }
        }
        children
    }
}

impl SiblingRules<'_> {
    /// The rule that the service takes for this value.
    fn taken_by(&self, tree: &RuleTree, literal: &str) -> Option<usize> {
        let fitting = |rule: &&usize| match tree.rules.get(**rule).map(|rule| &rule.value) {
            Some(RuleValue::Pattern(pattern)) => fits(pattern, literal),
            _ => false,
        };
        let by_pattern = || self.patterns.iter().find(fitting).copied();
        self.by_literal.get(literal).copied().or_else(by_pattern).or(self.any)
    }

    /// The rules that the service may take for a value that no literal is equal to.
    fn taken_by_others(&self, tree: &RuleTree) -> Vec<usize> {
        let fits_all = |rule: &usize| tree.rules.get(*rule).is_some_and(|rule| rule.value.fits_all());
        match self.patterns.iter().position(fits_all) {
            Some(last) => self.patterns.iter().take(last + 1).copied().collect(),
            None => self.patterns.iter().copied().chain(self.any).collect(),
        }
    }
}

/// Each item once, in the order in which they come first.
fn unique<T: Copy + Eq + std::hash::Hash>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = HashSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}
