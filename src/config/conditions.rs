//! The conditions of a route: `hosts`, `path`, `methods`, `headers`, `query`, `clients`,
//! `merge_slashes`.

use http::Method;

use super::report::quoted;
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use super::{headers, networks, remedies};
use crate::route::Conditions;
use crate::route::condition::{Condition, ValuePattern};
use crate::route::path::PathMatching;
use crate::route::pattern::{HostPattern, PathMatcher};

/// Parses the `path` of a route.
pub(super) fn path(text: &Cursor<'_>, matching: PathMatching) -> Option<PathMatcher> {
    text.parse("a path", |text| PathMatcher::parse(text, matching))
}

/// Reads the conditions of a route except `path`, which the route read for its name. `None` if they have errors.
pub(super) fn read(table: &mut ConfigTable<'_>, path: Option<PathMatcher>) -> Option<Conditions> {
    let errors_before = table.reader().errors();
    let conditions = Conditions {
        hosts: table.or("hosts", Vec::new(), |value| distinct(&value, host)),
        methods: table.or("methods", Vec::new(), |value| methods(&value)),
        values: values(table),
        merge_slashes: table.or("merge_slashes", true, |value| value.boolean()),
        path: path?,
    };
    (table.reader().errors() == errors_before).then_some(conditions)
}

/// `headers`, `query` and `clients`.
fn values(table: &mut ConfigTable<'_>) -> Vec<Condition> {
    let headers =
        table.or("headers", Vec::new(), |value| headers::fields_with(&value, headers::any, header_value));
    let query = table.or("query", Vec::new(), |value| query(&value));
    let clients = table.optional("clients", |value| networks::clients(&value));
    let headers = headers.into_iter().map(|(name, value)| Condition::Header(name, value));
    let query = query.into_iter().map(|(name, value)| Condition::Query(name, value));
    headers.chain(query).chain(clients.map(Condition::clients)).collect()
}

fn header_value(value: &ConfigValue<'_>) -> Option<ValuePattern> {
    let text = headers::field_value(value)?;
    Some(ValuePattern::parse(std::str::from_utf8(text.as_bytes()).ok()?))
}

/// `{ name = "value" }`: names and values as they are once decoded.
fn query(value: &ConfigValue<'_>) -> Option<Vec<(Box<str>, ValuePattern)>> {
    let mut found = Vec::new();
    for entry in value.entries()? {
        if let Some(text) = entry.value.text() {
            found.push((entry.key.into(), ValuePattern::parse(text.as_str())));
        }
    }
    Some(found)
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
        None => distinct(value, method),
    }
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
            SyntaxError::new(format!("{} can not be the method of a route", quoted(text)), help)
        })
    })
}
