//! The fields `ratelimit` and `ratelimit-policy` of a response.

use sfv::{BareItem, List, ListEntry, Parser};

/// The members of a RateLimit field: name and integer parameters, read by a structured-field parser.
pub(crate) fn members(text: &str) -> Vec<(String, Vec<(String, i64)>)> {
    let list: List = Parser::new(text).parse().unwrap_or_else(|fault| panic!("{fault} in {text}"));
    list.into_iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list in {text}") };
            let BareItem::String(name) = item.bare_item else { panic!("no string in {text}") };
            let parameter = |(key, value): (sfv::Key, BareItem)| match value {
                BareItem::Integer(value) => (String::from(key), i64::from(value)),
                other => panic!("{other:?} in {text}"),
            };
            (String::from(name), item.params.into_iter().map(parameter).collect())
        })
        .collect()
}

/// A member with this name and these parameters.
pub(crate) fn member(name: &str, parameters: &[(&str, i64)]) -> (String, Vec<(String, i64)>) {
    (name.to_owned(), parameters.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect())
}
