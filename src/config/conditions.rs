//! The conditions of a route: `hosts`, `path`, `methods`, `headers`, `query`, `cookies`, `body`, `clients`, `not`,
//! `merge_slashes`.

use std::collections::HashSet;

use http::{HeaderName, HeaderValue, Method};

use super::keys::{ANY, NamedSchema, SOME, Schema, flag, keys};
use super::name::Directory;
use super::report::{cut_for_help, quoted};
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use super::{headers, networks, remedies};
use crate::measure::{JsonPointer, PointerFault};
use crate::route::Conditions;
use crate::route::condition::{Condition, ValuePattern, ValuePatterns};
use crate::route::locations::Country;
use crate::route::path::PathMatching;
use crate::route::pattern::{HostPattern, PathMatcher};

keys! {
    /// Conditions of a route beside its path.
    pub(super) CONDITIONS: ConditionKeys = "conditions of a route" {
        /// Hosts, such as "api.example.com" or "*.example.com". Default: any.
        hosts = Schema::List(SOME, &Schema::Text);
        /// Methods in upper case, but CONNECT and TRACE; GET includes HEAD unless a route that fits names HEAD.
        /// Default: any.
        methods = Schema::List(SOME, &Schema::Text);
        /// Whether `//` is one slash; if not, it is significant in matching and kept.
        merge_slashes: bool = flag() => true;
        /// Names of listeners at which requests come. Default: any.
        listeners = Schema::Set(SOME, &Schema::TextUpTo(256));
        /// Conditions none of which may hold. Default: none.
        excluded as "not" = Schema::Table(&NOT);
        + VALUES;
    }
}

keys! {
    /// Conditions on values, of a route and of its `not`.
    pub(super) VALUES: ValueKeys = "headers, query, cookies, body and clients" {
        /// Headers, each with a pattern for its value: a request has all of them, or in `not` none. Default: any.
        headers = PATTERNS;
        /// Parameters of the query, each with a pattern for its decoded value. Default: any.
        query = Schema::Map(ANY, &Schema::Text, &Schema::Named(&VALUE_PATTERN));
        /// Cookies, each with a pattern for its decoded value. Default: any.
        cookies = PATTERNS;
        /// JSON pointers into the body, each with a pattern for the value there: { "/method" = "tools/call" }.
        /// Default: any.
        body = Schema::Map(ANY, &Schema::Matching(r"^/"), &Schema::Named(&VALUE_PATTERN));
        /// Networks or addresses of clients, or "file:PATH". Default: any.
        clients = Schema::List(SOME, &Schema::Text);
        /// Countries of the clients' addresses, as ISO 3166-1 names them: "DE". Default: any.
        country = Schema::Set(SOME, &Schema::Matching("^[A-Z]{2}$"));
    }
}

keys! {
    /// Conditions none of which may hold. Default: none.
    pub(super) NOT: NotKeys = "not" {
        /// Methods that are excluded; GET includes HEAD.
        methods = Schema::Set(SOME, &Schema::Text);
        /// Hosts that are excluded: "api.example.com", "*.example.com".
        hosts = Schema::Set(SOME, &Schema::Name);
        /// Paths that are excluded: "/a", "/a/{id}", "/a/*", "~^/v[0-9]+$".
        path = Schema::Name;
        + VALUES;
        one of "methods", "hosts", "path", "headers", "query", "cookies", "body", "clients", "country";
    }
}

/// A pattern of a value, in the schema.
static VALUE_PATTERN: NamedSchema = NamedSchema {
    name: "value_pattern",
    description: "\"text\"; \"text*\", \"*text\", \"*text*\": a value that begins with it, ends with it, contains it; \"~regex\", \"~*regex\" (ignoring case); true or \"*\": any value; false: none; or a list: any of these. \\* and \\~ are the characters.",
    schema: Schema::Either(&[
        Schema::Text,
        Schema::Flag,
        Schema::List(SOME, &Schema::Either(&[Schema::Text, Schema::Flag])),
    ]),
};
const PATTERNS: Schema =
    Schema::Map(ANY, &Schema::Matching(r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"), &Schema::Named(&VALUE_PATTERN));

/// Parses the `path` of a route.
pub(super) fn path(text: &Cursor<'_>, matching: PathMatching) -> Option<PathMatcher> {
    text.parse("a path", |text| PathMatcher::parse(text, matching))
}

/// Reads the conditions of a route except `path`, which the route read for its name. `None` if they have errors.
pub(super) fn read(
    table: &mut ConfigTable<'_>,
    path: Option<PathMatcher>,
    matching: PathMatching,
    listener_names: &Directory<'_>,
) -> Option<Conditions> {
    let errors_before = table.diagnostics().errors();
    let hosts = table.or(&CONDITIONS.hosts, Vec::new(), |value| distinct(&value, host));
    let methods = table.or(&CONDITIONS.methods, Vec::new(), |value| methods(&value));
    let mut values = values(table, PatternPlace::Route);
    let listeners = table.optional(&CONDITIONS.listeners, |value| listeners(&value, listener_names));
    values.extend(listeners.map(Condition::listeners));
    let merge_slashes = table.value(&CONDITIONS.merge_slashes);
    let excluded =
        table.or(&CONDITIONS.excluded, Vec::new(), |value| excluded(&value, merge_slashes, matching));
    values.extend(excluded.into_iter().map(Condition::negated));
    let conditions = Conditions { hosts, methods, values, merge_slashes, path: path? };
    (table.diagnostics().errors() == errors_before).then_some(conditions)
}

fn country(value: &ConfigValue<'_>) -> Option<Country> {
    value.text()?.parse("a country", |text| {
        Country::new(text).ok_or_else(|| {
            let help = match Country::new(&text.to_ascii_uppercase()) {
                Some(upper) => format!("write it in upper case: `{upper}`"),
                None => "write two letters of ISO 3166-1, such as `DE`".to_owned(),
            };
            SyntaxError::new(format!("{} is not the code of a country", quoted(text)), help)
        })
    })
}

/// Names of listeners, each once.
fn listeners(value: &ConfigValue<'_>, names: &Directory<'_>) -> Option<Vec<Box<str>>> {
    let mut found: Vec<Box<str>> = Vec::new();
    value.some_of(|item| {
        let text = item.text()?;
        names.find(&text)?;
        if found.iter().any(|name| **name == *text.as_str()) {
            item.fault("`listeners` names the same listener twice", "leave one of the two out");
        }
        found.push(text.as_str().into());
        Some(())
    })?;
    Some(found)
}

/// Where a pattern stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PatternPlace {
    /// Among the conditions of a route, as in versions with fewer patterns.
    Route,
    /// Where those versions had none.
    New,
}

/// `headers`, `query`, `cookies`, `body`, `clients` and `country`.
fn values(table: &mut ConfigTable<'_>, place: PatternPlace) -> Vec<Condition> {
    let headers = table.or(&VALUES.headers, Vec::new(), |value| {
        headers::fields_with(&value, headers::any, |value| {
            cookie_header(value);
            patterns(value, place, check_header)
        })
    });
    let query = table.or(&VALUES.query, Vec::new(), |value| named(&value, |_| None, place));
    let cookies =
        table.or(&VALUES.cookies, Vec::new(), |value| named(&value, cookie_fault, PatternPlace::New));
    let body = table.or(&VALUES.body, Vec::new(), |value| body(&value));
    let clients = table.optional(&VALUES.clients, |value| networks::clients(&value));
    let headers = headers.into_iter().map(|(name, values)| Condition::header(name, values));
    let query = query.into_iter().map(|(name, values)| Condition::query(name, values));
    let cookies = cookies.into_iter().map(|(name, values)| Condition::cookie(name, values));
    let countries = table.optional(&VALUES.country, |value| distinct(&value, country));
    let of_client = clients.map(Condition::clients).into_iter().chain(countries.map(Condition::countries));
    headers.chain(query).chain(cookies).chain(body).chain(of_client).collect()
}

/// Conditions on values of a JSON body.
fn body(value: &ConfigValue<'_>) -> Option<Vec<Condition>> {
    if let Some(text) = value.written() {
        let help = match text.starts_with('/') {
            true => format!("write `body = {{ {} = true }}`", quoted(text)),
            false => {
                "write `body = { \"/method\" = \"tools/call\" }`; the body of an answer stands in `respond`"
                    .into()
            }
        };
        return value.mismatch("a table", help);
    }
    let mut found = Vec::new();
    for entry in value.entries()? {
        let pointer = match JsonPointer::parse(entry.key) {
            Ok(pointer) if !entry.key.is_empty() => Some(pointer),
            fault => {
                let why = fault.err().unwrap_or(PointerFault::NotAbsolute);
                let message = format!("{} is no JSON pointer: {why}", quoted(entry.key));
                let help = match why {
                    PointerFault::NotAbsolute => {
                        format!("write `\"/{}\"`", cut_for_help(&entry.key.replace('.', "/")))
                    }
                    PointerFault::Tilde | PointerFault::TooLong => "write the path to the value".to_owned(),
                };
                value.diagnostics().fault(entry.key_span, message, help);
                None
            }
        };
        let patterns = patterns(&entry.value, PatternPlace::New, |_| None);
        found.extend(pointer.zip(patterns).map(|(pointer, patterns)| Condition::body(pointer, patterns)));
    }
    Some(found)
}

/// Warns of a condition on a whole header `cookie` that means one cookie. `value`: as it stands for the header.
fn cookie_header(value: &ConfigValue<'_>) {
    let text = value.written().unwrap_or_default();
    let is_cookie = value.label().trim_matches('`').eq_ignore_ascii_case("cookie");
    let Some((name, rest)) = text.split_once('=').filter(|_| is_cookie) else { return };
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if !is_name {
        return;
    }
    let (place, meant) = match rest {
        "*" => ("comes first", "true"),
        rest if rest.ends_with('*') => ("comes first", "\"…\""),
        _ => ("comes alone", "\"…\""),
    };
    // The value may be a secret.
    let message = format!(
        "the header `cookie` has all cookies of a request: this matches only where {} {place}",
        quoted(name)
    );
    value.diagnostics().warn(value.span(), message, format!("write `cookies = {{ {name} = {meant} }}`"));
}

/// Reads `not`: conditions none of which may hold.
fn excluded(value: &ConfigValue<'_>, merge_slashes: bool, matching: PathMatching) -> Option<Vec<Condition>> {
    let mut table = value.table("`not`")?;
    let mut methods = table.or(&NOT.methods, Vec::new(), |value| {
        let methods = methods(&value)?;
        if methods.contains(&Method::HEAD) && !methods.contains(&Method::GET) {
            let help = "write a route with `methods = [\"HEAD\"]` for HEAD, or exclude `GET`, too";
            value.fault("`GET` includes `HEAD`, which cannot be excluded alone", help);
        }
        Some(methods)
    });
    let mut hosts = table.or(&NOT.hosts, Vec::new(), |value| distinct(&value, host));
    let path = table.optional(&NOT.path, |value| path(&value.text()?, matching));
    let values = values(&mut table, PatternPlace::New);
    // In a normal form.
    methods.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    hosts.sort_by_cached_key(ToString::to_string);
    let methods = (!methods.is_empty()).then(|| Condition::Methods(methods.into()));
    let hosts = (!hosts.is_empty()).then(|| Condition::Hosts(hosts.into()));
    let path = path.map(|path| Condition::Path(path.into(), merge_slashes));
    let is_sound = table.finish();
    let all: Vec<_> = methods.into_iter().chain(hosts).chain(path).chain(values).collect();
    if is_sound && all.is_empty() {
        let help = "name what the route is not for: `not = { headers = { x-internal = true } }`";
        value.fault("`not` has no condition", help);
    }
    is_sound.then_some(all)
}

/// `{ name = PATTERN }` with names that are compared once decoded. `fault` is the fault of a name.
fn named<'a>(
    value: &ConfigValue<'a>,
    fault: fn(&str) -> Option<SyntaxError>,
    place: PatternPlace,
) -> Option<Vec<(&'a str, Vec<ValuePattern>)>> {
    let mut found = Vec::new();
    for entry in value.entries()? {
        if let Some(fault) = fault(entry.key) {
            value.diagnostics().fault(entry.key_span, fault.message, fault.help);
        }
        found.extend(patterns(&entry.value, place, |_| None).map(|patterns| (entry.key, patterns)));
    }
    Some(found)
}

/// Names of cookies are tokens (RFC 6265 §4.1.1), as those of headers.
fn cookie_fault(name: &str) -> Option<SyntaxError> {
    let fault = || {
        let message = format!("{} is not the name of a cookie", quoted(name));
        SyntaxError::new(message, "a name has letters, digits, `-` and `_`, such as `session`")
    };
    HeaderName::try_from(name).is_err().then(fault)
}

/// A text, `true`, `false`, or a list of these. `check` is the fault of a text that no value can have.
fn patterns(
    value: &ConfigValue<'_>,
    place: PatternPlace,
    check: fn(&str) -> Option<SyntaxError>,
) -> Option<Vec<ValuePattern>> {
    if !value.is_list() {
        return pattern(value, place, check).map(|pattern| vec![pattern]);
    }
    let mut texts = HashSet::new();
    value.some_of(|item| {
        let pattern = pattern(&item, PatternPlace::New, check)?;
        if !texts.insert((pattern == ValuePattern::Absent, pattern.to_string())) {
            item.fault(format!("{} names this one twice", value.label()), "leave one of the two out");
        }
        Some(pattern)
    })
}

fn pattern(
    value: &ConfigValue<'_>,
    place: PatternPlace,
    check: fn(&str) -> Option<SyntaxError>,
) -> Option<ValuePattern> {
    match value.written_boolean() {
        Some(true) => return Some(ValuePattern::Present),
        Some(false) => return Some(ValuePattern::Absent),
        None if !value.is_text() => {
            return value
                .mismatch("a string, `true`, `false` or a list of these", "put it in quotes: `\"…\"`");
        }
        None => {}
    }
    let text = value.text()?;
    let pattern = text.parse("a pattern for a value", |content| {
        let pattern = ValuePattern::parse_with(content, text.variables())?;
        match check(content) {
            Some(fault) if !matches!(pattern, ValuePattern::Regex(_)) => Err(fault),
            _ => Ok(pattern),
        }
    })?;
    if place == PatternPlace::Route {
        note_pattern(value, text.as_str(), &pattern);
    }
    Some(pattern)
}

/// The fault of a text that no header has as its value.
fn check_header(text: &str) -> Option<SyntaxError> {
    let is_possible = HeaderValue::from_bytes(text.as_bytes()).is_ok() && text.trim() == text;
    (!is_possible).then(|| headers::value_fault(text))
}

/// A list with at least one item and no duplicates.
pub(super) fn distinct<T: PartialEq>(
    value: &ConfigValue<'_>,
    read: fn(&ConfigValue<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut found: Vec<T> = Vec::new();
    value.some_of(|item| {
        let one = read(&item)?;
        if found.contains(&one) {
            item.fault(format!("{} names this one twice", value.label()), "leave one of the two out");
        }
        found.push(one);
        Some(())
    })?;
    Some(found)
}

fn host(value: &ConfigValue<'_>) -> Option<HostPattern> {
    value.text()?.parse("a host", HostPattern::parse)
}

/// A list of methods. For a text alone the remedy has the methods as they should be written.
fn methods(value: &ConfigValue<'_>) -> Option<Vec<Method>> {
    match value.written() {
        Some(text) => value.mismatch("a list", remedies::methods(text)),
        None => distinct(value, route_method),
    }
}

/// A method, but not a word for all of them.
fn route_method(value: &ConfigValue<'_>) -> Option<Method> {
    let is_all = |text: &str| ["*", "ANY", "ALL"].iter().any(|word| text.eq_ignore_ascii_case(word));
    if let Some(word) = value.written().filter(|text| is_all(text)) {
        let message = format!("{} is not a method", quoted(word));
        value.fault(message, "leave `methods` out: a route without it has all methods");
        return None;
    }
    method(value)
}

pub(super) fn method(value: &ConfigValue<'_>) -> Option<Method> {
    value.text()?.parse("a method", |text| {
        let upper = text.to_uppercase();
        let parsed = Method::from_bytes(text.as_bytes()).ok().filter(|_| upper == text);
        let help = match upper.as_str() {
            "CONNECT" | "TRACE" => "leave it out: tollgate answers it with 405".to_owned(),
            _ if Method::from_bytes(upper.as_bytes()).is_ok() => {
                format!("methods are upper case: {}", quoted(&upper))
            }
            _ => "write a method such as `GET`".to_owned(),
        };
        parsed.filter(|method| *method != Method::CONNECT && *method != Method::TRACE).ok_or_else(|| {
            SyntaxError::new(format!("{} cannot be the method of a route", quoted(text)), help)
        })
    })
}

// Notes on values that had another meaning in versions with fewer patterns. There `"text*"` and `"*"` were the only
// patterns of `headers` and `query`, exemptions had none, and the text of variables was read like that of the file. A
// note is not a warning: the new meaning may be the one that is meant. A pattern in a list, in `cookies` or in `not` has no
// note, since those versions refuse the file.

/// Notes a value of `headers` or `query` if its meaning changed. `text` is its text with variables filled in.
fn note_pattern(value: &ConfigValue<'_>, text: &str, pattern: &ValuePattern) {
    let former = match text.strip_suffix('*') {
        Some("") => ValuePattern::Present,
        Some(prefix) => ValuePattern::Prefix(prefix.as_bytes().into()),
        None => ValuePattern::Exact(text.as_bytes().into()),
    };
    if former != *pattern {
        let help = "put it into a list, `[\"…\"]`, if that is right; `\\\\*` and `\\\\~` are the characters";
        note(value, value.label(), (&former, pattern), help);
    }
}

/// Notes the value of an exemption by this header if its meaning changed. `text` is the exemption with variables filled in.
pub(super) fn note_exemption(
    value: &ConfigValue<'_>,
    text: &str,
    name: &HeaderName,
    patterns: &ValuePatterns,
) {
    let Some((_, text)) = text.split_once('=') else { return };
    let former = ValuePattern::Exact(text.as_bytes().into());
    if ValuePatterns::of_header(name, [former.clone()]) != *patterns
        && let Some(pattern) = patterns.iter().next()
    {
        let what = format!("the exemption by {}", quoted(name.as_str()));
        note(value, &what, (&former, pattern), "`\\\\*` and `\\\\~` are the characters");
    }
}

/// Without the value, which may be a secret.
fn note(value: &ConfigValue<'_>, what: &str, (former, now): (&ValuePattern, &ValuePattern), help: &str) {
    let (now, former) = (meaning(now), meaning(former));
    let now = if now == former { format!("{now}, without its backslashes") } else { now.to_owned() };
    value
        .diagnostics()
        .note(value.span(), &format!("{what} now stands for {now}; before, for {former}; {help}"));
}

fn meaning(pattern: &ValuePattern) -> &'static str {
    match pattern {
        ValuePattern::Exact(_) => "exactly this text",
        ValuePattern::Prefix(_) => "values that begin with this text",
        ValuePattern::Suffix(_) => "values that end with this text",
        ValuePattern::Contains(_) => "values that contain this text",
        ValuePattern::Regex(_) => "values that a regular expression matches",
        ValuePattern::Present => "any value",
        ValuePattern::Absent => "no value",
    }
}
