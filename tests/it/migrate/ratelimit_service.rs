//! The files of `tests/migrate/envoy-ratelimit`: configurations of Envoy's rate limit service as people have published
//! them, rewritten, each with the answers of that service, and the service itself as a model.
//!
//! A table of calls is sent from top to bottom within one window. `ok` calls in a row are answered OK and then `over`
//! calls OVER_LIMIT. `here` says what the gateway answers in their place, and why: a part of a warning of the import.

use std::collections::HashMap;
use std::path::PathBuf;

use proptest::prelude::*;
use serde::Deserialize;
use serde_yaml_ng::Value;

use crate::harness::descriptors::{Descriptors, Entries, entries};
use crate::harness::pages::root;
use crate::harness::{Gateway, RateLimitClient, descriptor, message};
use tollgate::import::remark::RemarkLevel;
use tollgate::import::{ImportFile, Imported, envoy_ratelimit};
use tollgate::rate_limit_service::RateLimitCode;

/// Why an answer differs without a warning: it does for any file, and the page says so.
const OF_ALL_FILES: [&str; 2] = ["a refused call charges nothing", "entries have no order"];

/// A table of calls.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallTable {
    calls: Vec<Calls>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    /// Default: the one of the file.
    domain: Option<String>,
    descriptors: Vec<String>,
    #[serde(default = "one")]
    hits: u64,
    ok: usize,
    #[serde(default)]
    over: usize,
    here: Option<Here>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Here {
    ok: usize,
    over: usize,
    why: String,
}

fn one() -> u64 {
    1
}

/// The files with their tables, by name.
fn examples() -> Vec<(String, String, CallTable)> {
    let folder = root().join("tests/migrate/envoy-ratelimit");
    let files = std::fs::read_dir(folder).expect("it is there");
    let paths = files.map(|file| file.expect("it can be listed").path());
    let mut yaml: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect();
    yaml.sort();
    let read = |path: PathBuf| {
        let text = |path: &PathBuf| {
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let table = toml::from_str(&text(&path.with_extension("toml")));
        (name.clone(), text(&path), table.unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    yaml.into_iter().map(read).collect()
}

fn imported(name: &str, text: &str) -> Imported {
    envoy_ratelimit::import(&[ImportFile { name: name.to_owned(), text: text.to_owned() }])
}

#[test]
fn the_published_files_are_imported_and_the_tables_hold_there_and_here() {
    let examples = examples();
    assert_eq!(examples.len(), 10);
    for (name, text, table) in examples {
        let Imported { toml, report } = imported(&name, &text);
        let toml = toml.unwrap_or_else(|| panic!("{name}:\n{}", report.render(false)));
        let warnings = report.remarks().iter().filter(|remark| remark.level == RemarkLevel::Warning);
        let warnings: Vec<_> = warnings.map(|remark| remark.message.as_str()).collect();
        let (mut here, mut there) = (Descriptors::parse(&toml), RateLimitService::parse(&text));
        for calls in &table.calls {
            let domain = calls.domain.as_deref().unwrap_or(&there.domain).to_owned();
            let lists: Vec<_> = calls.descriptors.iter().map(|list| entries(list)).collect();
            let count = calls.ok + calls.over;
            let there: Vec<_> = (0..count).map(|_| there.call(&domain, &lists, calls.hits)).collect();
            let here: Vec<_> = (0..count).map(|_| here.call(&domain, &lists, calls.hits)).collect();
            let expected = |ok: usize, over: usize| [vec![true; ok], vec![false; over]].concat();
            assert_eq!(there, expected(calls.ok, calls.over), "{name}, the service: {calls:?}");
            let Some(other) = &calls.here else {
                assert_eq!(here, there, "{name}, the gateway: {calls:?}\n{toml}");
                continue;
            };
            assert_eq!(here, expected(other.ok, other.over), "{name}, the gateway: {calls:?}\n{toml}");
            assert_ne!(here, there, "{name}: there is no difference: {calls:?}");
            let is_told = warnings.iter().any(|warning| warning.contains(&other.why));
            assert!(
                is_told || OF_ALL_FILES.contains(&&*other.why),
                "{name}: `{}` is not in {warnings:#?}",
                other.why
            );
        }
    }
}

#[test]
fn the_gateway_answers_the_tables_by_grpc() {
    for (name, text, table) in examples() {
        let toml = imported(&name, &text).toml.expect("it is imported");
        let file = format!(
            "[decisions]\nlisten = \"127.0.0.1:0\"\n[[routes]]\npath = \"/*\"\nrespond = {{ status = 204 }}\n{}",
            in_one_window(&toml)
        );
        let gateway = Gateway::start(&file);
        let client = RateLimitClient::connect(gateway.decisions_addr());
        let domain_of_file = RateLimitService::parse(&text).domain;
        for calls in &table.calls {
            let lists: Vec<_> = calls.descriptors.iter().map(|list| entries(list)).collect();
            let descriptors = lists.iter().map(|list| {
                let pairs: Vec<_> = list.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
                descriptor(&pairs, None)
            });
            let mut call =
                message(calls.domain.as_deref().unwrap_or(&domain_of_file), &descriptors.collect::<Vec<_>>());
            call.hits_addend = u32::try_from(calls.hits).expect("32 bits");
            let ask = |_| client.ask(&call).expect("an answer").overall_code == i32::from(RateLimitCode::Ok);
            let answers: Vec<_> = (0..calls.ok + calls.over).map(ask).collect();
            let (ok, over) = calls.here.as_ref().map_or((calls.ok, calls.over), |here| (here.ok, here.over));
            assert_eq!(answers, [vec![true; ok], vec![false; over]].concat(), "{name}: {calls:?}\n{file}");
        }
    }
}

/// The same limits with windows of a week, so that none ends during the test.
fn in_one_window(toml: &str) -> String {
    let line = |line: &str| match line.split_once('/') {
        Some((rate, _)) if line.starts_with("rate ") => format!("{rate}/week\"\n"),
        _ => format!("{line}\n"),
    };
    toml.lines().map(line).collect()
}

#[test]
fn each_remark_names_the_file_and_the_line_in_the_output() {
    for (name, text, _) in examples() {
        let Imported { toml, report } = imported(&name, &text);
        let toml = toml.expect("it is imported");
        let comments: String =
            toml.lines().filter_map(|line| line.strip_prefix("# ")).map(|line| format!("{line} ")).collect();
        for remark in report.remarks() {
            let comment = format!("{}: {}", report.line_of(remark.place), remark.message);
            assert!(comments.contains(&comment), "`{comment}` is not in\n{toml}");
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Any file

/// The keys of each level: `a` may be repeated, and no two lists of keys differ by their order only.
const KEYS: [[&str; 2]; 3] = [["a", "b"], ["a", "c"], ["a", "d"]];
const LITERALS: [&str; 3] = ["", "x", "y"];
const WITH_PATTERNS: [&str; 7] = ["", "x", "y", "x*", "*", "*y", "x*y"];

/// A rule of a file that a test makes.
#[derive(Clone, Debug, Default)]
struct Made {
    key: &'static str,
    value: &'static str,
    limit: Option<String>,
    shares: bool,
    shadow: bool,
    children: Vec<Made>,
}

/// Keys and values from level to level; and of the last one whether it is unlimited, shares its threshold, is in shadow.
type MadePath = (Vec<(&'static str, &'static str)>, (bool, bool, bool));

/// A key and a value for each of one to three levels.
fn levels(values: &'static [&'static str]) -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let level = |keys: &'static [&str; 2]| (prop::sample::select(&keys[..]), prop::sample::select(values));
    ((level(&KEYS[0]), level(&KEYS[1]), level(&KEYS[2])), 1..4_usize)
        .prop_map(|((one, two, three), count)| [one, two, three].into_iter().take(count).collect())
}

fn paths(values: &'static [&'static str]) -> impl Strategy<Value = Vec<MadePath>> {
    let kinds = (prop::bool::weighted(0.2), any::<bool>(), prop::bool::weighted(0.2));
    prop::collection::vec((levels(values), kinds), 1..9)
}

fn lists() -> impl Strategy<Value = Vec<Entries>> {
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let list = levels(&["x", "y", "z", "xzy", "xy"]);
    prop::collection::vec(list.prop_map(move |list| list.into_iter().map(owned).collect()), 1..60)
}

/// A file with these rules. Each limit has another count, so that the counts name the limits.
fn file_of(paths: &[MadePath]) -> String {
    let mut roots = Vec::new();
    for (at, (path, (unlimited, shares, shadow))) in paths.iter().enumerate() {
        let limit = match unlimited {
            true => "{ unlimited: true }".to_owned(),
            false => format!("{{ unit: hour, requests_per_unit: {} }}", at + 1),
        };
        let last = made_at(&mut roots, path);
        last.limit = Some(limit);
        (last.shares, last.shadow) = (*shares && last.value.contains('*'), *shadow);
    }
    format!("domain: d\ndescriptors: {}\n", list_of(&roots))
}

/// The rule at this path.
fn made_at<'m>(level: &'m mut Vec<Made>, path: &[(&'static str, &'static str)]) -> &'m mut Made {
    let (key, value) = path[0];
    let known = level.iter().position(|made| made.key == key && made.value == value);
    let index = known.unwrap_or_else(|| {
        level.push(Made { key, value, ..Made::default() });
        level.len() - 1
    });
    let made = &mut level[index];
    if path.len() == 1 { made } else { made_at(&mut made.children, &path[1..]) }
}

fn list_of(made: &[Made]) -> String {
    let rule = |made: &Made| {
        let limit = made.limit.as_ref().map_or(String::new(), |limit| format!(", rate_limit: {limit}"));
        let Made { key, value, shares, shadow, children, .. } = made;
        format!(
            "{{ key: {key}, value: '{value}', share_threshold: {shares}, shadow_mode: {shadow}, descriptors: {}{limit} }}",
            list_of(children)
        )
    };
    format!("[{}]", made.iter().map(rule).collect::<Vec<_>>().join(", "))
}

/// Both for a file: the service, and the gateway with what was imported.
fn both(yaml: &str) -> (RateLimitService, Descriptors) {
    let Imported { toml, report } = imported("any.yaml", yaml);
    let toml = toml.unwrap_or_else(|| panic!("{}\n{yaml}", report.render(false)));
    (RateLimitService::parse(yaml), Descriptors::parse(&toml))
}

/// The count of a limit, and whether it is in shadow.
type Count = (u64, bool);
/// The service's limit for a list with its counter, and those that apply here.
type Counters = (Option<(Count, String)>, Vec<(Count, Vec<String>)>);

fn counters(there: &RateLimitService, here: &Descriptors, list: &Entries) -> Counters {
    let found = there.limit_of("d", list).filter(|found| !found.limit.unlimited);
    let found = found.map(|found| ((found.limit.count, found.limit.shadow), found.counter));
    let limits = here.applied("d", list).iter().map(|name| {
        let limit = &here.limits[name];
        ((limit.count, limit.is_shadow), here.counter(name, list))
    });
    (found, limits.collect())
}

proptest! {
    /// Of each list the limit of the service or a smaller one applies here, too, and lists that share a counter there
    /// share one here.
    #[test]
    fn no_translation_is_looser(paths in paths(&WITH_PATTERNS), lists in lists()) {
        let yaml = file_of(&paths);
        let (there, here) = both(&yaml);
        let mut shared: HashMap<String, Vec<String>> = HashMap::new();
        for list in &lists {
            if let (Some((count @ (_, false), counter)), limits) = counters(&there, &here, list) {
                let enforced: Vec<_> = limits.iter().filter(|((_, is_shadow), _)| !is_shadow).collect();
                let least = enforced.iter().min().filter(|(least, _)| *least <= count);
                let same = enforced.iter().find(|(here, _)| *here == count).or(least).map(|(_, same)| same.clone());
                prop_assert!(same.is_some(), "{list:?} has {count:?} there and {limits:?} here:\n{yaml}");
                let same = same.unwrap_or_default();
                let first = shared.entry(counter.clone()).or_insert_with(|| same.clone());
                prop_assert_eq!(&*first, &same, "{:?} of {} in\n{}", list, counter, &yaml);
            }
        }
    }

    /// Without `*` the same limits apply, with the same counters.
    #[test]
    fn a_translation_without_patterns_is_exact(paths in paths(&LITERALS), lists in lists()) {
        let yaml = file_of(&paths);
        let (mut there, mut here) = both(&yaml);
        let mut shared: HashMap<(Count, Vec<String>), String> = HashMap::new();
        for list in &lists {
            let (of_service, limits) = counters(&there, &here, list);
            let counts: Vec<_> = limits.iter().map(|(count, _)| *count).collect();
            let expected: Vec<_> = of_service.iter().map(|(count, _)| *count).collect();
            prop_assert_eq!(counts, expected, "{:?} in\n{}", list, &yaml);
            if let (Some((_, counter)), Some(limit)) = (of_service, limits.into_iter().next()) {
                let first = shared.entry(limit).or_insert_with(|| counter.clone());
                prop_assert_eq!(&*first, &counter, "{:?} in\n{}", list, &yaml);
            }
        }
        for list in lists.iter().cycle().take(3 * lists.len()) {
            let list = std::slice::from_ref(list);
            let answers = (there.call("d", list, 1), here.call("d", list, 1));
            prop_assert_eq!(answers.0, answers.1, "{:?} in\n{}", list, &yaml);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The service

/// The rate limit service, by its sources: the tree is walked from level to level; each list of values has a counter.
struct RateLimitService {
    domain: String,
    tree: Vec<Node>,
    used: HashMap<String, u64>,
}

struct Node {
    key: String,
    value: String,
    limit: Option<Limit>,
    shares: bool,
    children: Vec<Node>,
}

#[derive(Clone)]
struct Limit {
    count: u64,
    unlimited: bool,
    shadow: bool,
    quota: bool,
    name: String,
    replaces: Vec<String>,
}

/// The limit of a list of entries, and the name of its counter.
struct Applied {
    limit: Limit,
    counter: String,
}

impl RateLimitService {
    fn parse(text: &str) -> Self {
        let mut file: Value = serde_yaml_ng::from_str(text).expect("YAML");
        file.apply_merge().expect("merges of mappings");
        let domain = file["domain"].as_str().expect("a domain").to_owned();
        Self { domain, tree: nodes(&file["descriptors"]), used: HashMap::new() }
    }

    fn limit_of(&self, domain: &str, entries: &Entries) -> Option<Applied> {
        let (mut level, mut counter) = (&self.tree, String::new());
        for (at, (key, value)) in entries.iter().enumerate() {
            let of_key = || level.iter().filter(|node| node.key == *key);
            let exact = of_key().find(|node| node.value == *value && !value.is_empty());
            let by_pattern = || {
                of_key()
                    .find(|node| node.value.contains('*') && fits(node.value.as_bytes(), value.as_bytes()))
            };
            let node = exact.or_else(by_pattern).or_else(|| of_key().find(|node| node.value.is_empty()))?;
            let counted = if node.shares && exact.is_none() { &node.value } else { value };
            counter.push_str(&format!("{key}\0{counted}\0"));
            if at + 1 == entries.len() {
                let limit = node.limit.clone().filter(|_| domain == self.domain)?;
                return Some(Applied { limit, counter });
            }
            level = &node.children;
        }
        None
    }

    /// Whether a call is answered OK.
    fn call(&mut self, domain: &str, lists: &[Entries], hits: u64) -> bool {
        let found: Vec<_> = lists.iter().filter_map(|list| self.limit_of(domain, list)).collect();
        let replaced: Vec<_> = found.iter().flat_map(|applied| applied.limit.replaces.clone()).collect();
        let (mut is_over, mut quotas, mut over_quotas) = (false, 0, 0);
        for Applied { limit, counter } in found {
            if limit.unlimited || replaced.contains(&limit.name) && !limit.name.is_empty() {
                continue;
            }
            let used = self.used.entry(counter).or_default();
            *used += hits;
            let exceeds = *used > limit.count && !limit.shadow;
            quotas += usize::from(limit.quota);
            over_quotas += usize::from(limit.quota && exceeds);
            is_over |= exceeds && !limit.quota;
        }
        !is_over && (quotas == 0 || over_quotas < quotas)
    }
}

fn nodes(list: &Value) -> Vec<Node> {
    list.as_sequence().into_iter().flatten().map(node).collect()
}

fn node(rule: &Value) -> Node {
    let flag = |name: &str| rule[name].as_bool().unwrap_or(false);
    let text = |value: &Value| match value {
        Value::Number(number) => number.to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let number = |value: &Value| {
        let digits = value.as_str().map(|text| text.replace('_', ""));
        value.as_u64().or_else(|| digits?.parse().ok()).unwrap_or(0)
    };
    let limit = rule["rate_limit"].as_mapping().map(|_| &rule["rate_limit"]).map(|limit| Limit {
        count: number(&limit["requests_per_unit"]),
        unlimited: limit["unlimited"].as_bool().unwrap_or(false),
        shadow: flag("shadow_mode"),
        quota: flag("quota_mode"),
        name: text(&limit["name"]),
        replaces: limit["replaces"]
            .as_sequence()
            .into_iter()
            .flatten()
            .map(|item| text(&item["name"]))
            .collect(),
    });
    Node {
        key: text(&rule["key"]),
        value: text(&rule["value"]),
        limit,
        shares: flag("share_threshold"),
        children: nodes(&rule["descriptors"]),
    }
}

/// Whether the value fits a pattern in which `*` stands for any characters.
fn fits(pattern: &[u8], value: &[u8]) -> bool {
    match (pattern, value) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=value.len()).any(|skipped| fits(rest, &value[skipped..])),
        ([first, rest @ ..], [letter, after @ ..]) => first == letter && fits(rest, after),
        _ => false,
    }
}
