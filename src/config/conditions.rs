//! The conditions of a route: `hosts`, `path`, `methods`, `headers`, `merge_slashes`.

use http::Method;

use super::headers;
use super::report::quoted;
use super::table::ConfigTable;
use super::text::{Cursor, SyntaxError};
use super::value::ConfigValue;
use crate::route::Conditions;
use crate::route::pattern::{HostPattern, PathPattern};

/// Reads the conditions of a route except `path`, which the route read for its name. `None` if they have errors.
pub(super) fn read(table: &mut ConfigTable<'_>, path: Option<&Cursor<'_>>) -> Option<Conditions> {
    let errors_before = table.reader().errors();
    let path = path.and_then(|text| text.parse("a path", PathPattern::parse));
    let conditions = Conditions {
        hosts: table.or("hosts", Vec::new(), |value| distinct(&value, host)),
        methods: table.or("methods", Vec::new(), |value| distinct(&value, method)),
        headers: table.or("headers", Vec::new(), |value| headers::fields(&value, headers::any)),
        merge_slashes: table.or("merge_slashes", true, |value| value.boolean()),
        path: path?,
    };
    (table.reader().errors() == errors_before).then_some(conditions)
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
